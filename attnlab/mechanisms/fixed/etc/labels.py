"""Labels of pairs: clipped distances, and four for what is part of what."""

import torch
from jaxtyping import Int
from torch import Tensor

CROSS = 4  # labels beside the distances


def label_of_pairs(
    n: int, global_tokens: int, clip: int, owners: Int[Tensor, "#b n"]
) -> Int[Tensor, "#b n n"]:
    """The label of every pair, also of those that nobody may see."""
    i = torch.arange(n, device=owners.device)
    column, row = i[None, :], i[:, None]
    distance = (column - row).clamp(-clip, clip) + clip
    up = torch.where(owners[:, :, None] == column, 0, 1) + 2 * clip + 1
    down = torch.where(owners[:, None, :] == row, 2, 3) + 2 * clip + 1
    ids = torch.where((row >= global_tokens) & (column < global_tokens), up, distance)
    return torch.where((row < global_tokens) & (column >= global_tokens), down, ids)


def by_distance(told: Tensor, rows: Tensor, columns: int) -> Tensor:
    """What queries (…, r, labels) at positions ``rows`` say to the distance of columns 0, 1, …"""
    clip = (told.shape[-1] - CROSS) // 2
    ids = (torch.arange(columns, device=told.device) - rows).clamp(-clip, clip) + clip
    return told.gather(-1, ids.expand(*told.shape[:-1], columns))


def validate_labels(
    labels: Tensor | None, part_of: Tensor | None, global_tokens: int, own_only: bool
) -> None:
    if labels is not None and (labels.shape[-2] < CROSS + 1 or labels.shape[-2] % 2 == 0):
        raise ValueError(
            f"a clip of k needs 2k + 5 labels, so their number is odd and at least 5: got "
            f"{labels.shape[-2]}"
        )
    if part_of is None:
        return
    if labels is None and not own_only:
        raise ValueError("part_of does nothing without labels and with own_only=False")
    if not torch.compiler.is_compiling() and (part_of >= global_tokens).any():
        raise ValueError(
            f"part_of names the global token {int(part_of.max())}, but there are {global_tokens}: "
            f"0 … {global_tokens - 1}, or −1 for none"
        )
