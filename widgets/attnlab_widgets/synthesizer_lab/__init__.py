"""Is the dot product needed? Train variants of the Synthesizer and watch their maps change.

    SynthesizerLab()

Choose a task and one or two variants ("vanilla" is softmax attention), then train: both learn in
the background, one step each in turn, on the same batches and from the same seed, while the maps of
all their heads follow beside the loss. A slider in each view goes back through the recorded steps.

During a training it uses torch's global random generator and restores its state afterwards; draw
with a ``torch.Generator`` of your own meanwhile.
"""

import copy
import threading
from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets
import torch
from torch import Tensor

from attnlab import tasks as problems
from attnlab.core.arguments import check_list, check_size
from attnlab.core.integers import check_integer
from attnlab.core.markup import escape
from attnlab.core.suggest import choose
from attnlab.experiments.synthesizer import NAMES, TASKS, TRAINING, build
from attnlab.figures.drawing import Drawing
from attnlab.lens.record import Seen
from attnlab.lens.recorded_model import Snapshots
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
from attnlab.train import evaluate
from attnlab.train.in_turn import Learner, Training
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.attention_view.picture import beside
from attnlab_widgets.background import Throttled
from attnlab_widgets.messages import Line, alert, aside
from attnlab_widgets.toolbar import row_layout, slim
from attnlab_widgets.training_lab import EVERY, MOST_STEPS, TIGHT, TrainingLab, style_of
from attnlab_widgets.two_columns import HELP, PANELS, link, two_columns

NOTHING = "nothing"
TRY = {
    "copying": "Try random: where to look depends on the place alone.",
    "reversing": "Try random: the way back is longer at every step, but always the same.",
    "sorting": "Try random beside vanilla: where to look depends on all items.",
    "recall": "Try random beside vanilla: where to look depends on which key is asked for.",
    "induction": "Try random beside vanilla: what followed the last time this symbol was there?",
    "documentation": "Try random beside vanilla: real text, byte by byte.",
}


class Student(Snapshots):
    """One model: its weights at every recorded step, and its view; `Training` trains it."""

    def __init__(self, variant: str, task: Task, seed: int) -> None:
        self.variant, self._task = variant, task
        self.model = build(task, variant, seed).eval()
        super().__init__(self.model)
        row = task.batch("validation", 1, seed=0)
        self._shown, self.tokens = row.inputs, task.example(0).tokens
        self.maps: dict[int, Tensor] = {}
        self._seen: dict[int, Seen] = {}
        self.losses: list[tuple[int, float]] = []
        self.title, self.alert, self.found = Line(), Line(), ""
        self.view: AttentionView | None = None
        self.column = widgets.VBox([], layout=widgets.Layout(min_width="0", width="100%"))

    def learner(self) -> TinyTransformer:
        """A model of its own with the newest weights, to be trained elsewhere."""
        learner = copy.deepcopy(self.model)
        learner.load_state_dict(self.snapshots[self.newest])
        return learner

    def look(self) -> None:
        """The maps of all recorded steps, and the view brought up to date."""
        known, snapshots, seen = self.maps, self.snapshots, self._seen
        self._seen = {
            step: seen[step] if step in seen else self._looked(snapshots[step])
            for step in sorted(snapshots)
        }
        self.maps = {step: torch.stack([one.weights[0] for one in found])
                     for step, found in self._seen.items()}  # fmt: skip
        if self.view is None or list(self.maps) != list(known):
            self._show(list(known))
        self.title.value = self._headline()

    def _headline(self) -> str:
        said = f"{self.variant}, after {max(self.maps)} steps"
        found = f" <small>{escape(self.found)}</small>" if self.found else ""
        return f"<h3>{said}{found}</h3>"

    def tell(self, found: str) -> None:
        """What an evaluation has found, beside the name."""
        self.found = found
        self.title.value = self._headline()

    @torch.no_grad()
    def _looked(self, weights: Mapping[str, Tensor]) -> Seen:
        """The attention of one validation row."""
        self.model.load_state_dict(weights)
        with watch(self.model) as seen:
            self.model(self._shown)
        return seen

    def _show(self, known: list[int]) -> None:
        """``known`` are the steps that the view has now."""
        source: Any = dict(self._seen)
        if len(self._seen) == 1:
            source = self._seen[self.newest]
        if self.view is None:
            self.view = AttentionView(source, self.tokens)
            self.view.panels, self.view.bar = list(PANELS), False
            self.column.children = (self.title, self.alert, self.view)
            return
        chosen = known[self.view.step] if self.view.step < len(known) - 1 else max(self.maps)
        self.view.show(source, self.tokens)
        # A reader who chose an earlier step stays there; otherwise the newest is shown.
        self.view.step = sum(step <= chosen for step in self.maps) - 1

    def score(self) -> str:
        """Loss and accuracy of the newest weights, as a sentence."""
        self.model.load_state_dict(self.snapshots[self.newest])
        found = evaluate(self.model, self._task, batches=4)
        return f"{found.accuracy:.0%} right, loss {found.loss:.2f} on new sequences"


