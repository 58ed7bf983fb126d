"""How do two mechanisms attend to your text, and how do their maps change in training?

    AttentionExplorer()

Choose one or two mechanisms and see every head of both. "Train" lets them learn in the background,
one step each in turn, while their maps follow; afterwards a slider goes through the recorded steps.
They learn to copy letters, whose heads form within seconds, or the language of the Python
documentation, for which there are trained weights too. Type a text, and see how they read it.

During a training it uses torch's global random generator and restores its state afterwards; draw
with a ``torch.Generator`` of your own meanwhile. One training holds some 150 MB at most.
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from attnlab.catalog import cards
from attnlab.core.arguments import (
    check_list,
    check_mapping,
    check_names,
    check_size,
    check_texts,
)
from attnlab.core.markup import printable
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.tasks import Task
from attnlab.train.in_turn import Learner, Training
from attnlab_widgets.attention_explorer.models import (
    COPYING,
    LANGUAGE,
    causal_cards,
    copying,
    reference_model,
    shipped,
)
from attnlab_widgets.attention_explorer.side import Side
from attnlab_widgets.attention_view.picture import beside
from attnlab_widgets.background import Throttled
from attnlab_widgets.messages import alert, aside
from attnlab_widgets.toolbar import row_layout, slim
from attnlab_widgets.training_lab import EVERY, MOST_STEPS, TIGHT, TrainingLab, style_of
from attnlab_widgets.two_columns import HELP, two_columns

TEXTS = {
    COPYING: "a for loop",
    LANGUAGE: "The for statement is used to iterate over the elements of a sequence.",
}
LONGEST = 20_000  # characters that are read at all; far more than the tokens that are shown
TRAINING = {
    COPYING: {"batch_size": 32, "learning_rate": 5e-3},
    LANGUAGE: {"batch_size": 8, "learning_rate": 2e-3},
}
_TASKS = [("copy letters", COPYING), ("Python documentation", LANGUAGE)]


@dataclass(frozen=True)
class Reading:
    """A text as the models read it."""

    ids: Tensor
    tokens: list[str]
    remark: str


class AttentionExplorer(TrainingLab):
    """Two small models on one text, side by side, and their training.

    ``text``        what is typed to begin with
    ``task``        what they learn: "copying" (the first letters of the text, and those again) or
                    "documentation"; without it, "documentation" where a text or ``trained`` is
                    given, else "copying"
    ``mechanisms``  one or two names of ``attnlab.cards()``, those that can be causal
    ``trained``     for each, whether it starts with the weights that come with attnlab (of
                    mechanisms that have them); without it, the first does and the second does not
    ``untrained``   options of `attnlab.TinyTransformer` for models that start untrained, such as
                    ``{"layers": 2}``; all others are as in the trained model
    ``steps``       how long a training lasts

    Everything that the buttons do can be called: `train`, `pause`, `resume`, `stop`, `start_over`,
    and `wait` until all is done and shown; `close` ends the training too, as does running the cell
    again. ``first`` and ``second`` hold the menus (``.mechanism``, ``.weights``, ``.learns``) and
    the ``.view`` of each model, ``typed`` is the text field.
    """

    sides: tuple[Side, ...] = ()
    _following = "Training. The maps follow; you can type another text meanwhile."

    def __init__(
        self,
        text: str | None = None,
        mechanisms: Sequence[str] | None = None,
        *,
        task: str | None = None,
        trained: Sequence[bool] | None = None,
        untrained: Mapping[str, Any] | None = None,
        steps: int = 200,
    ) -> None:
        task = _task(task, text, trained)
        text = TEXTS[task] if text is None else text
        if mechanisms is None:
            mechanisms = ("full", "full") if task == LANGUAGE else ("full", "synthesizer")
        check_texts(text=text)
        steps = check_size("steps", steps, MOST_STEPS, "steps")
        names, options = _names(mechanisms), _options(untrained)
        starts = _starts(trained, names, task)
        self._learning: list[Side] = []
        self._trainings = 0
        self._reading: Reading | None = None
        self._looker = Throttled(self._draw, EVERY)
        self._drawing = threading.RLock()
        self.first = Side(
            "First", names[0], starts[0], options, self._chosen, optional=False, task=task
        )
        self.second = Side(
            "Second", names[1], starts[1], options, self._chosen, optional=True, task=task
        )
        self.first.other, self.second.other = self.second, self.first
        self.sides = (self.first, self.second)
        self._controls(text, steps, task)
        self._read()
        self._draw()
        super().__init__(self._parts())
        self.add_class("attnlab-explorer")
        _replace_older(self)

    # What can be done

    def _new_training(self) -> Training | None:
        self._learning = [side for side in self.sides if side.recorded and side.learns.value]
        if not self._learning:
            self._tell("Nothing to train: tick “train” beside a model.")
            return None
        for side in self._learning:
            side.begin()
        self._trainings += 1
        return Training(
            [side.recorded for side in self._learning if side.recorded is not None],
            _problem(self.task.value),
            self.steps.value,
            self._ask,
            seed=self._trainings,
            **TRAINING[self.task.value],
        )

    def start_over(self) -> None:
        """Both models as they were before any training."""
        if self._training is not None:
            self._training.stop()
            self._training.join(60)
        with self._drawing:
            self._training = None
            for side in self.sides:
                side.start_over()
        self._chosen()
        self._tell("Both models are as they were before training.")

    def _leave(self) -> None:
        """Stop what runs and free the recorded steps."""
        if self._looker is not None:
            self._looker.close()
        if self._training is not None:
            self._training.stop()
        for side in self.sides:
            side.forget()

    # The page

    def _controls(self, text: str, steps: int, task: str) -> None:
        self.task = widgets.Dropdown(
            options=_TASKS,
            value=task,
            description="Task",
            layout=widgets.Layout(width="200px", flex="0 0 auto"),
            style=TIGHT,
        )
        self.typed = widgets.Textarea(
            value=printable(text),
            description="Text",
            placeholder="Type a text, in any language",
            rows=2,
            layout=widgets.Layout(width="auto", height="auto"),
            style=TIGHT,
        )
        self._training_controls(steps)
        self._tell("")
        self.typed.observe(self._retyped, "value")
        self.task.observe(self._turned, "value")

    def _parts(self) -> list[widgets.Widget]:
        self.typed.layout.flex, self.typed.layout.margin = "1 1 180px", "0"
        menus, columns = two_columns(), two_columns()
        menus.children = [side.row for side in self.sides]
        columns.children = [side.column for side in self.sides]
        told = [self.step, self.progress, self._numbers, self._note, self._status]
        return [
            style_of("attnlab-explorer"),
            *slim(
                [self.task, self.typed, self.button, self.stopper],
                [self.steps, self.restorer],
                HELP,
            ),
            widgets.HBox(told, layout=row_layout()),
            self._alert,
            menus,
            columns,
        ]

    def _to_step(self, step: int) -> None:
        """Show in both views the maps of that step of the training."""
        for side in self.sides:
            side.go_to(step)

    def _lock(self, locked: bool) -> None:
        self.task.disabled = locked
        for side in self.sides:
            side.lock(locked)

    def _turned(self, change: Any) -> None:
        """Another task: new models, and its own text where that of the other stands unchanged."""
        with self._drawing:
            for side in self.sides:
                side.turn_to(change["new"])
            if self.typed.value == TEXTS[change["old"]]:
                self.typed.value = TEXTS[change["new"]]
            self._read()
        self._chosen()

    def _retyped(self, _change: Any) -> None:
        self._read()
        self._ask()

    def _chosen(self) -> None:
        """Another model was chosen: forget the losses of the one before."""
        self.progress.value, self._numbers.value = 0, ""
        self._tell("")
        self._ask()

    def _read(self) -> None:
        """Encode the text; where it cannot be used, show why and keep the last maps."""
        try:
            read = _reading if self.task.value == LANGUAGE else _letters
            self._reading = read(self.typed.value)
            self._note.value = aside(self._reading.remark)
        except ValueError as error:
            self._note.value = alert("", error)

    # Drawing, in the background

    def _draw(self) -> None:
        try:
            with self._drawing:
                self._finish()
                self._count(self._training)
                if self._reading is not None and not self._drawn(self._reading):
                    self._ask()
            self._alert.value = ""
        except Exception as error:  # no other code would report it
            self._alert.value = alert("The maps could not be drawn.", error)

    def _drawn(self, reading: Reading) -> bool:
        training = self.state == "training"
        done = [side.draw(reading.ids, reading.tokens, training) for side in self.sides]
        self.step.offer({step for side in self.sides if side.chosen for step in side.steps})
        return all(done)

    def _finish(self) -> None:
        """Once after a training has ended."""
        if self._training is None or not self._training.over:
            return
        training, self._training = self._training, None
        for side, learner in zip(self._learning, training.learners, strict=True):
            side.learned(learner)
        self._count(training)
        self._tell(_ending(training))

    def _count(self, training: Training | None) -> None:
        if training is not None:
            named = [
                (side.name.lower(), self.sides.index(side), learner)
                for side, learner in zip(self._learning, training.learners, strict=True)
            ]
            told = _counted(training, [(name, learner) for name, _, learner in named])
            self._show_progress(training, named, told)

    def still(self) -> Drawing | None:
        """The heads of both models, and of each the chosen one."""
        views = [(side.said, side.view) for side in self.sides if side.chosen]
        return beside("Two models on one text" if len(views) > 1 else "One text", views)

    def __repr__(self) -> str:
        """The text shown where widgets are not."""
        chosen = " and ".join(side.called for side in self.sides if side.chosen)
        return f"<AttentionExplorer: {chosen}, {self.state}>"


def _reading(text: str) -> Reading:
    if not text:
        raise ValueError("There is no text; type a few words; the maps still show the last ones")
    task = reference_model()[1]
    encoded = task.encode(text[:LONGEST])
    ids = encoded[: task.length]
    remark = f"{len(ids)} tokens." if len(ids) > 1 else "1 token."
    if len(ids) < len(encoded) or len(text) > LONGEST:
        end = task.decode(ids)[-24:]
        remark = (
            f"The models read {task.length} tokens at most, so the text was cut after “…{end}”."
        )
    return Reading(ids, task.tokens(ids), remark)


def _letters(text: str) -> Reading:
    """The first letters, the separator, and what is to be written; repeated where they are few."""
    task = copying()[1]
    given = [ord(letter) - ord("a") for letter in text.lower() if "a" <= letter <= "z"]
    if not given:
        raise ValueError(
            "There is no letter from a to z to copy; type a word; the maps still show the last one"
        )
    read = [given[at % len(given)] for at in range(task.items)]
    ids = torch.tensor([*read, task.symbols, *read[:-1]])
    return Reading(ids, task.tokens(ids), f"{len(ids)} tokens: {task.items} letters, copied.")


def _task(task: str | None, text: str | None, trained: Any) -> str:
    if task is None:
        return COPYING if text is None and trained is None else LANGUAGE
    choose("task of the AttentionExplorer", task, TRAINING)
    return task


def _problem(task: str) -> Task:
    return reference_model()[1] if task == LANGUAGE else copying()[1]


def _names(mechanisms: Sequence[str]) -> list[str | None]:
    if isinstance(mechanisms, str) or not 1 <= len(check_names("mechanisms", mechanisms)) <= 2:
        raise ValueError(f"`mechanisms` should be one or two names in a list, got {mechanisms!r}")
    possible = {card.name: card for card in causal_cards()}
    for name in mechanisms:
        if name not in possible and name in {card.name for card in cards()}:
            raise ValueError(f"{name} cannot be a causal language model, so it cannot be chosen")
        choose("mechanism for a language model", name, possible)
    return [*mechanisms, None][:2]


def _starts(trained: Sequence[bool] | None, names: Sequence[str | None], task: str) -> list[bool]:
    given = len([name for name in names if name])
    if trained is None:
        return [task == LANGUAGE and names[0] in shipped(), False]
    trained = check_list("trained", trained)
    if len(trained) != given or not all(isinstance(start, bool) for start in trained):
        raise ValueError(f"`trained` should say True or False for each mechanism, got {trained!r}")
    if task != LANGUAGE and any(trained):
        raise ValueError('trained weights come with attnlab for task="documentation" only')
    for name, start in zip(names, trained, strict=False):
        if start and name not in shipped():
            raise ValueError(
                f"no trained weights of {name} come with attnlab; only of {[*shipped()]}"
            )
    return [*trained, False][:2]


def _options(untrained: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that may differ from the trained model's; its task and length are fixed."""
    if untrained is None:
        return {}
    untrained = check_mapping("untrained", untrained, '{"layers": 2}', may_be_empty=True)
    known = {"dim", "layers", "heads", "positions", "norm", "hidden", "tie"}
    for name in untrained:
        choose("option for untrained models", name, dict.fromkeys(known))
    return dict(untrained)


