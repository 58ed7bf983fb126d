"""The accumulation as a matrix: the new value of a node is linear in the values of its subtree."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import upcast
from attnlab.mechanisms.structure.tree.dense import at_places, covers, replaced
from attnlab.mechanisms.structure.tree.tables import row
from attnlab.structures.tree_batch import NONE, TreeBatch


def by_shares(
    v: Tensor, weights: Tensor, vertical: Tensor, horizontal: Tensor, structure: TreeBatch
) -> Tensor:
    """P_ij = w_j / (|L_i| (1 + |B_ij|)) is the weight of leaf j in node i; the weight of an inner
    node t is the sum over its leaves, as it stands on the branches to them."""
    (b, h, n), leaves = v.shape[:3], structure.leaves.shape[1]
    covered = covers(structure)
    lengths = _lengths(structure).where(covered, 1)
    w = at_places(upcast(weights), structure.leaves).transpose(1, 2)
    counts = ((lengths + 1) * covered.sum(2, keepdim=True).clamp(min=1)).to(w.dtype)
    shares = w[..., None] * (covered / counts).mT[:, :, None]  # (b, l, h, m)

    first = torch.arange(b, device=v.device)[:, None] * (leaves + 1)
    sums = F.pad(shares.cumsum(1), (0, 0, 0, 0, 1, 0)).flatten(0, 1).flatten(1)
    stop, start = ((x + first).flatten() for x in (structure.stop, structure.start))
    of_span = sums.index_select(0, stop) - sums.index_select(0, start)
    of_tokens = of_span.view(b, n, h, -1) * _inside(structure)[:, :, None]
    gathered = of_tokens.permute(0, 2, 3, 1) @ upcast(v).masked_fill(_padded(structure), 0)

    embedded = shares.permute(0, 3, 2, 1) @ _embedded(vertical, horizontal, lengths, structure)
    return replaced(v, structure.nodes, gathered + embedded.transpose(1, 2))


def _lengths(structure: TreeBatch) -> Int[Tensor, "b m l"]:
    """The nodes on the branch from each node to each leaf, where there is one."""
    below = at_places(structure.depth, structure.leaves)[:, None]
    return below - at_places(structure.depth, structure.nodes)[..., None]


def _inside(structure: TreeBatch) -> Bool[Tensor, "b n m"]:
    """Whether each token belongs to the subtree of each node."""
    nodes, n = structure.nodes, structure.padding.shape[1]
    within = structure.below.mT.gather(2, nodes.clamp(min=0)[:, None].expand(-1, n, -1))
    return within & (nodes != NONE)[:, None]


def _padded(structure: TreeBatch) -> Bool[Tensor, "b 1 n 1"]:
    return ~structure.padding[:, None, :, None]


def _embedded(
    vertical: Tensor, horizontal: Tensor, lengths: Tensor, structure: TreeBatch
) -> Float[Tensor, "b m l e"]:
    """The sum of the embeddings on the branch from each node to each leaf."""
    (b, leaves, depth), paths = structure.paths.shape, structure.paths
    ranks = torch.arange(leaves, device=paths.device)
    start = at_places(structure.start, paths.flatten(1)).view_as(paths)
    levels = torch.arange(1, depth + 1, device=paths.device)
    each = row(vertical, levels) + row(horizontal, ranks[:, None] - start + 1)
    first = torch.arange(b, device=paths.device)[:, None, None] * leaves
    places = (first + ranks) * depth + lengths - 1  # (b, m, l), among all leaves and levels
    sums = each.cumsum(2).flatten(0, 2)
    return sums.index_select(0, places.flatten()).view(*places.shape, -1)
