"""Attention that skips pairs: the formula block by block, and what a solution spends: its FLOPs and
its largest tensor.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attnlab.exercises.attempt import Arguments
from attnlab.exercises.verdict import Function, Mistake


def attend_in_blocks(
    q: Tensor, k: Tensor, v: Tensor, size: int, keys: Callable[[int], Sequence[int]], *,
    causal: bool, scale: float | None = None, late: bool = False,
) -> Tensor:  # fmt: skip
    """(n, d): the queries of a block attend to the positions ``keys(its first position)``.

    ``late`` is the mistake of masking after the softmax.
    """
    n, d = q.shape
    out = []
    for start in range(0, n, size):
        own, chosen = torch.arange(start, start + size), torch.tensor(keys(start))
        scores = q[own] @ k[chosen].mT * (d**-0.5 if scale is None else scale)
        future = (chosen > own[:, None]) & causal
        weights = scores.softmax(-1) if late else scores.masked_fill(future, -math.inf).softmax(-1)
        out.append(weights.masked_fill(future, 0) @ v[chosen])
    return torch.cat(out)


def require_skipped(function: Function, given: Arguments, part: int, advice: str) -> str:
    """A `Mistake` where more than 1/``part`` of the FLOPs of full attention is spent."""
    n, d = given["q"].shape
    with FlopCounterMode(display=False) as counter:
        function(*given.values())
    spent, full = counter.get_total_flops(), 4 * n * n * d
    if spent > full / part:
        raise Mistake(
            f"The numbers are right, but no pair is skipped: {spent:,} FLOPs, where full attention "
            f"takes {full:,}. {advice}"
        )
    return f"The same numbers as under a mask, with {spent:,} FLOPs instead of {full:,}."
