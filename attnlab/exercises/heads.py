"""Checks of lesson 02: splitting and merging heads, sharing keys, decoding with a cache."""

from functools import partial

import torch
from torch import Tensor

from attnlab.core.softmax import masked_softmax
from attnlab.exercises.attempt import Arguments, as_float64, run, sizes
from attnlab.exercises.exercise import Exercise, drawn
from attnlab.exercises.verdict import Function
from attnlab.exercises.weights import EXTRA_COLUMNS, explain, implied_weights
from attnlab.mechanisms.dense.full import naive


def _numbered(*shape: int) -> Tensor:
    """Every entry has its own number, so that the result shows where each came from."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


def _misplaced(right: Function, function: Function, given: Arguments) -> str | None:
    """The first entry of the result that comes from the wrong place, and both places."""
    value, expected = (as_float64(run(f, given).value) for f in (function, right))
    source, origin = next(iter(given.items()))
    assert value is not None
    assert expected is not None
    wrong = value != expected
    if not (wrong.any() and torch.isin(value, origin).all()):
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    came, due = ((origin == float(x[place])).nonzero()[0].tolist() for x in (value, expected))
    return (
        f"Entry {list(place)} of the result is {source}{came}; it should be {source}{due}: the "
        "numbers are right, but in the wrong order."
    )


# ---- splitting


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


check_split_heads = Exercise(
    """Does it split heads? `split_heads(x (b, n, dim), heads) -> (b, h, n, d)` with h·d = dim.

    Head a gets features a·d … (a + 1)·d − 1 of every position. Called with b = 2, n = 5, 3 heads of
    width 7, and again with other sizes.
    """,
    right=_split,
    cases=lambda: [
        {"x": _numbered(b, n, h * d), "heads": h}
        for b, n, h, d in sizes((2, 5, 3, 7), (3, 7, 2, 5))
    ],
    axes="b h n d",
    mistakes={
        (lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)): (
            "A reshape without a transpose scrambles positions and heads: it divides the numbers "
            "in memory order, so that one head gets whole positions. First (b, n, h, d), then "
            "exchange n and h."
        ),
        (lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)): (
            "The heads are interleaved: head a takes every h-th feature, as if the width were (d, "
            "h). Head a gets d consecutive features: unflatten the width into (h, d)."
        ),
        (lambda x, h: x.reshape(h, x.shape[0], x.shape[1], -1).transpose(0, 1)): (
            "Positions and batch are mixed: the batch must stay the first axis throughout."
        ),
    },
    praise="Every head gets its own d consecutive features at every position.",
    explain=partial(_misplaced, _split),
)


# ---- merging


def _merge(out: Tensor) -> Tensor:
    return out.transpose(1, 2).flatten(2)


check_merge_heads = Exercise(
    """Does it undo the split? `merge_heads(out (b, h, n, e)) -> (b, n, h·e)`.

    Called with b = 2, h = 3, n = 5, e = 7, and again with other sizes.
    """,
    right=_merge,
    cases=lambda: [{"out": _numbered(*shape)} for shape in sizes((2, 3, 5, 7), (3, 2, 7, 5))],
    axes="b n h·e",
    mistakes={
        (lambda out: out.reshape(out.shape[0], out.shape[2], -1)): (
            "A reshape without a transpose scrambles positions and heads: exchange h and n first, "
            "so that the heads of one position are next to each other."
        ),
        (lambda out: out.permute(0, 2, 3, 1).flatten(2)): (
            "The heads are interleaved: the features of one head must stay together, (h, e) and "
            "not (e, h), before they are joined."
        ),
        (lambda out: out.sum(1)): (
            "The heads are added; they should be concatenated, so that the width is h·e."
        ),
        (lambda out: out.mean(1)): (
            "The heads are averaged; they should be concatenated, so that the width is h·e."
        ),
        (lambda out: out.transpose(1, 2)): (
            "Heads and positions are exchanged, but the heads are not joined yet: flatten the last "
            "two axes."
        ),
    },
    praise="The heads of each position are next to each other again.",
    explain=partial(_misplaced, _merge),
)


# ---- sharing keys


def _repeat(k: Tensor, heads: int) -> Tensor:
    return k.repeat_interleave(heads // k.shape[1], dim=1)


check_repeat_heads = Exercise(
    """Does each query head get its key head? `repeat_heads(k (b, g, m, d), h) -> (b, h, m, d)`.

    Query head a reads key head ⌊a g / h⌋. Called with b = 5, g = 2, m = 7, d = 11, h = 6, and again
    with g = 3 and h = 3, 6.
    """,
    right=_repeat,
    cases=lambda: [{"k": _numbered(5, g, 7, 11), "h": h} for g, h in sizes((2, 6), (3, 6), (3, 3))],
    axes="b h m d",
    mistakes={
        (lambda k, h: k.repeat(1, h // k.shape[1], 1, 1)): (
            "The heads are tiled 0, 1, 0, 1, …: consecutive query heads share a key head, so the "
            "order is 0, 0, …, 1, 1, …. That is `repeat_interleave`, not `repeat`."
        ),
        (lambda k, h: k.repeat_interleave(h, dim=1)): (
            "Every key head is repeated h times; h is the number of heads of the result, so each "
            "is repeated h / g times."
        ),
        (lambda k, h: k.repeat(1, h, 1, 1)): (
            "All key heads are repeated h times in turn; each should be repeated h / g times "
            "before the next one comes."
        ),
        (lambda k, h: k.repeat_interleave(h // k.shape[1], dim=2)): (
            "The positions are repeated: repeat along the axis of heads, `dim=1`."
        ),
        (lambda k, h: k.repeat_interleave(h // k.shape[1], dim=0)): (
            "The batch is repeated: repeat along the axis of heads, `dim=1`."
        ),
        (lambda k, h: k[:, :1].expand(-1, h, -1, -1)): (
            "Every query head gets the first key head; the others are not used."
        ),
        (lambda k, h: k): "It returns the key heads unchanged: there are still g of them, not h.",
    },
    praise="Consecutive query heads share a key head: 0, 0, …, 1, 1, …",
    explain=partial(_misplaced, _repeat),
)


# ---- decoding


def _weighted(q: Tensor, keys: Tensor) -> Tensor:
    return masked_softmax(q @ keys.mT * q.shape[-1] ** -0.5)


def _explain_step(function: Function, given: Arguments) -> str | None:
    q, k = given["q_last"], given["keys"]
    weights = implied_weights(function, given, "values")
    if weights is None:
        return None
    hidden = (weights.abs() < 1e-12).all(dim=(0, 1, 2))
    if hidden.any():
        seen = ", ".join(map(str, (~hidden).nonzero().flatten().tolist()))
        return (
            f"The last query attends to positions {seen} of {len(hidden)}; it may attend to "
            "all of them."
        )
    m = k.shape[-2]
    sizes = {"d": 5, "b": 2, "h": 3, "m": m, "(h·d)": 15, "e": m + EXTRA_COLUMNS}
    return explain(weights, q @ k.mT, torch.ones_like(weights, dtype=torch.bool), sizes)


check_step = Exercise(
    """Is it one step of decoding with a cache? `decode(q_last, keys, values) -> (b, h, 1, e)`.

    `q_last` (b, h, 1, d) is the newest query; `keys` (b, h, m, d) and `values` (b, h, m, e) are
    those of all positions so far, the newest included. The result is the last row of causal
    attention. Called with b = 2, h = 3, d = 5, e = 11 and m = 7, 13, 1.
    """,
    right=naive,
    cases=drawn(
        q_last=(2, 3, 1, 5),
        keys=[(2, 3, 7, 5), (2, 3, 13, 5), (2, 3, 1, 5)],
        values=[(2, 3, 7, 11), (2, 3, 13, 11), (2, 3, 1, 11)],
    ),
    axes="b h 1 e",
    mistakes={
        (lambda q, k, v: v[..., :1, :]): "The last query attends to only the first key: a causal "
        "mask for one query is aligned at the top left, as if the query were at position 0. It is "
        "at the end and attends to all keys.",
        (lambda q, k, v: v[..., -1:, :]): (
            "The last query attends to only itself: the cache of earlier keys is not used."
        ),
        (lambda q, k, v: _weighted(q, k[..., :-1, :]) @ v[..., :-1, :]): (
            "The last query does not attend to itself: it may attend to the newest key and value."
        ),
        (lambda q, k, v: _weighted(q, k[..., 1:, :]) @ v[..., 1:, :]): (
            "The first key is not used: the last query attends to all keys from position 0."
        ),
        (lambda q, k, v: v.sum(-2, keepdim=True)): (
            "The rows do not sum to one: the softmax runs over the queries, of which there is one, "
            "so every key gets the weight 1. It belongs over the keys, `dim=-1`."
        ),
        (lambda q, k, v: _weighted(q, k)): (
            "It returns the weights, not the output: they still have to mix the values."
        ),
        (lambda q, k, v: _weighted(k, k) @ v): (
            "The keys are used as queries: the result has a row for each position. Use `q_last`."
        ),
    },
    praise="The newest query attends to every key in the cache, and its row is that of causal "
    "attention.",
    explain=_explain_step,
)
