"""Where did an answer of many steps go wrong?

    ErrorGraph(computation, stated)            # stated: a value for each computed node
    ErrorGraph.of(task, question, tokens)      # what a model has written after a question

The computation graph of one answer: each value that was stated is a point of its kind (correct,
restored, local, propagated), and what follows from a wrong value is drawn as such. A saved file
stays alive.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, section 3.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from attnlab.core.integers import check_integer
from attnlab.figures.drawing import Drawing
from attnlab.structures.computation import Computation
from attnlab.tasks.worked import Worked
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, check_range
from attnlab_widgets.error_graph import study, words
from attnlab_widgets.error_graph.picture import picture

MOST_NODES = 150


class ErrorGraph(BaseWidget):
    """The computation of an answer, each stated value judged.

    ``computation``  a ``Computation`` of at most 150 nodes, inputs included
    ``stated``       {name: value} for each computed node; None where no value could be read. Inputs
                     may be stated too, as a model has copied them
    ``asked``        the question, in words
    ``node``         the name of the node that is chosen at first; unless given the first step that
                     went wrong by itself, or the last one

    ``node`` can be read and set; it is the number of a node in the order of the computation, whose
    names are in ``names``, and their kinds in ``kinds``.
    """

    _esm = STATIC / "error_graph.js"

    node = traitlets.Int(0).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        computation: Computation,
        stated: Mapping[str, int | None],
        *,
        asked: str = "",
        node: str | None = None,
        theme: str = "auto",
    ) -> None:
        if not isinstance(computation, Computation):
            raise TypeError(
                f"`computation` should be a Computation, got a {type(computation).__name__}"
            )
        if not isinstance(asked, str):
            raise TypeError(f"`asked` should be a text, got {asked!r}")
        if not 1 <= len(computation.steps) <= MOST_NODES:
            raise ValueError(
                f"`computation` should have 1 to {MOST_NODES} nodes, got {len(computation.steps)}"
            )
        values = _checked(stated)
        self.names = list(computation.steps)
        judged = computation.judged(values)
        self.kinds = [judged.get(name, study.GIVEN) for name in self.names]
        told = study.told(computation, values, self.kinds, asked)
        super().__init__(_told=told, theme=theme)
        self.node = self._start(node)

    @classmethod
    def of(
        cls, task: Worked, question: Sequence[int], tokens: Any, **given: Any
    ) -> "ErrorGraph":  # fmt: skip
        """What a model has written after a question of a task with ``scratchpad=True``.

        ``tokens``  those after the question
        ``given``   any of the options above
        """
        if not isinstance(task, Worked) or not task.scratchpad:
            raise TypeError(
                "`task` should be one with scratchpad=True, such as "
                f"SpacedSums(scratchpad=True), got {task!r}"
            )
        asked = " ".join(task.tokens(task.asked(question)))
        stated = task.stated(question, tokens)
        return cls(task.computation(question), stated, **{"asked": asked, **given})

    def _start(self, node: str | None) -> int:
        if node is None:
            broke: int | None = self._told["broke"]
            return len(self.names) - 1 if broke is None else broke
        if node not in self.names:
            known = ", ".join(self.names[:5])
            raise ValueError(f"`node` should be a name, such as {known}, got {node!r}")
        return self.names.index(node)

    def description(self) -> str:
        """How many steps are of each kind, and what happened at the chosen node."""
        return words.announcement(self._told, self.node)

    def still(self) -> Drawing:
        """The graph, the chosen node with a ring."""
        return picture(self)

    def __repr__(self) -> str:
        return f"ErrorGraph: {self.description()}"

    @traitlets.validate("node")
    def _a_node(self, proposal: Any) -> int:
        return as_trait_error(check_range, "node", proposal["value"], len(self.names))


def _checked(stated: Any) -> dict[str, Any]:
    if not isinstance(stated, Mapping):
        raise TypeError(
            f"`stated` should have a value for each name, {{'best 1': 8}}, got {stated!r}"
        )
    return {
        name: None if value is None else check_integer(f"`stated` of {name!r}", value)
        for name, value in stated.items()
    }
