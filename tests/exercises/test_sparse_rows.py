"""The checks of lesson 16 name each mistake, and accept every way of writing the right answer."""

import torch
from torch import Tensor

from attnlab.exercises import check_entmax_attention, check_soft_mask, check_sparsemax
from attnlab.mechanisms.learned.entmax.implicit import entmax
from tests.exercises.frame import answers_to

# ---- sparsemax


def by_library(z: Tensor) -> Tensor:
    return entmax(z[None], 2.0)[0]


def by_dropping(z: Tensor) -> Tensor:
    """Drops what is below the threshold of the rest, until nothing is."""
    inside = torch.ones_like(z, dtype=torch.bool)
    while True:
        tau = (z[inside].sum() - 1) / inside.sum()
        if (z[inside] > tau).all():
            return (z - tau).clamp_min(0)
        inside = inside & (z > tau)


def in_order(z: Tensor) -> Tensor:
    ordered = z.sort(descending=True).values
    tau = (ordered.cumsum(0) - 1) / torch.arange(1, len(z) + 1)
    return (z - tau[(ordered > tau).sum() - 1]).clamp_min(0)


TestSparsemax = answers_to(
    [(check_sparsemax, solution) for solution in [by_library, by_dropping, in_order]],
)


# ---- the soft mask


def clamped(x: Tensor, z: float, ramp: float) -> Tensor:
    return ((ramp + z - x) / ramp).clamp(0, 1)


def by_minimum(x: Tensor, z: float, ramp: float) -> Tensor:
    return torch.minimum(torch.maximum(1 - (x - z) / ramp, x * 0), x * 0 + 1)


TestSoftMask = answers_to(
    [(check_soft_mask, solution) for solution in [clamped, by_minimum]],
)


# ---- attention


def attend(q: Tensor, k: Tensor, v: Tensor, diagonal: int = 0, factor: float = 1.0) -> Tensor:
    past = torch.ones(len(q), len(k)).tril(diagonal).bool()
    return entmax(q @ k.mT * q.shape[-1] ** -0.5 * factor, 1.5, past) @ v


def row_by_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = [attend(q[: i + 1], k[: i + 1], v[: i + 1])[-1] for i in range(len(q))]
    return torch.stack(rows)


TestEntmaxAttention = answers_to(
    [(check_entmax_attention, solution) for solution in [attend, row_by_row]],
)