class SynthesizerLab(TrainingLab):
    """One or two variants on one task, their maps while they learn, and the loss.

    ``variants``  one or two of "vanilla" and the variants of the Synthesizer
    ``task``      "copying", "reversing", "sorting", "recall", "induction" or "documentation"
    ``steps``     how long a training lasts
    ``seed``      of weights and batches, the same for both

    All that the buttons do can be called: `train`, `pause`, `resume`, `stop`, `start_over`, `wait`
    until all is done and shown, `close`. ``students`` hold the models and their ``.maps`` by step.
    """

    students: tuple[Student, ...] = ()

    def __init__(
        self,
        variants: tuple[str, ...] = ("random", "vanilla"),
        task: str = "sorting",
        *,
        steps: int = 200,
        seed: int = 0,
    ) -> None:
        chosen = _checked(variants)
        choose("task of the SynthesizerLab", task, TASKS)
        steps = check_size("steps", steps, MOST_STEPS, "steps")
        seed = check_integer("`seed`", seed, at_least=0)
        self._seed, self._rounds = seed, 0
        self._drawing = threading.RLock()
        self._looker = Throttled(self._draw, EVERY)
        self._controls(chosen, task, steps)
        self._columns = two_columns()
        self._begin()
        super().__init__(self._parts())
        self.add_class("attnlab-synthesizer")

    # What can be done

    def _new_training(self) -> Training | None:
        if not self.students:
            self._tell("Nothing to train: choose a variant.")
            return None
        self._rounds += 1
        options = {**TRAINING, "seed": self._seed + self._rounds - 1, "device": "cpu"}
        for student in self.students:
            student.alert.value = ""
            student.tell("")
        return Training(self.students, self._task, self.steps.value, self._ask, **options)

    def start_over(self) -> None:
        """The models as they were before any training."""
        self._leave()
        self._begin()
        self._tell("The models are as they were before training.")

    def _leave(self) -> None:
        if self._training is not None:
            self._training.stop()
            self._training.join(60)

    # The page

    def _controls(self, chosen: tuple[str, ...], task: str, steps: int) -> None:
        named = {"layout": widgets.Layout(flex="1 1 150px", width="auto"), "style": TIGHT}
        self.task = widgets.Dropdown(options=list(TASKS), value=task, description="Task", **named)
        self.first = widgets.Dropdown(
            options=list(NAMES), value=chosen[0], description="First", **named
        )
        self.second = widgets.Dropdown(
            options=[NOTHING, *NAMES], value=chosen[1], description="Second", **named
        )
        self._training_controls(steps)
        for menu in (self.task, self.first, self.second):
            menu.observe(self._chosen, "value")

    def _parts(self) -> list[widgets.Widget]:
        frequent = [self.task, self.first, self.second, self.button, self.stopper]
        more = [self.steps, self.restorer, self._note]
        told = [self.step, self.progress, self._numbers, self._status]
        return [
            style_of("attnlab-synthesizer"),
            *slim(frequent, more, HELP),
            widgets.HBox(told, layout=row_layout()),
            self._alert,
            self._columns,
        ]

    def _to_step(self, step: int) -> None:
        """Show in every view the maps of that step of the training."""
        for student in self.students:
            if student.view is not None:
                student.view.step = sum(known <= step for known in student.maps) - 1

    def _chosen(self, _change: Any) -> None:
        self._leave()
        self._begin()
        self._tell("")

    def _begin(self) -> None:
        """New models of what is chosen, and their maps."""
        with self._drawing:
            self._training, self._rounds = None, 0
            self._task = problems.task(self.task.value, **TASKS[self.task.value])
            variants = [self.first.value, self.second.value]
            self.students = tuple(
                Student(name, self._task, self._seed) for name in variants if name != NOTHING
            )
            self.progress.value, self._numbers.value = 0, ""
            self._note.value = aside(TRY[self.task.value])
            self._tell("")
            self._draw()
            self._columns.children = tuple(student.column for student in self.students)
            link([one.view for one in self.students if one.view is not None])

    def _lock(self, locked: bool) -> None:
        for control in (self.task, self.first, self.second, self.steps):
            control.disabled = locked

    # Drawing, in the background

    def _draw(self) -> None:
        try:
            with self._drawing:
                training = self._training
                for student in self.students:
                    student.look()
                self.step.offer({step for one in self.students for step in one.maps})
                if training is not None:
                    self._count(training)
                    if training.over:
                        self._finish(training)
            self._alert.value = ""
        except Exception as error:  # no other code would report it
            self._alert.value = alert("The maps could not be drawn.", error)

    def _finish(self, training: Training) -> None:
        """Once after a training has ended."""
        self._training = None
        for student, learner in zip(self.students, training.learners, strict=True):
            student.losses += learner.losses
            if learner.error is not None:
                student.alert.value = alert("This model stopped learning.", learner.error)
            else:
                student.tell(student.score())
        done = "Stopped" if training.stopped and training.done < training.steps else "Done"
        self._tell(f"{done} after {training.done} steps; what was learned is kept.")

    def _count(self, training: Training) -> None:
        learning = zip(self.students, training.learners, strict=True)
        named = [(student.variant, at, of) for at, (student, of) in enumerate(learning)]
        self._show_progress(training, named, _progress_text(named))

    def still(self) -> Drawing | None:
        """The heads of both models, and of each the chosen one."""
        views = [(f"{one.variant}, after {one.newest} steps", one.view) for one in self.students]
        return beside(f"The Synthesizer, {self.task.value}", views)

    def __repr__(self) -> str:
        """The text shown where widgets are not."""
        names = " and ".join(student.variant for student in self.students)
        return f"<SynthesizerLab: {names} on {self.task.value}, {self.state}>"


def _progress_text(named: list[tuple[str, int, Learner]]) -> str:
    losses = [
        f"{name} {of.loss:.2f}{' (dashed)' if at else ''}"
        for name, at, of in named
        if of.loss is not None
    ]
    return f"Loss: {', '.join(losses)}" if losses else ""


def _checked(variants: tuple[str, ...]) -> tuple[str, ...]:
    """Two names, the second perhaps NOTHING; refused in a sentence."""
    given = (variants,) if isinstance(variants, str) else (*check_list("variants", variants),)
    if not 1 <= len(given) <= 2:
        raise ValueError(
            f"variants are one or two names, such as ('random', 'vanilla'), got {given!r}"
        )
    for name in given:
        choose("variant", name, dict.fromkeys(NAMES))
    return (*given, NOTHING)[:2]
