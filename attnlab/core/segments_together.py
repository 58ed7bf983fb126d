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
    (b, h, n, _), c = q.shape, min(options.segment, q.shape[2])
    M = min(options.memory, n)
    r, N = past_keys(weight, M + c), -(-n // c)
    keys, values = (
        torch.cat((_before(old, M, c), cut(new, c)), dim=3)
        for old, new in ((memory_k, k), (memory_v, v))
    )
    queries, out = cut(q, c), []
    i = torch.arange(N * c, device=q.device).view(N, c, 1)
    j = i[:, :1] + torch.arange(-M, c, device=q.device)
    own, past = options.sees(i, j)
    mask = ((own | past) & (j >= 0)).expand(b, N, c, M + c)
    if padding is not None:
        real = padding[:, None, :, None]
        real = torch.cat((_before(real, M, c), cut(real, c)), dim=3)[:, 0, ..., 0]
        mask = mask & real[:, :, None]
    for some in torch.arange(N).split(max(1, TOGETHER // (b * h * c * (M + c)))):
        at = slice(int(some[0]), int(some[-1]) + 1)
        qs, ks, vs = (x[:, :, at].transpose(1, 2).flatten(0, 1) for x in (queries, keys, values))
        weights = past_weights(qs, ks, u, t, r, mask[:, at].flatten(0, 1)[:, None])
        found = (weights @ upcast(vs)).to(v.dtype)
        out.append(found.unflatten(0, (b, -1)).transpose(1, 2).flatten(2, 3))
    return torch.cat(out, dim=2)[:, :, :n]


def _before(x: Tensor, M: int, c: int) -> Tensor:
    """(b, h, n, e) → (b, h, N, M, e): the M rows before each segment of c, zeros before the first
    row."""
    n = x.shape[2]
    if not M:
        return x.new_zeros(*x.shape[:2], -(-n // c), 0, x.shape[3])
    rows = F.pad(x, (0, 0, M, 0))[:, :, : (n - 1) // c * c + M]
    return rows.unfold(2, M, c).transpose(-1, -2)
