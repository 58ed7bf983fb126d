"""One model of the explorer: its menus, its weights at every recorded step, and its view."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
import traitlets
from torch import Tensor

from attnlab.lens.recorded_model import Maps, RecordedModel
from attnlab.train.in_turn import Learner
from attnlab_widgets.attention_explorer.models import (
    LANGUAGE,
    causal_cards,
    recorded_model,
    shipped,
)
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.messages import Line, alert, aside
from attnlab_widgets.two_columns import PANELS

NOTHING = "nothing"
TRAINED, UNTRAINED = "trained", "untrained"
LIVE_BYTES = 2_000_000
"""While it trains, recorded steps are sent along with the newest one as long as they are small."""
PATIENCE = 1.0
"""Seconds after which those maps that are ready are shown, though others are missing."""
LINKED = ("layer", "head", "query", "key", "threshold", "top_k", "hide_first", "value_weighted")


class Side:
    """The controls of one model and the place where its view stands.

    ``recorded`` is None while nothing is chosen, or when what was chosen cannot be built.
    """

    def __init__(
        self,
        name: str,
        mechanism: str | None,
        trained: bool,
        options: Mapping[str, Any],
        changed: Callable[[], None],
        *,
        optional: bool,
        task: str,
    ) -> None:
        self.task = task
        self.name, self._options, self._changed = name, dict(options), changed
        self.recorded: RecordedModel | None = None
        self.losses: list[tuple[int, float]] = []
        self.steps: list[int] = []
        self.view: AttentionView | None = None
        self.other: Side | None = None
        self._showing = False
        self._pinned: int | None = None
        self._maps: dict[int, Maps] = {}
        self._of: tuple[Any, ...] = ()
        self._seen: tuple[Any, ...] = ()
        self._controls(mechanism, trained, optional)
        self._build()

    def _controls(self, mechanism: str | None, trained: bool, optional: bool) -> None:
        none = [("none", NOTHING)] if optional else []
        self.mechanism = widgets.Dropdown(
            options=[*none, *((card.title, card.name) for card in causal_cards())],
            value=mechanism or NOTHING,
            description=self.name,
            layout=widgets.Layout(flex="1 1 130px", width="auto", min_width="0"),
            style={"description_width": "initial"},
        )
        self.weights = widgets.Dropdown(
            options=[UNTRAINED],
            description="Weights",
            layout=widgets.Layout(width="150px"),
            style={"description_width": "initial"},
        )
        self.learns = widgets.Checkbox(
            description="train",
            indent=False,
            layout=widgets.Layout(width="max-content"),
        )
        self._offer(trained)
        self.row = widgets.HBox(
            [self.mechanism, self.weights, self.learns],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="4px 8px"),
        )
        self._title, self._remark, self._alert = Line(), Line(), Line()
        self._place = widgets.VBox([], layout=widgets.Layout(width="100%"))
        self.column = widgets.VBox(
            [self._title, self._remark, self._alert, self._place],
            layout=widgets.Layout(min_width="0", width="100%"),
        )
        self.mechanism.observe(self._chosen, "value")
        self.weights.observe(self._rebuilt, "value")

    @property
    def chosen(self) -> bool:
        return self.mechanism.value != NOTHING

    def lock(self, locked: bool) -> None:
        """The menus are disabled while the model learns."""
        for control in (self.mechanism, self.weights, self.learns):
            control.disabled = locked

    def _offer(self, trained: bool) -> None:
        possible = self.task == LANGUAGE and self.mechanism.value in shipped()
        wanted = TRAINED if possible and trained else UNTRAINED
        self.weights.options = [TRAINED, UNTRAINED] if possible else [UNTRAINED]
        self.weights.value = wanted
        for control in (self.weights, self.learns):
            control.layout.display = "flex" if self.chosen else "none"
        self.learns.value = wanted == UNTRAINED

    def _chosen(self, _change: Any) -> None:
        self.weights.unobserve(self._rebuilt, "value")
        self._offer(trained=True)
        self.weights.observe(self._rebuilt, "value")
        self._rebuilt()

    def _rebuilt(self, _change: Any = None) -> None:
        self.learns.value = self.weights.value == UNTRAINED
        self._build()
        self._changed()

    def _build(self) -> None:
        self.recorded, self.losses, self._pinned = None, [], None
        self._alert.value = ""
        if not self.chosen:
            return
        try:
            trained = self.weights.value == TRAINED
            name, options = self.mechanism.value, self._options
            self.recorded = recorded_model(name, trained, options, task=self.task)
        except Exception as error:  # a mechanism may fail in any way; the message is shown
            self._alert.value = alert(f"{self.called} cannot be built here.", error)

    def turn_to(self, task: str) -> None:
        """Models for another task, from the start."""
        self.task = task
        self.weights.unobserve(self._rebuilt, "value")
        self._offer(trained=False)
        self.weights.observe(self._rebuilt, "value")
        self._build()

    def start_over(self) -> None:
        """Back to the weights before any training."""
        if self.recorded is not None:
            self.recorded.snapshots = {0: self.recorded.snapshots[0]}
        self._alert.value, self._pinned, self.losses = "", None, []

    def begin(self) -> None:
        """Clear old messages when a training starts."""
        self._alert.value = ""

    def learned(self, learner: Learner) -> None:
        """Update the controls after a training has ended."""
        self.losses += learner.losses
        if learner.error is not None:
            self._alert.value = alert(
                f"The {self.name.lower()} model stopped learning.", learner.error
            )

    @property
    def called(self) -> str:
        """The title of the mechanism."""
        titles = {name: title for title, name in self.mechanism.options}
        return str(titles[self.mechanism.value])

    # Drawing: by one thread at a time

    def draw(self, ids: Tensor, tokens: list[str], training: bool) -> bool:
        """Bring the view up to date; False if some recorded steps are still to be looked at."""
        recorded = self.recorded
        if recorded is None:
            self._place.children = ()
            self._hide_column(not self.chosen)
            self._title.value = self._remark.value = ""
            self._seen, self.steps = (), []
            return True
        self._hide_column(False)
        of = (id(recorded), tuple(ids.tolist()))
        patience = 0.0 if of != self._of and len(recorded.snapshots) > 2 else PATIENCE
        if of != self._of:
            self._of, self._maps = of, {}
        wanted = self._wanted(recorded, len(ids), training)
        self._look(recorded, ids, wanted, patience)
        self._show(recorded, tokens, (of, tuple(self._maps)))
        return all(step in self._maps for step in wanted)

    def _hide_column(self, hidden: bool) -> None:
        """Without a second model the first has the whole width."""
        self.column.layout.display = "none" if hidden else "flex"

    def _wanted(self, recorded: RecordedModel, n: int, training: bool) -> list[int]:
        """The recorded steps: the one on view first, then newest first."""
        pinned = self._pinned
        steps = sorted(recorded.snapshots, key=lambda step: (step == pinned, step), reverse=True)
        config = recorded.model.config
        each = config["layers"] * config["heads"] * n**2
        return steps[: max(1, LIVE_BYTES // each)] if training else steps

    def _look(
        self, recorded: RecordedModel, ids: Tensor, wanted: list[int], patience: float
    ) -> None:
        started = time.monotonic()
        ready = {step: found for step, found in self._maps.items() if step in wanted}
        for step in wanted:
            if step not in ready:
                ready[step] = recorded.look(ids, step)
                if time.monotonic() - started >= patience:
                    break
        self._maps = dict(sorted(ready.items()))

    def _show(self, recorded: RecordedModel, tokens: list[str], seen: tuple[Any, ...]) -> None:
        if seen == self._seen:
            return
        source: Any = {f"step {step}": found.source for step, found in self._maps.items()}
        if list(self._maps) == [0]:
            source = self._maps[0].source
        self._bring(source, tokens)
        self._title.value = f"<h3>{self._headline(recorded)}</h3>"
        self._remark.value = aside(next(iter(self._maps.values())).remark)
        self._seen = seen

    def _bring(self, source: Any, tokens: list[str]) -> None:
        """Update the view; a step chosen by the reader stays, otherwise the newest is shown."""
        self._showing, self.steps = True, list(self._maps)
        try:
            if self.view is None:
                self.view = AttentionView(source, tokens)
                self.view.panels, self.view.bar = list(PANELS), False
                self.view.observe(self._moved, [*LINKED, "step"])
            else:
                self.view.show(source, tokens)
            if self._pinned is not None:
                self.view.step = self._place_of(self._pinned)
        finally:
            self._showing = False
        self._place.children = (self.view,)

    def _headline(self, recorded: RecordedModel) -> str:
        return f"{self.called} <small>{_state(recorded)}</small>"

    @property
    def said(self) -> str:
        """Mechanism and training in a few words."""
        return self.called + ("" if self.recorded is None else f", {_state(self.recorded)}")

    def go_to(self, step: int) -> None:
        """Show the recorded step that is the last until then."""
        if self.view is not None and self.steps:
            self.view.step = self._place_of(step)

    def _place_of(self, step: int) -> int:
        return max((at for at, known in enumerate(self.steps) if known <= step), default=0)

    # What is chosen in one view is chosen in the other

    def _moved(self, change: Any) -> None:
        if self.other is not None and not self._showing:
            step = self.steps[change["new"]] if change["name"] == "step" else None
            if step is not None:
                self._pinned = step if step < self.steps[-1] else None
            self.other.follow(change["name"], change["new"], step)

    def follow(self, name: str, value: Any, step: int | None) -> None:
        """Repeat in this view what was chosen in the other, where possible."""
        if self.view is None or not self.chosen or (name == "step" and len(self.steps) < 2):
            return
        try:
            setattr(self.view, name, value if step is None else self._place_of(step))
        except traitlets.TraitError:
            return  # for example, this model has no such head: the view is unchanged

    def forget(self) -> None:
        """Free the recorded weights and maps."""
        if self.recorded is not None:
            snapshots = self.recorded.snapshots
            self.recorded.snapshots = {step: snapshots[step] for step in (0, self.recorded.newest)}
        self._maps = {}


def _state(recorded: RecordedModel) -> str:
    start = "trained" if recorded.trained else "untrained"
    steps = recorded.newest
    return f"{start}, then {steps} steps of training" if steps else start
