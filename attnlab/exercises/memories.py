"""Checks of lesson 17: a few fetched keys, a gate, an index's size, a memory in segments."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- the k best keys


def _fetched(q: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    best, at = (keys @ q).topk(k)
    return best.softmax(0) @ values[at]


def _cut(q: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    best, at = (keys @ q).softmax(0).topk(k)
    return best @ values[at]


def _farthest(q: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    best, at = (keys @ q).topk(k, largest=False)
    return best.softmax(0) @ values[at]


check_fetch = Exercise(
    """Is it the softmax over the k best keys alone? `fetch(q, keys, values, k)`.

    `q` is (d,), `keys` (m, d), `values` (m, e), and the scale is 1; it returns (e,).
    """,
    right=_fetched,
    cases=drawn(17, q=(5,), keys=(11, 5), values=(11, 3), k=[3, 1]),
    axes="e",
    mistakes={
        _cut: (
            "The softmax runs over all keys, and then most of its weights are dropped: those that "
            "are left do not sum to one. Choose first."
        ),
        _farthest: "These are the k smallest dot products.",
        (lambda q, keys, values, k: (keys @ q).softmax(0) @ values): (
            "All keys are used: only the k best may take part."
        ),
        (lambda q, keys, values, k: values[(keys @ q).topk(k).indices].mean(0)): (
            "It is the plain mean of the fetched values: weigh them by a softmax of their scores."
        ),
        (lambda q, keys, values, k: _fetched(q * len(q) ** -0.5, keys, values, k)): (
            "The scores are divided by √d: here the scale is 1."
        ),
        (lambda q, keys, values, k: _fetched(q * len(q) ** 0.5, keys, values, k)): (
            "The scores are multiplied by √d: here the scale is 1."
        ),
        (lambda q, keys, values, k: (keys[:k] @ q).softmax(0) @ values[:k]): (
            "It takes the first k keys, not the k with the largest dot products."
        ),
    },
    praise="Three keys of eleven, with weights that sum to one.",
)


# ---- the gate


def _gated(near: Tensor, far: Tensor, b: Tensor) -> Tensor:
    g = torch.sigmoid(b)[:, None, None]
    return (1 - g) * near + g * far


check_gated = Exercise(
    """Is it (1 − g) near + g far, with g = σ(b) of each head? `gated(near, far, b)`.

    `near` and `far` are (h, n, e), `b` is (h,).
    """,
    right=_gated,
    cases=drawn(18, near=(3, 5, 7), far=(3, 5, 7), b=(3,)),
    axes="h n e",
    mistakes={
        (lambda near, far, b: _gated(far, near, b)): (
            "The sides are exchanged: g is the share of the memory, 1 − g that of the local keys."
        ),
        (lambda near, far, b: (1 - b)[:, None, None] * near + b[:, None, None] * far): (
            "b is used as it is: g is σ(b), between 0 and 1."
        ),
        (lambda near, far, b: near + torch.sigmoid(b)[:, None, None] * far): (
            "The local part keeps its whole weight: it needs the factor 1 − g."
        ),
        (lambda near, far, b: near + b.softmax(0)[:, None, None] * (far - near)): (
            "A softmax over the heads makes them compete: each head has a gate of its own, σ(b)."
        ),
        (lambda near, far, b: near + torch.sigmoid(b).mean() * (far - near)): (
            "One gate serves all heads: each head has its own."
        ),
    },
    praise="Each head has its own share of the memory.",
)


# ---- the size of an index

check_index_ratio = NumberExercise(
    "Is it the ratio for 12 layers of 16 heads, keys and values against states?",
    right=2 * 12,
    unit="times",
    mistakes={
        12: "That counts the keys alone; the values of each layer are stored as well.",
        24 * 16: (
            "The heads of a layer have together as many numbers as one state: dim, not h · dim."
        ),
        12 * 16: (
            "The heads of a layer have together as many numbers as one state, and values count."
        ),
        1 / 24: "That is the inverse: how many times as many numbers do keys and values need?",
    },
)


# ---- a memory in segments


def _read(
    q: Tensor, k: Tensor, v: Tensor, g: float, segment: int, memory: int, neighbours: int, *,
    early: bool = False, stored_first: bool = False, oldest: bool = False, unbounded: bool = False,
    whole: bool = False, full_when_empty: bool = False, joint: bool = False,
) -> Tensor:  # fmt: skip
    """Segment by segment; every keyword is a mistake."""
    rows = []
    for i in range(len(q)):
        start = i // segment * segment
        end = min(start + segment, len(q)) if stored_first else i + 1 if early else start
        stored = list(range(end))
        if not unbounded:
            stored = stored[:memory] if oldest else stored[-memory:]
        near = list(range(start, i + 1))
        if stored and not whole:
            best = (k[stored] @ q[i]).topk(min(neighbours, len(stored))).indices
            stored = [stored[j] for j in best.tolist()]
        if joint:
            both = near + stored
            rows.append((k[both] @ q[i]).softmax(0) @ v[both])
            continue
        local = (k[near] @ q[i]).softmax(0) @ v[near]
        if not stored:
            rows.append(local if full_when_empty else (1 - g) * local)
            continue
        rows.append((1 - g) * local + g * (k[stored] @ q[i]).softmax(0) @ v[stored])
    return torch.stack(rows)


def _read_cases() -> Iterator[Arguments]:
    for sizes in ((3, 5, 2), (4, 4, 4)):
        yield _reading(*sizes)


check_read = Exercise(
    """Is it a memory read in segments? `read(q, k, v, g, segment, memory, neighbours)`.

    One head: q and k are (n, d), v is (n, e), n is no multiple of the segment, the scale is 1. It
    returns (n, e).
    """,
    right=_read,
    cases=_read_cases,
    axes="n e",
    mistakes={
        but(stored_first=True): (
            "The whole segment is stored before its queries search, so they fetch keys of their "
            "own future: search first, store the segment afterwards."
        ),
        but(early=True): (
            "The memory holds keys of the present segment: search first, store the segment "
            "afterwards."
        ),
        but(oldest=True): "A full memory drops the newest keys: it should drop the oldest.",
        but(unbounded=True): (
            "The memory grows without bound: it keeps the newest `memory` keys only."
        ),
        but(whole=True): (
            "Every key of the memory takes part: only the `neighbours` best of each query may."
        ),
        but(full_when_empty=True): (
            "In the first segment the memory is empty, and its output is zero: the result is 1 − g "
            "times the local one."
        ),
        but(joint=True): (
            "One softmax runs over local and fetched keys: here each has a softmax of its own, and "
            "g joins the two."
        ),
        (lambda q, k, v, g, *rest: _read(q, k, v, 1 - g, *rest)): (
            "g is the share of the memory; here it is that of the local keys."
        ),
    },
    praise="A bounded memory, searched before each segment is stored.",
)


def _reading(segment: int, memory: int, neighbours: int) -> Arguments:
    q, k, v = random_tensors((14, 5), (14, 5), (14, 3), seed=19)
    sizes = {"segment": segment, "memory": memory, "neighbours": neighbours}
    return {"q": q, "k": k, "v": v, "g": 0.3, **sizes}
