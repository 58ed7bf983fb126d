"""Segments that wait for no output of one another, read in few calls, as a GPU prefers."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.chunks import cut
from attnlab.core.precision import upcast
from attnlab.core.relative import past_keys, past_weights

TOGETHER = 2**24
"""Scores that are worth a call of their own on a GPU."""


class Segmented(Protocol):
    """Options with the lengths of a segment and of its memory, and what a query finds in each."""

    @property
    def segment(self) -> int: ...

    @property
    def memory(self) -> int: ...

    def sees(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]: ...


def read_together(
    q: Tensor, k: Tensor, v: Tensor, memory_k: Tensor, memory_v: Tensor,
    u: Tensor, t: Tensor, weight: Tensor, padding: Tensor | None, options: Segmented,
) -> Tensor:  # fmt: skip
    """The output of all segments, as many at once as have ``TOGETHER`` scores."""
    n, c = q.shape[2], min(options.segment, q.shape[2])
    M, N = min(options.memory, n), -(-n // c)
    keys, values = (
        torch.cat((before(old, M, c, N), cut(new, c)), dim=3)
        for old, new in ((memory_k, k), (memory_v, v))
    )
    i = torch.arange(N * c, device=q.device).view(N, c, 1)
    j = i[:, :1] + torch.arange(-M, c, device=q.device)
    own, past = options.sees(i, j)
    mask = ((own | past) & (j >= 0)).expand(len(q), N, c, M + c)
    if padding is not None:
        real = padding[:, None, :, None]
        real = torch.cat((before(real, M, c, N), cut(real, c)), dim=3)[:, 0, ..., 0]
        mask = mask & real[:, :, None]
    return weighed(q, keys, values, mask, u, t, weight)


def weighed(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, u: Tensor, t: Tensor, weight: Tensor
) -> Tensor:
    """(b, h, n, e): what the queries of N segments take from the columns (b, h, N, m, d) of each,
    the last of which are its own, under masks (b, N, c, m)."""
    (b, h, n, _), (N, c, m) = q.shape, mask.shape[1:]
    queries, r, out = cut(q, c), past_keys(weight, m), []
    for at in at_once(N, b * h * c * m):
        qs, ks, vs = (x[:, :, at].transpose(1, 2).flatten(0, 1) for x in (queries, keys, values))
        weights = past_weights(qs, ks, u, t, r, mask[:, at].flatten(0, 1)[:, None])
        found = (weights @ upcast(vs)).to(values.dtype)
        out.append(found.unflatten(0, (b, -1)).transpose(1, 2).flatten(2, 3))
    return torch.cat(out, dim=2)[:, :, :n]


def at_once(N: int, each: int) -> list[slice]:
    """As many of N segments in a row as have ``TOGETHER`` scores, of which each has so many."""
    size = max(1, TOGETHER // max(1, each))
    return [slice(first, min(N, first + size)) for first in range(0, N, size)]


def before(x: Tensor, M: int, c: int, N: int) -> Tensor:
    """(b, h, n, e) → (b, h, N, M, e): the M rows before each of N places, which are c rows apart;
    zeros before the first row."""
    if not M:
        return x.new_zeros(*x.shape[:2], N, 0, x.shape[3])
    rows = F.pad(x, (0, 0, M, 0))[:, :, : (N - 1) * c + M]
    return rows.unfold(2, M, c).transpose(-1, -2)
