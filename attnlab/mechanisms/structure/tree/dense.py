"""The accumulation by the paper's three operations on tensors of nodes × leaves."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import SelfValues, checked
from attnlab.mechanisms.structure.tree.tables import Horizontal, Vertical, Weights, row
from attnlab.structures.tree_batch import NONE, TreeBatch


@checked
def dense(
    v: SelfValues, weights: Weights, vertical: Vertical, horizontal: Horizontal, *,
    structure: TreeBatch,
) -> SelfValues:  # fmt: skip
    """``naive`` by the paper's three operations on tensors of nodes × leaves."""
    structure.check_fits(len(v), v.shape[2], v.device)
    interpolated = note("interpolated", interpolate(v, vertical, horizontal, structure=structure))
    averages = note("averages", upward_average(interpolated, structure=structure))
    return replaced(v, structure.nodes, aggregate(averages, weights, structure=structure))


def interpolate(
    v: Tensor, vertical: Tensor, horizontal: Tensor, *, structure: TreeBatch
) -> Float[Tensor, "b h rows l e"]:
    """S + E: row 0 has the leaves; row i + 1 has node i, from the deepest to the root, with its
    embeddings in the columns of its own leaves, and zeros in the others (eq. 5 and 9)."""
    nodes, leaves = structure.nodes, structure.leaves
    covered = covers(structure)
    lengths = (
        at_places(structure.depth, leaves)[:, None] - at_places(structure.depth, nodes)[..., None]
    )
    places = (
        torch.arange(1, leaves.shape[1] + 1, device=v.device)
        - at_places(structure.start, nodes)[..., None]
    )
    embedded = row(vertical, lengths) + row(horizontal, places)
    rows = at_places(upcast(v), nodes)[..., None, :] + embedded[:, None]
    own = at_places(upcast(v), leaves).masked_fill((leaves == NONE)[:, None, :, None], 0)
    return torch.cat([own[:, :, None], rows.masked_fill(~covered[:, None, ..., None], 0)], 2)


def upward_average(
    interpolated: Float[Tensor, "b h rows l e"], *, structure: TreeBatch
) -> Float[Tensor, "b h m l e"]:
    """U: Ŝ, of node i and leaf j the mean over the branch between them, from the leaf up (eq. 6).

    In each column the nodes that are not zero are those above the leaf, the deepest first.
    """
    covered = covers(structure)
    lengths = covered.cumsum(1)[:, None, ..., None] + 1
    sums = interpolated[:, :, :1] + interpolated[:, :, 1:].cumsum(2)
    return (sums / lengths).masked_fill(~covered[:, None, ..., None], 0)


def aggregate(
    averages: Float[Tensor, "b h m l e"], weights: Tensor, *, structure: TreeBatch
) -> Float[Tensor, "b h m e"]:
    """V: of each node the weighted sum over its leaves, divided by their number (eq. 7)."""
    sums = torch.einsum("bhmle,bhl->bhme", averages, at_places(upcast(weights), structure.leaves))
    return sums / covers(structure).sum(2).clamp(min=1)[:, None, :, None]


def covers(structure: TreeBatch) -> Tensor:
    """(b, m, l): whether a leaf is below a node, the deepest node first."""
    nodes = structure.nodes
    ranks = torch.arange(structure.leaves.shape[1], device=nodes.device)
    start, stop = (at_places(x, nodes)[..., None] for x in (structure.start, structure.stop))
    return (start <= ranks) & (ranks < stop) & (nodes != NONE)[..., None]


def at_places(x: Tensor, places: Tensor) -> Tensor:
    """Gathers from x (b, n), (b, h, n) or (b, h, n, e) what stands at ``places`` (b, l), 0 where
    there is no place."""
    index = places.clamp(min=0)
    if x.ndim == 2:
        return x.gather(1, index)
    index = index[:, None].expand(-1, x.shape[1], -1)
    return x.gather(2, index if x.ndim == 3 else index[..., None].expand(-1, -1, -1, x.shape[3]))


def replaced(v: Tensor, nodes: Tensor, values: Tensor) -> Tensor:
    """v (b, h, n, e) with the ``values`` (b, h, m, e) at the places ``nodes`` (b, m)."""
    n = v.shape[2]
    index = nodes.where(nodes != NONE, n)[:, None, :, None].expand_as(values)
    wider = F.pad(v, (0, 0, 0, 1))  # one row more, for nodes that are padding
    return wider.scatter(2, index, values.to(v.dtype))[:, :, :n]
