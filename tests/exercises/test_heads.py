"""Lesson 02's checks: splitting, merging and sharing heads, one step of decoding."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import (
    Verdict,
    check_merge_heads,
    check_repeat_heads,
    check_split_heads,
    check_step,
)
from tests.exercises.frame import answers_to


def split_by_loops(x: Tensor, heads: int) -> Tensor:
    d = x.shape[-1] // heads
    return torch.stack([x[..., a * d : (a + 1) * d] for a in range(heads)], dim=1)


def split_view_after_transpose(x: Tensor, heads: int) -> Tensor:
    b, n, dim = x.shape
    return x.transpose(1, 2).view(b, heads, dim // heads, n).mT


def repeat_by_index(k: Tensor, h: int) -> Tensor:
    return k[:, torch.arange(h) * k.shape[1] // h]


def repeat_by_expand(k: Tensor, h: int) -> Tensor:
    b, g, m, d = k.shape
    return k[:, :, None].expand(b, g, h // g, m, d).reshape(b, h, m, d)


def decode(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def decode_by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k).div(q.shape[-1] ** 0.5)
    return torch.einsum("bhnm,bhme->bhne", scores.softmax(-1), v)


def decode_aligned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The causal mask, aligned at the bottom right."""
    n, m = q.shape[-2], k.shape[-2]
    mask = torch.ones(n, m).tril(m - n).bool()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def decode_two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return decode(q, k[..., -2:, :], v[..., -2:, :])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_split_heads, lambda x, h: x.reshape(*x.shape[:2], h, -1).permute(0, 2, 1, 3)),
    (check_split_heads, split_by_loops),
    (check_split_heads, split_view_after_transpose),
    (check_merge_heads, lambda out: out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)),
    (check_merge_heads, lambda out: torch.cat(list(out.unbind(1)), dim=-1)),
    (check_merge_heads, lambda out: out.permute(0, 2, 1, 3).contiguous().flatten(2)),
    (check_repeat_heads, lambda k, h: k.repeat_interleave(h // k.shape[1], 1)),
    (check_repeat_heads, repeat_by_index),
    (check_repeat_heads, repeat_by_expand),
    (check_step, decode),
    (check_step, decode_by_einsum),
    (check_step, decode_aligned),
    (check_step, F.scaled_dot_product_attention),
]

SPLIT_WRONG = {
    "flipped": (
        "is x[0, 0, 14]; it should be x[0, 0, 0]",
        lambda x, h: split_by_loops(x, h).flip(1),
    ),
}

MERGE_WRONG = {
    "flipped": (
        "is out[0, 2, 0, 0]; it should be out[0, 0, 0, 0]",
        lambda o: o.flip(1).transpose(1, 2).flatten(2),
    ),
}

REPEAT_WRONG = {
    "reversed": ("in the wrong order", lambda k, h: repeat_by_index(k, h).flip(1)),
}

STEP_WRONG = {
    "window": ("attends to positions 5, 6 of 7", decode_two),
    "no scale": ("off by a factor of √d", lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "model width": ("√(h·d) = √15", lambda q, k, v: (q @ k.mT / 15**0.5).softmax(-1) @ v),
    "√h": ("divided by √h = √3", lambda q, k, v: (q @ k.mT / 3**0.5).softmax(-1) @ v),
    "no softmax": ("the softmax is missing", lambda q, k, v: q @ k.mT @ v),
}

TestAnswers = answers_to(
    RIGHT,
    [
        (check_split_heads, SPLIT_WRONG),
        (check_merge_heads, MERGE_WRONG),
        (check_repeat_heads, REPEAT_WRONG),
        (check_step, STEP_WRONG),
    ],
)
