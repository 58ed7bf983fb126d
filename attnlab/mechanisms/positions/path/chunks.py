"""The scores of PaTH by chunks, and by groups of chunks that are twice as long each time."""

import torch
from torch import Tensor
from torch.nn import functional as F


def scores_in_chunks(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, chunk: int) -> Tensor:
    """The scores (b, h, n, n) of queries and keys up to them, not yet divided by √d.

    Inside chunks by the WY representation. Then blocks are joined in pairs, from N chunks to some
    √N groups: the later queries meet the earlier keys at the border between the two, after which
    the queries go through the earlier block and the keys through the later one. At last, group by
    group from the last one, all later queries meet the keys of the group, and then go through its
    whole product.
    """
    n, d = q.shape[2:]
    N = 1 << max(0, -(-n // chunk) - 1).bit_length()
    c = max(1, -(-n // N))  # at most chunk, so that N chunks, a power of two, end with the text
    missing = N * c - n  # the matrix of a missing token is the identity
    qs, ks, ws = (_cut(F.pad(x, (0, 0, 0, missing)), c) for x in (q, k, w))
    b = F.pad(beta, (0, missing)).unflatten(2, (-1, c))
    solve = torch.eye(c, dtype=w.dtype, device=w.device) + (b[..., None] * (ws @ ws.mT)).tril(-1)
    T = torch.linalg.solve_triangular(solve, torch.diag_embed(b), upper=False, unitriangular=True)
    seen = (qs @ ws.mT).tril() @ T  # what the matrices up to the query take of it
    blocks = (qs @ ks.mT) - seen @ (ws @ ks.mT).tril(-1)
    to_start = qs - seen @ ws  # each query, through all matrices of its block before it
    to_end = ks - (T @ (ws @ ks.mT).tril(-1)).mT @ ws  # each key, through those after it
    whole = torch.eye(d, dtype=w.dtype, device=w.device) - ws.mT @ T @ ws  # all of a block
    while blocks.shape[2] ** 2 > N:
        blocks, to_start, to_end, whole = _joined(blocks, to_start, to_end, whole)
    passed, columns = to_start[:, :, :0], []  # the queries after a group, at its end
    for j in reversed(range(blocks.shape[2])):
        met = passed @ to_end[:, :, j, None].mT
        before = torch.zeros_like(blocks[:, :, :j])
        columns.append(torch.cat((before, blocks[:, :, j, None], met), dim=2).flatten(2, 3))
        passed = torch.cat((to_start[:, :, j, None], passed @ whole[:, :, j, None]), dim=2)
    return torch.cat(columns[::-1], dim=-1)[:, :, :n, :n]


def _cut(x: Tensor, c: int) -> Tensor:
    """(b, h, n, d) → (b, h, chunks, c, d)."""
    return x.unflatten(2, (-1, c))


def _joined(
    blocks: Tensor, to_start: Tensor, to_end: Tensor, whole: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Join every two blocks to one."""
    (first, second), (before, after) = _pairs(blocks), _pairs(whole)
    (own, later), (earlier, last) = _pairs(to_start), _pairs(to_end)
    across = later @ earlier.mT
    above = F.pad(first, (0, across.shape[-1]))
    blocks = torch.cat((above, torch.cat((across, second), dim=-1)), dim=-2)
    to_start = torch.cat((own, later @ before), dim=-2)
    to_end = torch.cat((earlier @ after.mT, last), dim=-2)
    return blocks, to_start, to_end, after @ before


def _pairs(blocks: Tensor) -> tuple[Tensor, ...]:
    """(b, h, N, …) → twice (b, h, N / 2, …): the earlier and the later block of each pair."""
    return blocks.unflatten(2, (-1, 2)).unbind(3)
