"""Predict, then look: choose an answer before the picture is shown.

An answer that one had to choose is remembered better than a picture that is merely shown. So the
answer is locked first, then the picture appears, with one sentence of explanation.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from attnlab.core.markup import escape
from attnlab.figures.arguments import check_list

LONG = 8  # more choices than this become a list to scroll


class Prediction(widgets.VBox):
    """A question with choices; made by ``predict``.

    ``chosen``  the choice that was committed, or None while the reader still thinks
    ``right``   whether it was the answer, or None
    """

    def __init__(
        self,
        question: str,
        choices: tuple[str, ...],
        answer: str,
        why: str,
        picture: Callable[[], Any] | None,
    ) -> None:
        self.question, self.choices, self.answer, self.why = question, choices, answer, why
        self.picture = picture
        self.chosen: str | None = None
        self._menu = _menu(question, choices)
        self._button = widgets.Button(
            description="Commit, then look",
            disabled=True,
            tooltip="Locks your answer and shows what happens",
            layout=widgets.Layout(width="max-content"),
        )
        self._verdict = widgets.HTML()
        self._look = widgets.Output()
        self._menu.observe(self._choose, names="value")
        self._button.on_click(self._commit)
        prompt = widgets.HTML(f"<p><strong>Predict.</strong> {escape(question)}</p>")
        super().__init__([prompt, self._menu, self._button, self._verdict, self._look])

    @property
    def right(self) -> bool | None:
        return None if self.chosen is None else self.chosen == self.answer

    def _choose(self, change: Any) -> None:
        self._button.disabled = self._menu.value is None or self.chosen is not None

    def _commit(self, _button: Any = None) -> None:
        if self._menu.value is None or self.chosen is not None:
            return
        self.chosen = self._menu.value
        self._menu.disabled = self._button.disabled = True
        self._verdict.value = self._verdict_text()
        if self.picture is not None:
            self._reveal(self.picture)

    def _reveal(self, picture: Callable[[], Any]) -> None:
        """Show what the callable returns or displays; an error is shown there."""
        from IPython.display import display

        with self._look:
            try:
                shown = picture()
                if shown is not None:
                    display(shown)
            except Exception as error:
                self._verdict.value += _error_message(error)
                trace = traceback.format_exc()
                folded = "<details><summary>Full traceback</summary>"
                folded += f"<pre>{escape(trace)}</pre></details>"
                display({"text/html": folded, "text/plain": trace}, raw=True)

    def _verdict_text(self) -> str:
        if self.right:
            verdict = f"✓ <strong>Yes: {escape(self.answer)}.</strong>"
        else:
            verdict = (
                f"→ You said {escape(str(self.chosen))}. "
                f"<strong>It is: {escape(self.answer)}.</strong>"
            )
        return f'<p role="status">{verdict} {escape(self.why)}</p>'

    def static_html(self) -> str:
        """The question as HTML for a page without widgets; the answer is not stored with it."""
        listed = "".join(f"<li>{escape(choice)}</li>" for choice in self.choices)
        return f"<p><strong>Predict.</strong> {escape(self.question)}</p><ul>{listed}</ul>"

    def _ipython_display_(self, **kwargs: Any) -> None:
        # ipywidgets (7 and 8) cuts its text to 110 characters, which loses the choices.
        from IPython.display import display

        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        display(
            {
                "application/vnd.jupyter.widget-view+json": view,
                "text/html": self.static_html(),
                "text/plain": repr(self),
            },
            raw=True,
        )

    def __repr__(self) -> str:
        """The text shown where widgets are not."""
        listed = " / ".join(self.choices)
        if self.chosen is None:
            return f"Predict: {self.question} [{listed}]"
        return f"Predict: {self.question} [{listed}] You said {self.chosen}; it is {self.answer}."


def predict(
    question: str,
    choices: Sequence[Any],
    answer: Any,
    why: str,
    picture: Callable[[], Any] | None = None,
) -> Prediction:
    """Ask before showing: a question, its choices, and behind them the answer and why.

    ``answer`` is one of ``choices``; ``why`` is one sentence, shown after the reader has committed.
    ``picture`` takes no arguments and returns (or displays) what there is to see; it is called only
    then. From the keyboard: Tab to move, Space to choose and to commit (JupyterLab takes the arrow
    keys for its cells).
    """
    named = tuple(str(choice) for choice in check_list("choices", choices))
    if len(named) < 2:
        raise ValueError(f"`choices` must hold at least two, got {len(named)}")
    if len(set(named)) < len(named):
        raise ValueError(f"`choices` must differ, got {list(named)}")
    if str(answer) not in named:
        raise ValueError(f"`answer` must be one of the choices {list(named)}, got {answer!r}")
    for name, text in (("question", question), ("why", why)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"`{name}` must be a sentence, got {text!r}")
    if picture is not None and not callable(picture):
        raise TypeError(
            f"`picture` must be a function without arguments, got {type(picture).__name__}; "
            "write lambda: heat_map(…), so that nothing is drawn before the reader commits"
        )
    return Prediction(question, named, str(answer), why, picture)


def _menu(question: str, choices: tuple[str, ...]) -> Any:
    kind = widgets.RadioButtons if len(choices) <= LONG else widgets.Select
    return kind(
        options=choices, value=None, layout=widgets.Layout(width="max-content", max_width="100%")
    )


def _error_message(error: Exception) -> str:
    return (
        '<p role="alert"><strong>The picture could not be made:</strong> '
        f"{escape(type(error).__name__)}: {escape(str(error))} "
        "Your answer is kept; the full traceback is below.</p>"
    )
