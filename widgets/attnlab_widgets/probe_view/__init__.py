"""What does a model know, and after which layer? Probes of several questions beside their controls.

    known = {question: known_where(states, examples, …) for question in …}
    ProbeView(known)                                        # or a list for each question: seeds

A row for each question: right answers against the layers that the probe reads. The band is what the
controls reach, random weights and shuffled labels; what stands above it is the selectivity. A saved
file stays alive.

Tenney, Das, Pavlick. BERT Rediscovers the Classical NLP Pipeline. ACL 2019, arXiv:1905.05950.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from attnlab.figures.drawing import Drawing
from attnlab.lens.known_where import Known
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error, check_range
from attnlab_widgets.probe_view.picture import picture
from attnlab_widgets.probe_view.study import ORDERS, study_of


class ProbeView(BaseWidget):
    """Cumulative probes of several questions to one model, each with its controls.

    ``known``  {question: what ``attnlab.lens.known_where`` found, or a list of it, one for each
               seed}, at most 16 questions
    ``task``   the number of the chosen question, as given
    ``layer``  the last layer that the chosen probe reads, 0 for the embedding alone; unless given,
               task and layer of the largest selectivity
    ``order``  of the rows: "as given", by "expected layer", or by "selectivity" of the last layer

    ``task``, ``layer`` and ``order`` can be read and set. ``found`` holds the numbers.
    """

    _esm = STATIC / "probe_view.js"

    task = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    order = Choice(ORDERS, ORDERS[0]).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        known: Mapping[str, Known | Sequence[Known]],
        *,
        task: int | None = None,
        layer: int | None = None,
        order: str = "as given",
        theme: str = "auto",
    ) -> None:
        self.found = study_of(known)
        super().__init__(_told=self.found.sent(), theme=theme)
        first, at = self.found.telling()
        self.task = first if task is None else task
        self.layer = at if layer is None else layer
        self.order = order

    # What follows from the state

    def rows(self) -> list[str]:
        """The questions from the top."""
        return [self.found.tasks[at].name for at in self.found.order(self.order)]

    def description(self) -> str:
        """What the chosen probe has right beyond its control, and where the answer comes in."""
        return self.found.tasks[self.task].sentence(self.layer)

    def still(self) -> Drawing:
        """All rows, and the sentence of the chosen probe."""
        return picture(self)

    def __repr__(self) -> str:
        return f"ProbeView: {self.description()}"

    # What may be set

    @traitlets.validate("task")
    def _a_task(self, proposal: Any) -> int:
        return as_trait_error(check_range, "task", proposal["value"], len(self.found.tasks))

    @traitlets.validate("layer")
    def _a_layer(self, proposal: Any) -> int:
        return as_trait_error(check_range, "layer", proposal["value"], self.found.layers)
