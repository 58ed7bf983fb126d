"""Queries, keys, values and output of a complex attention layer, on real tensors."""

from functools import partial

import torch
from torch import Tensor

from attnlab.core.complex_linear import ComplexLinear, Weights, refuse_odd
from attnlab.core.heads import Heads
from attnlab.core.options import Size
from attnlab.core.positions import PositionScheme
from attnlab.core.shapes import checked


class ComplexHeads(Heads):
    """Heads whose projections are complex: half of ``dim`` are real parts, half imaginary ones.

    Each head holds [real, imaginary] too, so its queries, keys and values are real tensors of
    the usual shapes, of d/2 complex numbers each. ``weights`` and ``karatsuba`` are those of
    ``ComplexLinear``.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, kv_heads: Size | None = None, bias: bool = False,
        positions: PositionScheme | None = None, weights: Weights = "free", karatsuba: bool = False,
    ) -> None:  # fmt: skip
        refuse_odd("dim", dim)
        if dim % heads == 0 and (dim // heads) % 2:
            raise ValueError(
                f"each of heads={heads} would hold dim / heads = {dim // heads} numbers, which do "
                "not split into real and imaginary parts: choose heads so that 2 · heads divides "
                f"dim={dim}"
            )
        linear = partial(ComplexLinear, weights=weights, karatsuba=karatsuba)
        super().__init__(
            dim, heads, kv_heads=kv_heads, bias=bias, positions=positions, linear=linear
        )

    def split(self, x: Tensor, width: int) -> Tensor:
        parts = x.unflatten(-1, (2, -1, width // 2))  # (b, n, real or imaginary, h, d/2)
        return torch.cat(parts.unbind(2), dim=-1).transpose(1, 2)

    def join(self, out: Tensor) -> Tensor:
        real, imaginary = out.transpose(1, 2).chunk(2, dim=-1)
        return torch.cat((real.flatten(-2), imaginary.flatten(-2)), dim=-1)
