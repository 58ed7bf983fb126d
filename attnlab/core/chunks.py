r"""A matrix that is handed from chunk to chunk: recurrences of linear attention in matrix products.

Each head keeps a matrix S (d, e). A token multiplies it by a transition, adds what it writes, and
its query reads the result:

$$S_t = A_t\, S_{t-1} + b_t\, k_t v_t^\top,\qquad o_t = q_t S_t$$

Two transitions are computed here. Without an erasure $A_t$ is the decay, diag(a), of one number
per head or one per key channel, and b is 1. With an erasure of size b the token first takes out
what its key reads of the decayed state, $A_t = (I - b_t k_t k_t^\top)\, \mathrm{diag}(a_t)$.

Inside a chunk of c tokens the state is not formed. With $g_i$ the sum of the log decays of the
chunk up to token i, and $P_{ij} = q_i \cdot (e^{g_i - g_j} \odot k_j)$, $L_{ij}$ the same of $b_i
k_i$ and $k_j$ below the diagonal,

$$[\,U \mid W\,] = (I + L)^{-1} \mathrm{diag}(b)\, [\,V \mid e^{g} \odot K\,],\qquad
O = P (U - W S) + (e^{g} \odot Q)\, S$$
$$S' = (e^{g_c} - \bar K^\top W)\, S + \bar K^\top U,\qquad \bar K = e^{g_c - g} \odot K$$

where S is the state before the chunk and S' the one after it: the WY representation of a product of
reflections (Bischof and Van Loan, 1987). Without an erasure U = V and W = 0.

Decays are multiplied, or their logarithms added up, from one token to the other; no sum is ever
subtracted from another: the difference is wrong beside a decay of $e^{-10^{20}}$, and NaN beside
one of 0.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.forms import upcasting
from attnlab.core.precision import upcast
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues

Sums = Float[Tensor, "b h d e"]
"""The state of all heads."""


def initial_state(k: SelfKeys, v: SelfValues) -> Sums:
    """The state before the first token."""
    return upcast(v).new_zeros(*k.shape[:2], k.shape[3], v.shape[3])


@upcasting
def advance(
    q: Queries, k: SelfKeys, v: SelfValues, S: Sums, chunk: int, *,
    log_decay: Tensor | None = None, erase: Tensor | None = None,
) -> tuple[Outputs, Sums]:  # fmt: skip
    """The outputs of the next tokens after the state ``S``, and the state after them.

    ``log_decay`` is (b, h, n, 1) or (b, h, n, d), at most 0, with 1 in place of n if it is that of
    all tokens; ``erase`` the b of each token, (b, h, n, 1), by which its value is multiplied, too.
    """
    n, c = q.shape[2], min(chunk, q.shape[2])
    q, k, v = (cut(x, c) for x in (q, k, v))
    pairs: Callable[[Tensor, Tensor], Tensor] = sums
    since = until = k.new_ones(1, 1)
    if log_decay is not None:
        if log_decay.shape[2] == 1:  # chunks are alike, but for a last one that is shorter
            log_decay = log_decay.expand(-1, -1, n if n % c else c, -1)
        pairs, since, until = decayed(cut(log_decay, c))
    near, read, written = pairs(q, k), since * q, until * k
    kept = since[..., -1:, :].mT.expand(*k.shape[:3], -1, 1)
    if erase is not None:
        b = cut(erase, c)
        solved = solve(pairs(b * k, k), b * torch.cat((v, since * k), dim=-1))
        v, W = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
        read = read - near @ W
        kept = torch.diag_embed(kept[..., 0].expand_as(k[..., 0, :])) - written.mT @ W
    before, S = handed_on(kept, written.mT @ v, S)
    out = near @ v + read @ before
    return out.flatten(2, 3)[:, :, :n], S


def cut(x: Tensor, size: int) -> Tensor:
    """(b, h, n, …) as (b, h, ⌈n / size⌉, size, …), with zeros after the last token."""
    short = -x.shape[2] % size
    padded = F.pad(x, (*(0, 0) * (x.ndim - 3), 0, short)) if short else x
    return padded.unflatten(2, (-1, size))


def solve(L: Tensor, right: Tensor) -> Tensor:
    """X of (I + L) X = right; of L what is below the diagonal is read.

    It is solved as Xᵀ (I + Lᵀ) = rightᵀ: LAPACK reads columns, and the rows of these are those.
    """
    solved = torch.linalg.solve_triangular(
        L.mT, right.mT, upper=True, left=False, unitriangular=True
    )
    return solved.mT


# ---- decays


def segments(log_a: Tensor) -> Tensor:
    """(…, c) → (…, c, c): the sum of those after the column's token up to the row's; −∞ above the
    diagonal, where the row comes first."""
    c = log_a.shape[-1]
    each = log_a[..., None].expand(*log_a.shape, c)
    below = torch.ones(c, c, dtype=torch.bool, device=log_a.device).tril(-1)
    sums = each.masked_fill(~below, 0).cumsum(dim=-2)
    return sums.masked_fill(below.mT, -torch.inf)


def products(q: Tensor, k: Tensor, log_a: Tensor) -> Tensor:
    """(…, c, c): the products of queries with the keys before them and their own, that have decayed
    since; zeros above the diagonal."""
    return decayed(log_a)[0](q, k)


def sums(q: Tensor, k: Tensor) -> Tensor:
    """``products`` where nothing decays."""
    return (q @ k.mT).tril()


def decayed(log_a: Tensor) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]:
    """``products`` of any queries and keys under decays (…, c, d) that are prepared once; what is
    left at each token of what stood before the first; and what is left after the last of each.

    The decays of all pairs would be as many exponentials as pairs, for each channel. Instead the
    tokens are halved, and the halves again. Of a query in the second half of a block and a key in
    the first the decay has two factors: from the key to the end of the first half, and from there
    to the query. Each token has one of them, so the pairs of two halves are a product of matrices.
    """
    c = log_a.shape[-2]
    short = (1 << (c - 1).bit_length()) - c  # to the next power of two
    filled: Callable[[Tensor], Tensor] = lambda x: F.pad(x, (0, 0, 0, short)) if short else x  # noqa: E731
    since = filled(log_a).exp()[..., None, :]  # (…, blocks, tokens of each, d)
    until, levels = torch.ones_like(since), []
    while since.shape[-3] > 1:
        (first, second), (before, after) = _halves(since), _halves(until)
        levels.append((second, before))
        since = torch.cat((first, second * first[..., -1:, :]), dim=-2)
        until = torch.cat((before * second[..., -1:, :], after), dim=-2)

    def by_channels(q: Tensor, k: Tensor) -> Tensor:
        q, k = filled(q), filled(k)
        blocks = (q * k).sum(dim=-1)[..., None, None]  # (…, c, 1, 1): each token with itself
        for since, until in levels:
            halves = (-1, 2, since.shape[-2])
            late, early = (x.unflatten(-2, halves).select(-3, i) for x, i in ((q, 1), (k, 0)))
            across = (since * late) @ (until * early).mT
            first, second = _halves(blocks)
            above = F.pad(first, (0, across.shape[-1]))
            blocks = torch.cat((above, torch.cat((across, second), dim=-1)), dim=-2)
        return blocks[..., 0, :c, :c]

    since, until = since[..., 0, :c, :], until[..., 0, :c, :]
    if log_a.shape[-1] > 1:
        return by_channels, since, until
    one = torch.ones_like(log_a)
    D = by_channels(one, one)
    return lambda q, k: q @ k.mT * D, since, until


def _halves(blocks: Tensor) -> tuple[Tensor, ...]:
    """(…, r, m, d) → twice (…, r / 2, m, d): every other block."""
    return blocks.unflatten(-3, (-1, 2)).unbind(-3)


# ---- from chunk to chunk


def handed_on(kept: Tensor, added: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """The states before each of N chunks (b, h, N, d, e), and the one after the last.

    A chunk multiplies the state by ``kept``, (b, h, N, d, d), or (b, h, N, d, 1) and (b, h, N, 1,
    1) for a diagonal, and adds ``added``. Groups of √N chunks step together, each from zero; then
    the states before the groups follow from one another: 2 √N steps in place of N.
    """
    times: Callable[[Tensor, Tensor], Tensor] = torch.mul
    if kept.shape[-1] > 1:
        times = torch.matmul
    N = added.shape[2]
    m = math.isqrt(N - 1) + 1
    factors, terms = (cut(x, m).unbind(3) for x in (kept, added))
    U, product, sums, all_products = terms[0], factors[0], [terms[0]], [factors[0]]
    for factor, term in zip(factors[1:], terms[1:], strict=True):
        U, product = term + times(factor, U), times(factor, product)
        sums.append(U)
        all_products.append(product)
    start, starts = S, [S]
    for whole, own in zip(product.unbind(2)[:-1], U.unbind(2)[:-1], strict=True):
        start = own + times(whole, start)
        starts.append(start)
    begin = torch.stack(starts, dim=2)
    inner = [
        own + times(whole, begin) for whole, own in zip(all_products[:-1], sums[:-1], strict=True)
    ]
    before = torch.stack((begin, *inner), dim=3).flatten(2, 3)[:, :, :N]
    return before, added[:, :, -1] + times(kept[:, :, -1], before[:, :, -1])
