"""Labels of pairs: clipped distances, and four labels for membership in a global token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.mechanisms.fixed.etc.structure import ETCOptions

CROSS = 4  # so many labels, the last ones, are not distances:
OWN_GLOBAL, OTHER_GLOBAL, OWN_LONG, OTHER_LONG = range(-CROSS, 0)

Labels = Float[Tensor, "h l d"] | None  # a vector for each label; None: all zero


def label_of_pairs(
    n: int, global_tokens: int, clip: int, owners: Int[Tensor, "#b n"]
) -> Int[Tensor, "#b n n"]:
    """The label of every pair, also of those that are not allowed."""
    i = torch.arange(n, device=owners.device)
    column, row, labels = i[None, :], i[:, None], 2 * clip + 1 + CROSS
    distance = (column - row).clamp(-clip, clip) + clip
    l2g = torch.where(owners[:, :, None] == column, OWN_GLOBAL, OTHER_GLOBAL) + labels
    g2l = torch.where(owners[:, None, :] == row, OWN_LONG, OTHER_LONG) + labels
    ids = torch.where((row >= global_tokens) & (column < global_tokens), l2g, distance)
    return torch.where((row < global_tokens) & (column >= global_tokens), g2l, ids)


def by_distance(label_scores: Tensor, rows: Tensor, columns: int) -> Tensor:
    """The scores of the labels of distances, for queries (…, r, labels) at positions ``rows`` and
    keys at columns 0, 1, …"""
    clip = (label_scores.shape[-1] - CROSS) // 2
    ids = (torch.arange(columns, device=label_scores.device) - rows).clamp(-clip, clip) + clip
    return label_scores.gather(-1, ids.expand(*label_scores.shape[:-1], columns))


def by_membership(label_scores: Tensor, is_part: Tensor, own: int, other: int) -> Tensor:
    """The score of the label ``own`` where one token is part of the other, else of ``other``."""
    return torch.where(is_part, label_scores[..., own, None], label_scores[..., other, None])


def validate_labels(labels: Tensor | None, part_of: Tensor | None, options: ETCOptions) -> None:
    if labels is not None and (labels.shape[-2] < CROSS + 1 or labels.shape[-2] % 2 == 0):
        raise ValueError(
            f"a clip of k needs 2k + 5 labels, so their number is odd and at least 5: got "
            f"{labels.shape[-2]}"
        )
    if part_of is None:
        return
    if labels is None and not options.own_only:
        raise ValueError("part_of does nothing without labels and with own_only=False")
    if torch.compiler.is_compiling() or part_of.is_meta:
        return
    if (part_of >= options.global_tokens).any():
        raise ValueError(
            f"part_of names the global token {int(part_of.max())}, but there are "
            f"{options.global_tokens}: 0 … {options.global_tokens - 1}, or −1 for none"
        )
