r"""Levels: real numbers as small integers, with the step between two of them and the integer of 0.

$$q = \mathrm{clip}\left(\mathrm{round}(x / s) + z\right),\qquad \hat x = s\,(q - z)$$

s is the scale, the distance of two levels, and z the zero point, the integer whose value is 0.
Scales and sums are computed in float32 or wider.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attnlab.core.options import Options, check_share
from attnlab.core.precision import upcast

Scheme = Literal["affine", "symmetric", "restricted"]
Per = Literal["tensor", "channel"]
Observer = Literal["minmax", "moving_average", "percentile"]
MOST_BITS, UNCHANGED = 8, 32


def check_bits(bits: int) -> None:
    """A ValueError unless there are levels of so many bits."""
    if not 2 <= bits <= MOST_BITS and bits != UNCHANGED:
        raise ValueError(
            f"bits should be from 2 to {MOST_BITS}, or {UNCHANGED}, which changes nothing, got "
            f"{bits}"
        )


@dataclass(frozen=True, kw_only=True)
class Levels(Options):
    """bits: of an integer, from 2 to 8; 32 changes nothing. scheme: "affine" has a zero point;
    "symmetric" has none, and a scale of |x|max / ((2^b - 1) / 2), as torch.ao; "restricted" has
    none, and as many levels above 0 as below, with a scale of |x|max / (2^(b-1) - 1), as Q8BERT.
    per: one scale for a matrix ("tensor"), or one for each of its rows ("channel"), which are the
    outputs of a linear layer."""

    bits: int = 8
    scheme: Scheme = "affine"
    per: Per = "tensor"

    def check(self) -> None:
        check_bits(self.bits)

    @property
    def lowest(self) -> int:
        return -(2 ** (self.bits - 1)) + (self.scheme == "restricted")

    @property
    def highest(self) -> int:
        return 2 ** (self.bits - 1) - 1


class Range(NamedTuple):
    """The least and the greatest number that have a level; tensors of one shape."""

    low: Tensor
    high: Tensor


class Scale(NamedTuple):
    """s and z; tensors of one shape, z of whole numbers."""

    step: Tensor
    zero: Tensor


def range_of(x: Tensor, per: Per = "tensor") -> Range:
    """Least and greatest number: () of all, or (rows, 1) of each row."""
    x = upcast(x.detach())
    if per == "channel":
        return Range(x.amin(1, keepdim=True), x.amax(1, keepdim=True))
    return Range(x.amin(), x.amax())


def percentile_range(x: Tensor, percent: float) -> Range:
    """From -p to p, where ``percent`` % of all |x| are at most p, but no wider than from the least
    to the greatest number: two tensors ()."""
    x = upcast(x.detach()).flatten()
    place = max(1, min(x.numel(), round(percent / 100 * x.numel())))
    p = x.abs().kthvalue(place).values
    return Range(torch.maximum(x.amin(), -p), torch.minimum(x.amax(), p))


def scale_of(found: Range, levels: Levels) -> Scale:
    """The scale of a range, which is widened to hold 0; tensors of the shape of its ends. A range
    of zeros alone has the scale 1."""
    low, high = found.low.clamp(max=0), found.high.clamp(min=0)
    if levels.scheme == "affine":
        step = (high - low) / (2**levels.bits - 1)
    else:
        half = levels.highest if levels.scheme == "restricted" else (2**levels.bits - 1) / 2
        step = torch.maximum(-low, high) / half
    step = torch.where(step > 0, step, torch.ones_like(step))
    if levels.scheme != "affine":
        return Scale(step, torch.zeros_like(step, dtype=torch.int8))
    zero = (levels.lowest - (low / step).round()).clamp(levels.lowest, levels.highest)
    return Scale(step, zero.to(torch.int8))


def integers(x: Tensor, scale: Scale, levels: Levels) -> Tensor:
    """q, of int8 and of the shape of x; of two equally near integers ``round`` takes the even."""
    q = _unclipped(x, scale)
    return q.clamp(levels.lowest, levels.highest).to(torch.int8)


def _unclipped(x: Tensor, scale: Scale) -> Tensor:
    return (upcast(x.detach()) / scale.step).round() + scale.zero


def numbers(q: Tensor, scale: Scale) -> Tensor:
    """x̂ = s (q - z)."""
    # as floats: a difference of two int8 would wrap
    return scale.step * (q.to(scale.step.dtype) - scale.zero.to(scale.step.dtype))


def rounded(x: Tensor, scale: Scale, levels: Levels, *, everywhere: bool = False) -> Tensor:
    """x̂ in the dtype of x, with the gradient of a straight line: 1 where x lies within the range,
    0 beyond it, or 1 ``everywhere``."""
    exact = numbers(integers(x, scale, levels), scale).to(x.dtype)
    q = _unclipped(x, scale)
    inside = torch.ones_like(q, dtype=torch.bool) if everywhere else (
        (levels.lowest <= q) & (q <= levels.highest)
    )  # fmt: skip
    return straight_through(x, exact, inside)


def straight_through(x: Tensor, exact: Tensor, inside: Tensor) -> Tensor:
    """``exact``, with the gradient that x has where it lies ``inside``."""
    line = x * inside
    return exact.detach() + (line - line.detach())


# ---- products


def integer_product(
    X: Tensor, x_scale: Scale, W: Tensor, w_scale: Scale, bias: Tensor | None = None
) -> Tensor:
    """X̂ Ŵᵀ + b of integers X (n, K) and W (rows, K), of int8, by sums of int32:

    s_x s_w (X Wᵀ - z_x 1 (W 1)ᵀ - (X 1) z_wᵀ + K z_x z_wᵀ + round(b / (s_x s_w)))

    The scale of X is one for all; W has one for all, or one for each row.
    """
    z_x, z_w = x_scale.zero.to(torch.int32), w_scale.zero.to(torch.int32).reshape(1, -1)
    of_rows = W.sum(1, dtype=torch.int32)[None]
    of_inputs = X.sum(1, dtype=torch.int32)[:, None]
    sums = _product(X, W) - z_x * of_rows - of_inputs * z_w + X.shape[1] * z_x * z_w
    step = x_scale.step * w_scale.step.reshape(1, -1)
    if bias is not None:
        sums = sums + (upcast(bias.detach()) / step).round().to(torch.int32)
    return step * sums.to(step.dtype)


def _product(X: Tensor, W: Tensor) -> Tensor:
    """X Wᵀ in int32; ``X @ W.T`` of two int8 tensors would return int8, and wrap.

    Exact, and the same on every processor: a product of two int8 has 15 bits, and float64 holds
    whole numbers of 53. PyTorch's own kernel of integers, ``_int_mm``, gives other sums with the
    instructions of older processors (tried in version 2.13 with AVX2 and with SSE4.1).
    """
    return (X.double() @ W.mT.double()).to(torch.int32)


# ---- what is observed of activations


@dataclass(frozen=True, kw_only=True)
class Watching(Options):
    """observer: how the range of an activation is found over several batches: "minmax" takes the
    least and greatest of all, "moving_average" moves to those of each batch by ``constant``, and
    "percentile" takes the range in which so many ``percent`` of the absolute values lie."""

    observer: Observer = "minmax"
    constant: float = 0.01
    percent: float = 99.9

    def check(self) -> None:
        check_share("constant", self.constant)
        if not 0 < self.percent <= 100:
            raise ValueError(f"percent should be above 0 and at most 100, got {self.percent}")


def observe(before: Range | None, x: Tensor, watching: Watching = Watching()) -> Range:
    """The range after one more batch, given that of the batches before, if there were any."""
    now = range_of(x)
    if watching.observer == "percentile":
        now = percentile_range(x, watching.percent)
    if before is None:
        return now
    if watching.observer == "moving_average":
        c = watching.constant
        return Range(*(old + c * (new - old) for old, new in zip(before, now, strict=True)))
    return Range(torch.minimum(before.low, now.low), torch.maximum(before.high, now.high))


# ---- bits


def packed(q: Tensor, bits: int, lowest: int) -> Tensor:
    """Integers as bytes, ``bits`` for each, one behind the other; (⌈N bits / 8⌉,) of uint8."""
    shifts = torch.arange(bits, device=q.device)
    flat = (q.flatten().to(torch.int16) - lowest)[:, None]
    return as_bytes(((flat >> shifts) & 1).flatten())


def unpacked(data: Tensor, N: int, bits: int, lowest: int) -> Tensor:
    """The N integers, of int8, that ``packed`` has written."""
    weights = 2 ** torch.arange(bits, device=data.device)
    each = as_bits(data, N * bits).view(N, bits).to(torch.int64)
    return ((each * weights).sum(1) + lowest).to(torch.int8)


def as_bytes(bits: Tensor) -> Tensor:
    """Zeros and ones as bytes, the first in the lowest bit."""
    full = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8)).view(-1, 8)
    weights = (2 ** torch.arange(8, device=bits.device)).to(torch.uint8)
    return (full * weights).sum(1).to(torch.uint8)


def as_bits(data: Tensor, count: int) -> Tensor:
    """The first ``count`` zeros and ones of bytes."""
    shifts = torch.arange(8, device=data.device)
    return ((data[:, None].to(torch.int16) >> shifts) & 1).flatten()[:count]
