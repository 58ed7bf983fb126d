"""Lesson 10's checks: the aligned predicate, a head's summaries, the fixed pattern in blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.sparse.attention import naive
from attnlab.exercises import Verdict, check_aligned, check_fixed_blocks, check_summaries
from attnlab.experiments import pixels
from attnlab.mechanisms.fixed.sparse_transformer import SparseTransformerOptions
from tests.exercises.frame import answers_to


def aligned(i: Tensor, j: Tensor, s: int) -> Tensor:
    return (j <= i) & ((j >= i - s) | ((j - i - 1) % s == 0))


def aligned_by_loops(i: Tensor, j: Tensor, s: int) -> Tensor:
    rows = [
        [b <= a and (a - b <= s or (a + 1) % s == b % s) for b in j[0].tolist()] for a in i[:, 0]
    ]
    return torch.tensor(rows)


def aligned_in_numpy(i: Tensor, j: Tensor, s: int) -> Tensor:
    back = i.numpy() - j.numpy()
    return torch.from_numpy((back >= 0) & ((back <= s) | (np.mod(back, s) == s - 1)))


def by_the_experiment(i: Tensor, j: Tensor, s: int) -> Tensor:
    return pixels.aligned(s, len(i)).dense(len(i))


def summaries(j: Tensor, s: int, c: int, head: int) -> Tensor:
    return (j % s >= s - c * (head + 1)) & (j % s < s - c * head)


def summaries_by_lists(j: Tensor, s: int, c: int, head: int) -> Tensor:
    own = list(range(s))[::-1][c * head : c * (head + 1)]
    return torch.tensor([place % s in own for place in j.tolist()])


def _keys(start: int, s: int, c: int) -> Tensor:
    places = torch.arange(start + s)
    return places[(places >= start) | (places % s >= s - c)]


def in_blocks(q: Tensor, k: Tensor, v: Tensor, s: int, c: int) -> Tensor:
    """The solution of the exercise."""
    out = []
    for start in range(0, len(q), s):
        chosen, own = _keys(start, s, c), torch.arange(start, start + s)
        scores = q[own] @ k[chosen].T / q.shape[1] ** 0.5
        allowed = chosen <= own[:, None]
        out.append(scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v[chosen])
    return torch.cat(out)


def all_blocks_at_once(q: Tensor, k: Tensor, v: Tensor, s: int, c: int) -> Tensor:
    """Without a loop: each block with its own keys and all summaries, those ahead masked."""
    n, d = q.shape
    sums = (torch.arange(n) % s >= s - c).nonzero()[:, 0]
    own = torch.arange(n).view(-1, s)
    keys = torch.cat([sums.expand(n // s, -1), own], 1)
    far = torch.arange(keys.shape[1]) < len(sums)
    allowed = (keys[:, None] <= own[..., None]) & ~(far & (keys[:, None] >= own[:, :1, None]))
    scores = torch.einsum("bsd,bjd->bsj", q[own], k[keys]) / d**0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return (weights @ v[keys]).view(n, d)


def under_a_mask(q: Tensor, k: Tensor, v: Tensor, s: int, c: int) -> Tensor:
    pattern = SparseTransformerOptions(kind="fixed", stride=s, columns=c).pattern()
    return naive(q[None, None], k[None, None], v[None, None], mask=pattern)[0, 0]


def full(q: Tensor, k: Tensor, v: Tensor, s: int, c: int) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_aligned, aligned),
    (check_aligned, aligned_by_loops),
    (check_aligned, aligned_in_numpy),
    (check_aligned, by_the_experiment),
    (check_aligned, lambda i, j, s: aligned(i, j, s).float()),
    (check_summaries, summaries),
    (check_summaries, summaries_by_lists),
    (check_fixed_blocks, in_blocks),
    (check_fixed_blocks, all_blocks_at_once),
]


BLOCKS_WRONG: dict[str, tuple[str, Any]] = {
    "mask": ("no pair is skipped", under_a_mask),
}

TABLES = [
    (check_fixed_blocks, BLOCKS_WRONG),
]


TestAnswers = answers_to(RIGHT, TABLES)
