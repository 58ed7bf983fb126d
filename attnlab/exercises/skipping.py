"""Attention that skips pairs: the formula block by block, and what a solution spends: its FLOPs and
its largest tensor.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnlab.exercises.attempt import Arguments, run
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


class Largest(TorchDispatchMode):
    """Records the shape of the largest tensor that is made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = ()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for made_here in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made_here, Tensor) and made_here.numel() > math.prod(self.shape or (0,)):
                self.shape = tuple(made_here.shape)
        return out


def require_no_square(function: Function, given: Arguments, n: int, advice: str) -> None:
    """A `Mistake` where a tensor is made that is a quarter of n · n, or larger."""
    with Largest() as seen:
        run(function, given)
    if 4 * math.prod(seen.shape) >= n * n:
        raise Mistake(
            f"The numbers are right, but for n = {n} a tensor of {seen.shape} is made, which grows "
            f"with n². {advice}"
        )
