"""The accumulation along the path of each leaf to the root."""

import torch

from attnlab.core.precision import wide
from attnlab.core.shapes import SelfValues, checked
from attnlab.core.tree_batch import NONE, TreeBatch
from attnlab.mechanisms.structure.tree.tables import Horizontal, Vertical, Weights, row


@checked
def parallel(
    v: SelfValues, weights: Weights, vertical: Vertical, horizontal: Horizontal, *,
    structure: TreeBatch,
) -> SelfValues:  # fmt: skip
    """The same along the path of each leaf to the root, all leaves of all trees at once."""
    structure.check_fits(len(v), v.shape[2], v.device)
    paths, (b, h, n, e) = structure.paths, v.shape
    _, leaves, depth = paths.shape
    rows = wide(v).transpose(1, 2).reshape(b * n, h * e)
    first = torch.arange(b, device=v.device)[:, None] * n  # of each tree, among all rows
    own = (structure.leaves.clamp(min=0) + first).flatten()
    above = (paths.clamp(min=0) + first[..., None]).flatten()

    ranks = torch.arange(leaves, device=v.device)[:, None]
    places = ranks - structure.start.flatten()[above].view_as(paths) + 1
    lengths = torch.arange(1, depth + 1, device=v.device)
    embedded = row(vertical, lengths) + row(horizontal, places)
    sums = rows[above].view(b, leaves, depth, h, e) + embedded[..., None, :]
    sums = sums.cumsum(2) + rows[own].view(b, leaves, 1, h, e)
    w = wide(weights).transpose(1, 2).reshape(b * n, h)[own].view(b, leaves, 1, h)
    averages = sums * (w / (lengths + 1)[:, None])[..., None]

    nowhere = torch.where(paths.flatten() == NONE, b * n, above)  # what is past the root
    totals = rows.new_zeros(b * n + 1, h * e).index_add(
        0, nowhere, averages.flatten(0, 2).flatten(1)
    )
    count = (structure.stop - structure.start).clamp(min=1).flatten()[:, None]
    is_node = (structure.padding & ~structure.is_leaf).flatten()[:, None]
    replaced = torch.where(is_node, totals[:-1] / count, rows)
    return replaced.view(b, n, h, e).transpose(1, 2).to(v.dtype)
