"""The notes that an attnlab form makes while it is watched."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnlab.core.patterns import Pattern
from attnlab.core.probe import Notes
from attnlab.lens.axes import Axis, Layout, aligned
from attnlab.lens.snapshots import History, Roles, Snapshot
from attnlab.lens.trace.meanings import Found, Scores
from attnlab.lens.trace.tracer import Trace
from attnlab.lens.trace.weights import softmax_of

NO_WEIGHTS = (
    "this mechanism noted no weights, perhaps because it has none; "
    "attnlab.lens.mixing.mixing_matrix(module, x) gives the map it amounts to"
)

OF_A_CHOICE = ("selection", "branches", "gates")


@dataclass
class FormNotes:
    """The notes of one form since it noted its queries, and what the trace found meanwhile."""

    notes: Notes = field(default_factory=Notes)
    found: list[Found] = field(default_factory=list)
    owner: str | None = None
    """The path of the layer whose heads made the queries."""

    def calls(self) -> list[Found]:
        """Each attention call once: as the trace found it, or as the form noted it where it found
        none, or several softmaxes that the form makes one set of weights of."""
        found = self._calls()
        if len(found) == 1:
            found[0].choice = {n: self.notes.last(n) for n in OF_A_CHOICE if n in self.notes}
        return found

    def _calls(self) -> list[Found]:
        q, k, v = (self.notes.last(name) for name in ("queries", "keys", "values"))
        if not all(isinstance(x, Tensor) and x.dim() == 4 for x in (q, k, v)):
            return self.found
        same = [found for found in self.found if found.shape[:3] == tuple(q.shape[:3])]
        weights = self.notes.last("weights")
        if len(same) == 1 and isinstance(weights, Tensor) and weights.shape != same[0].shape:
            same = []  # it is one part of what the form mixes with, such as NSA's compressed branch
        if len(same) == 1 or (same and weights is None):
            return same
        return [_from_notes(self.notes, q, k, v)]

    def link(self, trace: Trace, weights: Any) -> None:
        """Noted weights come from the noted scores, whatever softmax made them."""
        scores = self.notes.last("scores")
        origin = trace.of(scores)
        if not isinstance(origin, Scores) or not isinstance(weights, Tensor):
            return
        if weights.shape != scores.shape:
            return
        made = softmax_of(origin, -1, Snapshot(weights, origin.layout))
        if made is not None:
            _mask(made.history, self.notes.last("mask"), origin.layout)
            trace.learn(weights, made)


def _from_notes(notes: Notes, q: Tensor, k: Tensor, v: Tensor) -> Found:
    """A form that calls neither PyTorch's attention nor a softmax that could be followed."""
    (b, g, n, m, d, e) = (Axis(x) for x in (*k.shape[:2], *q.shape[2:3], *k.shape[2:], v.shape[3]))
    heads = (g, Axis(q.shape[1] // k.shape[1]))
    history = History(factor=q.shape[-1] ** -0.5)
    layout = ((b,), heads, (n,), (m,))
    _mask(history, notes.last("mask"), layout)
    found = Found(
        "noted",
        Roles((b,), heads, (n,), (m,), (d,), (e,)),
        Snapshot(q, ((b,), heads, (n,), (d,))),
        Snapshot(k, ((b,), (g,), (m,), (d,))),
        Snapshot(v, ((b,), (g,), (m,), (e,))),
        history,
    )
    weights, lse = notes.last("weights"), notes.last("log_sum_exp")
    if isinstance(weights, Tensor) and tuple(weights.shape) == found.shape:
        found.weights = Snapshot(weights, layout)
    elif isinstance(lse, Tensor) and tuple(lse.shape) == found.shape[:3]:
        found.log_sum_exp = Snapshot(lse, layout[:3])
    else:
        found.missing = NO_WEIGHTS
    return found


def _mask(history: History, mask: Any, layout: Layout) -> None:
    if isinstance(mask, Pattern):
        history.pattern = mask
    elif isinstance(mask, Tensor):
        history.masks.append((Snapshot(mask, aligned(mask.shape, layout)), True))
