"""Where compressed vectors stand: at the first position of what was compressed; and whether that is
known beforehand."""

import sympy
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.card import letters
from attnlab.mechanisms.memory.compressive_transformer.compression import CompressiveOptions


def seen_after(padding: Tensor, options: CompressiveOptions) -> Tensor:
    """(b, n): whether there is anything in the vector that stands for the inputs from here on."""
    if options.compression == "most_used":
        return padding
    ahead = F.pad(padding, (0, options.rate - 1)).unfold(1, options.rate, 1)
    return ahead.any(dim=-1)


def regular_places(n: int, options: CompressiveOptions, device: torch.device) -> Tensor:
    """The first position of each window, of the whole segments among n positions."""
    first = torch.arange(0, n - n % options.segment, options.segment, device=device)
    inside = torch.arange(options.each, device=device) * options.rate
    return (first[:, None] + inside).flatten()


def rows_at(x: Tensor, places: Tensor) -> Tensor:
    """The rows of x (b, h, n, d) at the places (b, r)."""
    return x.gather(2, places[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def columns(
    rows: Tensor, i: Tensor, kept: Tensor, options: CompressiveOptions
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which keys i the queries ``rows`` find in their segment and in the memory (t, n), which of
    the columns of compressed vectors and keys they attend to (b, t, 2n), and how many columns lie
    between a query and each."""
    start = (rows - rows % options.segment)[:, None]
    oldest = start - options.memory
    own, past = (i >= start) & (i <= rows[:, None]), (i < start) & (i >= oldest)
    short = kept[:, None] & (i < oldest)
    short &= short.flip(2).cumsum(2).flip(2) <= options.compressed
    window = torch.cat((short, (own | past).expand_as(short)), dim=2)
    return own, past, window, (window.flip(2).cumsum(2).flip(2) - 1).clamp(min=0)


def launches(chosen: CompressiveOptions) -> sympy.Expr:
    """Which inputs are the most used is known only when later segments have attended to them."""
    n, c = letters("n c")
    return n / c if chosen.compression == "most_used" else sympy.Integer(1)
