"""The checks of lesson 16 name each mistake, and accept every way of writing the right answer."""

import torch
from torch import Tensor

from attnlab.exercises import (
    check_entmax_attention,
    check_soft_mask,
    check_sparsemax,
)
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


SPARSEMAX_WRONG = {
    "all scores": ("that of all scores", lambda z: (z - (z.sum() - 1) / len(z)).clamp_min(0)),
    "no clamp": ("without the clamp", lambda z: z - (z - in_order(z)).max()),
    "1.5": ("1.5-entmax", lambda z: entmax(z[None], 1.5)[0]),
    "softmax": ("a softmax", lambda z: z.softmax(0)),
    "divided": ("divided by their sum", lambda z: z.relu() / z.relu().sum()),
    "other": ("the numbers are not", lambda z: 3 * in_order(z)),
    "None": ("`return`", lambda z: None),
}


TestSparsemax = answers_to(
    [(check_sparsemax, solution) for solution in [by_library, by_dropping, in_order]],
    [(check_sparsemax, SPARSEMAX_WRONG)],
)


# ---- the soft mask


def clamped(x: Tensor, z: float, ramp: float) -> Tensor:
    return ((ramp + z - x) / ramp).clamp(0, 1)


def by_minimum(x: Tensor, z: float, ramp: float) -> Tensor:
    return torch.minimum(torch.maximum(1 - (x - z) / ramp, x * 0), x * 0 + 1)


MASK_WRONG = {
    "unbounded": ("straight line everywhere", lambda x, z, ramp: (ramp + z - x) / ramp),
    "above": ("above 1", lambda x, z, ramp: ((ramp + z - x) / ramp).relu()),
    "below": ("below 0", lambda x, z, ramp: ((ramp + z - x) / ramp).clamp_max(1)),
    "ends": ("begin at z", lambda x, z, ramp: clamped(x, z - ramp, ramp)),
    "hard": ("a hard window", lambda x, z, ramp: (x <= z).double()),
    "sign": ("sign of the distance", lambda x, z, ramp: 1 - clamped(x, z, ramp)),
    "by z": ("divide by the ramp", lambda x, z, ramp: ((ramp + z - x) / z).clamp(0, 1)),
    "other": ("the numbers are not", lambda x, z, ramp: 3 * clamped(x, z, ramp)),
}


TestSoftMask = answers_to(
    [(check_soft_mask, solution) for solution in [clamped, by_minimum]],
    [(check_soft_mask, MASK_WRONG)],
)


# ---- attention


def attend(q: Tensor, k: Tensor, v: Tensor, diagonal: int = 0, factor: float = 1.0) -> Tensor:
    past = torch.ones(len(q), len(k)).tril(diagonal).bool()
    return entmax(q @ k.mT * q.shape[-1] ** -0.5 * factor, 1.5, past) @ v


def row_by_row(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = [attend(q[: i + 1], k[: i + 1], v[: i + 1])[-1] for i in range(len(q))]
    return torch.stack(rows)


def cut_off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return entmax(q @ k.mT * q.shape[-1] ** -0.5, 1.5).tril() @ v


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(-1) @ v


ATTEND_WRONG = {
    "no scale": ("not scaled", lambda q, k, v: attend(q * q.shape[-1] ** 0.5, k, v)),
    "cut off": ("after the weights", cut_off),
    "not halved": ("not halved", lambda q, k, v: attend(q, k, v, factor=2)),
    "everywhere": ("no causal mask", lambda q, k, v: attend(q, k, v, diagonal=99)),
    "softmax": ("a softmax", softmax),
    "other": ("the numbers are not", lambda q, k, v: 3 * attend(q, k, v)),
}


TestEntmaxAttention = answers_to(
    [(check_entmax_attention, solution) for solution in [attend, row_by_row]],
    [(check_entmax_attention, ATTEND_WRONG)],
)
