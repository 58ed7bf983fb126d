"""Buckets of distances, and the sums of blocks."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.shapes import TokenPadding, Tokens

GlobalKeys = Float[Tensor, "b h globals d"]
GlobalValues = Float[Tensor, "b h globals e"]
Biases = Float[Tensor, "h buckets"]  # one number per head and bucket of distances


def buckets_of(
    distance: Int[Tensor, "..."], buckets: int, farthest: int = 128
) -> Int[Tensor, "..."]:
    """T5's buckets of distances j − i: half of them for each direction.

    In each direction the first half hold one distance each; the others have logarithmic widths up
    to ``farthest``, and all larger distances are in the last one.
    """
    check_buckets(buckets, farthest)
    half = buckets // 2
    exact = half // 2
    far = distance.abs()
    logarithmic = torch.log(far.clamp(min=1).float() / exact) / math.log(farthest / exact)
    logarithmic = (exact + (logarithmic * (half - exact)).long()).clamp(max=half - 1)
    return half * (distance > 0) + torch.where(far < exact, far, logarithmic)


def check_buckets(buckets: int, farthest: int) -> None:
    """A ValueError for too few buckets, or where no distance is left for the logarithmic ones."""
    if buckets < 4:
        raise ValueError(f"distances fall into at least 4 buckets, got {buckets}")
    if farthest <= buckets // 4:
        raise ValueError(
            f"farthest={farthest} should be beyond the {buckets // 4} distances that have a bucket "
            "each"
        )


def lengths(padding: Tensor | None, n: int, device: torch.device) -> Int[Tensor, "b"]:
    """The length up to the last valid token; (1,) without padding."""
    if padding is None:
        return torch.full((1,), n, device=device)
    return (torch.arange(1, n + 1, device=device) * padding).amax(dim=-1)


def blocks_of(
    n: int, block: int, globals_: int, length: Int[Tensor, "b"]
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b globals"]]:
    """The block of each token, and which global tokens exist, for each sequence."""
    full_blocks = (length // block).clamp(max=globals_)[:, None]
    block_of = torch.arange(n, device=length.device) // block
    exists = torch.arange(globals_, device=length.device) < full_blocks
    return block_of.minimum((full_blocks - 1).clamp(min=0)), exists


def sums(x: Tokens, block: int, padding: TokenPadding = None) -> Float[Tensor, "b globals dim"]:
    """The sum of the valid tokens of each block; one row of zeros if there is no full block."""
    b, n, dim = x.shape
    count = max(1, n // block)
    block_of, _ = blocks_of(n, block, count, lengths(padding, n, x.device))
    if padding is not None:
        x = x.masked_fill(~padding[..., None], 0)
    index = block_of[..., None].expand(b, n, dim)
    return x.new_zeros(b, count, dim).scatter_add(1, index, x)
