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


def merge_view(out: Tensor) -> Tensor:
    b, h, n, e = out.shape
    return out.transpose(1, 2).view(b, n, h * e)


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
    "reshape": (
        "scrambles positions and heads",
        lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1),
    ),
    "interleaved": (
        "the heads are interleaved",
        lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
    ),
    "batch": (
        "Positions and batch are mixed",
        lambda x, h: x.reshape(h, x.shape[0], x.shape[1], -1).transpose(0, 1),
    ),
    "no transpose": ("gave (b, n, h, d)", lambda x, h: x.unflatten(-1, (h, -1))),
    "too far": ("gave (b, h, d, n)", lambda x, h: split_by_loops(x, h).mT),
    "d for h": ("Wrong shape", lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2)),
    "three heads": (
        "heads 2) raised RuntimeError",
        lambda x, h: x.unflatten(-1, (3, -1)).transpose(1, 2),
    ),
    "flipped": (
        "is x[0, 0, 14]; it should be x[0, 0, 0]",
        lambda x, h: split_by_loops(x, h).flip(1),
    ),
    "halved": ("the numbers are not", lambda x, h: split_by_loops(x, h) / 2),
    "None": ("`return`", lambda x, h: None),
}

MERGE_WRONG = {
    "reshape": ("scrambles positions and heads", lambda o: o.reshape(o.shape[0], o.shape[2], -1)),
    "interleaved": ("the heads are interleaved", lambda o: o.permute(0, 2, 3, 1).flatten(2)),
    "sum": ("the heads are added; they should be concatenated", lambda o: o.sum(1)),
    "mean": ("the heads are averaged", lambda o: o.mean(1)),
    "not joined": ("not joined yet", lambda o: o.transpose(1, 2)),
    "view": ("use `reshape`, which copies", merge_view),
    "check_arguments": ("Wrong shape", lambda o: o),
    "transposed": ("axes are in another order", lambda o: o.transpose(1, 2).flatten(2).mT),
    "flipped": (
        "is out[0, 2, 0, 0]; it should be out[0, 0, 0, 0]",
        lambda o: o.flip(1).transpose(1, 2).flatten(2),
    ),
    "in place": (
        "`out` changed in place",
        lambda o: o.transpose(1, 2).flatten(2) + o.zero_().sum(),
    ),
}

REPEAT_WRONG = {
    "tiled": ("tiled 0, 1, 0, 1", lambda k, h: k.repeat(1, h // k.shape[1], 1, 1)),
    "h times": ("each is repeated h / g times.", lambda k, h: k.repeat_interleave(h, 1)),
    "h times, tiled": ("repeated h times in turn", lambda k, h: k.repeat(1, h, 1, 1)),
    "positions": (
        "The positions are repeated",
        lambda k, h: k.repeat_interleave(h // k.shape[1], 2),
    ),
    "batch": ("The batch is repeated", lambda k, h: k.repeat_interleave(h // k.shape[1], 0)),
    "first": ("first key head", lambda k, h: k[:, :1].repeat(1, h, 1, 1)),
    "as it came": ("the key heads unchanged", lambda k, h: k),
    "reversed": ("in the wrong order", lambda k, h: repeat_by_index(k, h).flip(1)),
    "g = 2 only": (
        "k (5, 3, 7, 11), h 6) raised ZeroDivisionError",
        lambda k, h: repeat_by_index(k, h) if k.shape[1] == 2 else 1 / 0,
    ),
}

STEP_WRONG = {
    "top left": (
        "attends to only the first key",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "itself": ("attends to only itself", lambda q, k, v: v[..., -1:, :]),
    "without itself": (
        "does not attend to itself",
        lambda q, k, v: decode(q, k[..., :-1, :], v[..., :-1, :]),
    ),
    "without first": (
        "first key is not used",
        lambda q, k, v: decode(q, k[..., 1:, :], v[..., 1:, :]),
    ),
    "window": ("attends to positions 5, 6 of 7", decode_two),
    "axis": ("the softmax runs over the queries", lambda q, k, v: (q @ k.mT).softmax(-2) @ v),
    "weights": ("returns the weights", lambda q, k, v: (q @ k.mT / 5**0.5).softmax(-1)),
    "all": ("The keys are used as queries", lambda q, k, v: decode(k, k, v)),
    "no scale": ("off by a factor of √d", lambda q, k, v: (q @ k.mT).softmax(-1) @ v),
    "model width": ("√(h·d) = √15", lambda q, k, v: (q @ k.mT / 15**0.5).softmax(-1) @ v),
    "√h": ("divided by √h = √3", lambda q, k, v: (q @ k.mT / 3**0.5).softmax(-1) @ v),
    "no softmax": ("the softmax is missing", lambda q, k, v: q @ k.mT @ v),
    "squeezed": ("Wrong shape", lambda q, k, v: decode(q, k, v).squeeze(2)),
    "raises": ("raised RuntimeError", lambda q, k, v: q @ k @ v),
    "in place": (
        "`values` changed in place",
        lambda q, k, v: decode(q, k, v.clone()) + v.mul_(2).sum() * 0,
    ),
}

WRONG = [
    (check, words, solution)
    for check, table in (
        (check_split_heads, SPLIT_WRONG),
        (check_merge_heads, MERGE_WRONG),
        (check_repeat_heads, REPEAT_WRONG),
        (check_step, STEP_WRONG),
    )
    for words, solution in table.values()
]


TestSplitHeads = answers_to(
    RIGHT,
    [
        (check_split_heads, SPLIT_WRONG),
        (check_merge_heads, MERGE_WRONG),
        (check_repeat_heads, REPEAT_WRONG),
        (check_step, STEP_WRONG),
    ],
)
