"""What is right for each share, number of bits, way of cutting and network."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.compression.levels import UNCHANGED, Levels, Per
from attnlab.compression.matrices import without_masks
from attnlab.compression.quantization import Quantization
from attnlab.lens.smaller import Cut, Head, Settings, half_width, interval, pruned, right_answers

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
BITS = (32, 8, 6, 4, 3, 2)
PERS: tuple[Per, ...] = ("tensor", "channel")
MOST_ANSWERS = 4096
STORED = Path(__file__).parent / "compression_lab.json"


def key(network: str, cut: str, per: str) -> str:
    """The name of a grid of shares and bits."""
    return f"{network}|{cut}|{per}"


def place(kept: float, bits: int) -> int:
    """Where a setting stands in its grid."""
    return SHARES.index(kept) * len(BITS) + BITS.index(bits)


def grid_of(
    model: nn.Module, cut: Cut, per: Per, order: Sequence[Head], inputs: Tensor, labels: Tensor,
    known: Callable[[float, int], Any] = lambda kept, bits: None,
) -> dict[str, list[float]]:  # fmt: skip
    """For all shares and bits what is right: how many rows, where a row has one label; else the
    mean share of right answers of a row and half of its interval. ``known`` are those that another
    grid has: (kept, bits) → [right] or [right, half]."""
    found: list[list[float]] = []
    before: Any = None
    for kept in SHARES:
        masked = pruned(model, Settings(cut=cut, kept=kept), order)
        own = without_masks(masked)
        values = torch.cat([p.detach().flatten() for p in own.parameters()])
        if before is not None and torch.equal(values, before):  # no head more was cut
            found += found[-len(BITS) :]
            continue
        before = values
        for bits in BITS:
            have = known(kept, bits)
            if have is None:
                rounds = bits != UNCHANGED
                smaller = Quantization(Levels(bits=bits, per=per))(own) if rounds else own
                right = right_answers(smaller, inputs, labels)
                have = [int(right.sum())] if labels.dim() == 1 else _score(right)
            found.append(have)
    names = ("right", "half")[: len(found[0])]
    return {name: [each[at] for each in found] for at, name in enumerate(names)}


def _score(right: Tensor) -> list[float]:
    return [round(float(right.mean()), 4), round(half_width(right), 4)]


@cache
def stored() -> dict[str, Any]:
    """The grids of the shipped models, which ``python -m tools.compression_grids`` computes."""
    found: dict[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def score_at(grid: Mapping[str, Any], at: int, rows: int) -> tuple[float, float, float]:
    """Share, and the ends of its interval of 95 %."""
    right = grid["right"][at]
    if "half" in grid:
        half = grid["half"][at]
        return right, max(0.0, right - half), min(1.0, right + half)
    return right / rows, *interval(right, rows)
