"""The accumulation of all nodes at once, without the empty entries of nodes × leaves."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import upcast
from attnlab.core.shapes import SelfValues, checked
from attnlab.mechanisms.structure.tree.shares import by_shares
from attnlab.mechanisms.structure.tree.tables import Horizontal, Vertical, Weights, row
from attnlab.structures.tree_batch import NONE, TreeBatch

SHORT = 20
"""Nodes above a leaf, up to which it is faster to go along all paths."""


@checked
def parallel(
    v: SelfValues, weights: Weights, vertical: Vertical, horizontal: Horizontal, *,
    structure: TreeBatch,
) -> SelfValues:  # fmt: skip
    """``naive`` for all nodes at once: along the paths of the leaves where these are short, else by
    a matrix of the shares of all tokens."""
    structure.check_fits(len(v), v.shape[2], v.device)
    if not structure.paths.numel():
        return v  # no tree, or leaves alone
    compute = along_paths if structure.paths.shape[2] <= SHORT else by_shares
    return compute(v, weights, vertical, horizontal, structure)


def along_paths(
    v: Tensor, weights: Tensor, vertical: Tensor, horizontal: Tensor, structure: TreeBatch
) -> Tensor:
    """Each leaf takes its path to the root, and gives to every node on it."""
    b, h, n, e = v.shape
    values = upcast(v).transpose(1, 2).reshape(b * n, h * e)
    leaves, above, nodes = _places(structure)
    depth = above.shape[1]
    w = upcast(weights).transpose(1, 2).reshape(b * n, h)[leaves]

    on_branch = torch.cat([leaves[:, None], above], 1)  # a leaf, and what is above it
    x = values.index_select(0, on_branch.flatten()) + _horizontal(horizontal, structure, h)
    x = x.view(-1, depth + 1, h, e) * w[:, None, :, None]
    averages = _averages(x.flatten(2)).flatten(0, 1)  # w_j Ŝ_ij without the vertical embeddings
    totals = averages.new_zeros(b * n + 1, h * e).index_add(0, nodes.flatten(), averages)

    lengths = torch.arange(1, depth + 1, device=v.device)
    of_length = (nodes * depth + lengths - 1).flatten()  # a node, and how far above the leaf it is
    weighted = w[:, None].expand(-1, depth, -1).flatten(0, 1)
    counts = w.new_zeros((b * n + 1) * depth, h).index_add(0, of_length, weighted)
    of_branch = row(vertical, lengths).cumsum(0) / (lengths + 1)[:, None]
    embedded = counts.view(-1, depth, h).mT @ of_branch

    below = (structure.stop - structure.start).clamp(min=1).flatten()[:, None]
    is_node = (structure.padding & ~structure.is_leaf).flatten()[:, None]
    gathered = (totals + embedded.flatten(1))[:-1] / below
    return torch.where(is_node, gathered, values).view(b, n, h, e).transpose(1, 2).to(v.dtype)


def _places(
    structure: TreeBatch,
) -> tuple[Int[Tensor, "l"], Int[Tensor, "l y"], Int[Tensor, "l y"]]:
    """Among all b · n tokens: the leaves of all trees; what is above each; and the same again,
    b · n where a path has ended, for what shall be dropped."""
    b, n = structure.padding.shape
    first = torch.arange(b, device=structure.padding.device)[:, None] * n
    leaves = (structure.leaves.clamp(min=0) + first).flatten()
    above = (structure.paths.clamp(min=0) + first[..., None]).flatten(0, 1)
    return leaves, above, above.where(structure.paths.flatten(0, 1) != NONE, b * n)


def _averages(x: Float[Tensor, "l y_1 he"]) -> Float[Tensor, "l y he"]:
    """Row p is the mean of rows 0 to p + 1: of a leaf and the first p + 1 nodes above it.

    One small matrix: the gradient of a running sum would turn the tensor round twice.
    """
    length = x.shape[1]
    ones = x.new_ones(length - 1, length).tril(1)
    return (ones / ones.sum(1, keepdim=True)) @ x


def _horizontal(table: Tensor, structure: TreeBatch, heads: int) -> Float[Tensor, "places he"]:
    """The vectors of each leaf's places below the nodes on its path; zeros for the leaf itself."""
    start = structure.start.gather(1, structure.paths.clamp(min=0).flatten(1))
    ranks = torch.arange(structure.paths.shape[1], device=table.device)[:, None]
    places = (ranks - start.view_as(structure.paths) + 1).clamp(1, len(table))
    wider = F.pad(upcast(table), (0, 0, 1, 0)).repeat(1, heads)
    return F.embedding(F.pad(places, (1, 0)).flatten(), wider)
