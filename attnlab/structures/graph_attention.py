"""Attention over the edges of graphs, given the scores: on all pairs of nodes, or edge by edge.

Every edge that leads to a node is one term of its softmax, so several edges from one node to
another are several terms; a node to which no edge leads gets zeros.
"""

from torch import Tensor

from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.softmax import masked_softmax
from attnlab.structures.edge_sums import collected
from attnlab.structures.graph_batch import GraphBatch


def over_pairs(scores: Tensor, v: Tensor, structure: GraphBatch) -> Tensor:
    """Scores (b, h, n, n), or (b, h, n, n, r) where those of parallel edges differ, and values
    (b, h, n, e): (b, h, n, e). Notes ``weights``."""
    slots = structure.slots
    if scores.ndim == 4:
        scores = scores[..., None].expand(*scores.shape, slots.shape[3])
    weights = masked_softmax(scores.flatten(-2), (slots >= 0).flatten(-2)[:, None])
    weights = note("weights", weights.unflatten(-1, slots.shape[2:]).sum(-1))
    return (weights @ upcast(v)).to(v.dtype)


def over_edges(scores: Tensor, v: Tensor, structure: GraphBatch) -> Tensor:
    """Scores (m, h), one for each edge and head. Notes ``edge_weights``, and ``weights`` too."""
    weights = note("edge_weights", structure.softmax(scores))
    note("weights", lambda: structure.spread(weights))
    out = collected(weights, of_tokens(upcast(v)), structure.by_ends)
    out = out.unflatten(0, (len(v), v.shape[2]))
    return out.transpose(1, 2).to(v.dtype)


def of_tokens(x: Tensor) -> Tensor:
    """(b, h, n, width) → (b · n, h, width): rows to which sources and targets point."""
    return x.transpose(1, 2).flatten(0, 1)