def _counted(training: Training, learners: Sequence[tuple[str, Learner]]) -> str:
    losses = ", ".join(f"{name} {of.loss:.2f}" for name, of in learners if of.loss is not None)
    counted = f"step {training.done} of {training.steps}"
    return f"{counted} · loss: {losses}" if losses else counted


def _ending(training: Training) -> str:
    if training.failed:
        return "Training ended with an error; the models keep what they had learned."
    if training.stopped:
        return f"Stopped after step {training.done}; what was learned is kept."
    return f"Trained for {training.steps} steps. The slider goes through them."


# One explorer per run of a cell: the same cell, run again, ends the training of its former run.

_of_cells: dict[str, list[tuple[str, "weakref.ref[AttentionExplorer]"]]] = {}


def _replace_older(explorer: AttentionExplorer) -> None:
    cell, run = _running()
    if not cell:
        return
    kept = []
    for of_run, reference in _of_cells.get(cell, []):
        older = reference()
        if older is not None and of_run == run:
            kept.append((of_run, reference))
        elif older is not None:
            older._leave()
    _of_cells[cell] = [*kept, (run, weakref.ref(explorer))]


def _running() -> tuple[str, str]:
    """The cell that runs, and which run of it this is; ("", "") outside a notebook.

    Most front ends send a cell's id; for the others the cell's text is used.
    """
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or not hasattr(shell, "get_parent"):
        return "", ""
    parent = shell.get_parent() or {}
    cell = parent.get("metadata", {}).get("cellId") or parent.get("content", {}).get("code", "")
    return str(cell), str(parent.get("header", {}).get("msg_id", ""))
