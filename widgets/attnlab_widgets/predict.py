"""Predict, then look: choose an answer before the picture is shown.

An answer that one had to choose is remembered better than a picture that is merely shown. So the
answer is locked first, then the picture appears, with one sentence of explanation.
"""

import inspect
import os
import traceback
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import ipywidgets as widgets

from attnlab.core.arguments import check_list
from attnlab.core.markup import escape
from attnlab.predictions import Prediction as Asked
from attnlab.predictions import prediction

LONG = 8  # more choices than this become a list to scroll
TRY = "ATTNLAB_TRY_PREDICTIONS"  # set under test: what a lesson asks is also looked at
Look = Callable[[], Any] | Callable[[str], Any]


class Prediction(widgets.VBox):
    """A question with choices; made by ``predict`` and ``ask``.

    ``chosen``  the choice that was committed, or None while the reader still thinks
    ``right``   whether it was the answer, or None
    """

    def __init__(self, asked: Asked, look: Look | None, *, shipped: bool = False) -> None:
        self.asked, self.shipped = asked, shipped
        self.look = look if look is None else _frozen(look)
        self.chosen: str | None = None
        self._menu = _menu(asked.choices)
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
        prompt = widgets.HTML(f"<p><strong>Predict.</strong> {escape(asked.question)}</p>")
        super().__init__([prompt, self._menu, self._button, self._verdict, self._look])

    @property
    def right(self) -> bool | None:
        return None if self.chosen is None else self.chosen == self.asked.answer

    def _choose(self, change: Any) -> None:
        self._button.disabled = self._menu.value is None or self.chosen is not None

    def _commit(self, _button: Any = None) -> None:
        if self._menu.value is None or self.chosen is not None:
            return
        self.chosen = self._menu.value
        self._menu.disabled = self._button.disabled = True
        self._verdict.value = self._verdict_text()
        self._reveal()

    def _reveal(self) -> None:
        """Show what ``look`` returns or displays, an error too, then what is said of it."""
        from IPython.display import display

        with self._look:
            try:
                self._draw()
            except Exception as error:
                self._verdict.value += _error_message(error)
                trace = traceback.format_exc()
                folded = "<details><summary>Full traceback</summary>"
                folded += f"<pre>{escape(trace)}</pre></details>"
                display({"text/html": folded, "text/plain": trace}, raw=True)
            if after := self.asked.after:
                display({"text/markdown": after, "text/plain": after}, raw=True)

    def _draw(self) -> None:
        from IPython.display import display

        if self.look is None:
            return
        titled = bool(inspect.signature(self.look).parameters)
        shown = self.look(*[self.asked.title] * titled)
        if shown is not None:
            display(shown)

    def tried(self) -> None:
        """Look without a guess and without showing it, as a test does: an error is raised.

        Raises AssertionError if what is printed differs from what is kept with the answer.
        """
        from IPython.utils.capture import capture_output

        with capture_output() as seen:
            self._draw()
        if self.asked.prints and seen.stdout.strip() != self.asked.prints.strip():
            raise AssertionError(f"{self!r} shows\n{seen.stdout}\nand not\n{self.asked.prints}")

    def _verdict_text(self) -> str:
        if self.right:
            verdict = f"✓ <strong>Yes: {escape(self.asked.answer)}.</strong>"
        else:
            verdict = (
                f"→ You said {escape(str(self.chosen))}. "
                f"<strong>It is: {escape(self.asked.answer)}.</strong>"
            )
        return f'<p role="status">{verdict} {escape(self.asked.why)}</p>'

    def static_html(self) -> str:
        """The question as HTML for a page without widgets; the answer is not stored with it."""
        listed = "".join(f"<li>{escape(choice)}</li>" for choice in self.asked.choices)
        return f"<p><strong>Predict.</strong> {escape(self.asked.question)}</p><ul>{listed}</ul>"

    def _ipython_display_(self, **kwargs: Any) -> None:
        # ipywidgets (7 and 8) cuts its text to 110 characters, which loses the choices.
        from IPython.display import display

        if self.shipped and os.environ.get(TRY):
            self.tried()
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
        asked = self.asked
        told = f"Predict: {asked.question} [{' / '.join(asked.choices)}]"
        if self.chosen is None:
            return told
        return f"{told} You said {self.chosen}; it is {asked.answer}."


def predict(key: str, look: Look | None = None) -> Prediction:
    """The prediction of a lesson with this key, such as "12.1"; ``ask`` takes one of your own.

    Question, choices and what is shown after the guess ship with attnlab (``course.predictions``).
    ``look`` returns (or displays, or prints) what there is to see; it is called only after the
    guess, without arguments, or with the title of the picture, which tells the answer. From the
    keyboard: Tab to move, Space to choose and to commit (JupyterLab takes the arrow keys for its
    cells).
    """
    if look is not None and not callable(look):
        raise TypeError(
            f"`look` should be a function, got {type(look).__name__}; a question of your own is "
            "asked by `ask(question, choices, answer, why, look)`"
        )
    return Prediction(prediction(key), look, shipped=True)


def ask(
    question: str, choices: Sequence[Any], answer: Any, why: str, look: Look | None = None
) -> Prediction:
    """Ask before showing: a question of your own, its choices, and behind them the answer and why.

    ``answer`` is one of ``choices``; ``why`` is one sentence, shown after the reader has committed.
    ``look`` is as in ``predict``.
    """
    named = tuple(str(choice) for choice in check_list("choices", choices))
    asked = Asked(question, named, str(answer), why)
    if look is not None and not callable(look):
        raise TypeError(
            f"`look` should be a function, got {type(look).__name__}; write lambda: heat_map(…), "
            "so that nothing is drawn before the reader commits"
        )
    return Prediction(asked, look)


def _frozen(look: Look) -> Look:
    """``look`` with the names of its notebook as they are now, for a guess that comes after later
    cells have given them to something else; functions that it calls there, too.
    """
    if not isinstance(look, FunctionType):
        return look
    live = look.__globals__
    kept = dict(live)

    def copy(function: FunctionType) -> FunctionType:
        made = FunctionType(
            function.__code__, kept, function.__name__, function.__defaults__, function.__closure__
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    for name, value in live.items():
        if isinstance(value, FunctionType) and value.__globals__ is live:
            kept[name] = copy(value)
    return copy(look)


def _menu(choices: tuple[str, ...]) -> Any:
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
