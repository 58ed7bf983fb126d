"""Checks of lesson 30: how far a memory reaches, its update, a compression, a reader with both."""

from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    check_arguments_and_dtype,
    note_mistakes,
    random_tensors,
    require,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, Verdict, returns_verdict

# ---- how far a memory reaches

_REACH_MISTAKEN: dict[float, str] = {
    384: "That is the reach of one layer: each layer above looks back from where that one ends.",
    12 * 128: "Each layer reaches back by its memory, not by a segment.",
    12 * (384 + 128): "The first token of a segment has nothing of its own segment before it.",
    11 * 384: "All twelve layers have a memory, the first one included.",
}


def check_reach(tokens: object) -> Verdict:
    """Is it the reach of 12 layers, segments of 128 and a memory of 384, of a first token?"""
    return check_number(tokens, 12 * 384, unit="tokens", mistakes=_REACH_MISTAKEN)


# ---- the memory of the next segment


def _next_memory(memory: Tensor, segment: Tensor, M: int) -> Tensor:
    both = torch.cat([memory, segment]).detach()
    return both[max(0, len(both) - M) :]


_GRADIENT = (
    "The numbers are right, but the result still has a gradient: the next loss would go back into "
    "this segment, and from there into all before it. Detach it."
)
_NEXT_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "With M = 0 the slice [-0:] is the whole tensor, not nothing: count from the front.",
        lambda memory, segment, M: torch.cat([memory, segment])[-M:],
    ),
    (
        "It keeps the oldest inputs. The newest are to be kept, and the oldest to be dropped.",
        lambda memory, segment, M: torch.cat([memory, segment])[:M],
    ),
    (
        "The old memory is lost: where M is longer than a segment, some of it stays.",
        lambda memory, segment, M: segment[max(0, len(segment) - M) :],
    ),
    (
        "The segment comes first here: the memory is older and stands before it.",
        lambda memory, segment, M: _next_memory(segment, memory, M),
    ),
    (
        "Nothing is dropped: a memory has at most M inputs.",
        lambda memory, segment, M: torch.cat([memory, segment]),
    ),
)


@returns_verdict
def check_next_memory(function: Function) -> str:
    """Are the last M inputs kept, without a gradient? `next_memory(memory, segment, M)`.

    `memory` is (m, dim), `segment` (c, dim), m at most M; it returns (up to M, dim).
    """
    note_mistakes([_GRADIENT])
    memory, segment = random_tensors((5, 3), (4, 3), seed=30)
    cases: tuple[Arguments, ...] = (
        {"memory": memory, "segment": segment, "M": 6},
        {"memory": memory[:0], "segment": segment, "M": 6},
        {"memory": memory[:3], "segment": segment, "M": 3},
        {"memory": memory[:0], "segment": segment, "M": 0},
    )
    for given in cases:
        require(function, given, _next_memory, shape="m dim", known_mistakes=_NEXT_MISTAKEN)
    check_arguments_and_dtype(function, cases[0])
    learning = {**cases[0], "segment": segment.requires_grad_()}
    if getattr(run(function, learning).value, "requires_grad", False):
        raise Mistake(_GRADIENT)
    return "The newest M inputs, as constants."


# ---- a compression


def _compress(old: Tensor, s: int) -> Tensor:
    whole = len(old) // s
    return old[: whole * s].view(whole, s, -1).mean(1)


_COMPRESS_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The means are over inputs that stand far apart: s inputs in a row belong together.",
        lambda old, s: old[: len(old) // s * s].view(s, len(old) // s, -1).mean(0),
    ),
    (
        "That is the sum of each s inputs. Divide by s.",
        lambda old, s: s * _compress(old, s),
    ),
    (
        "It takes one input of each s and drops the others.",
        lambda old, s: old[: len(old) // s * s : s],
    ),
    (
        "That is the maximum of each s inputs, another compression of the paper.",
        lambda old, s: old[: len(old) // s * s].view(len(old) // s, s, -1).amax(1),
    ),
    (
        "The inputs that are left over at the end make no vector: there are ⌊n / s⌋.",
        lambda old, s: torch.stack([part.mean(0) for part in old.split(s)]),
    ),
)


@returns_verdict
def check_compress(function: Function) -> str:
    """Is it the mean of each s inputs in a row? `compress(old, s)`: (n, dim) to (⌊n / s⌋, dim)."""
    (old,) = random_tensors((11, 3), seed=31)
    for s in (3, 2, 1):
        require(
            function, {"old": old, "s": s}, _compress, shape="r dim",
            known_mistakes=_COMPRESS_MISTAKEN,
        )  # fmt: skip
    check_arguments_and_dtype(function, {"old": old, "s": 3})
    return "Three vectors of eleven inputs; two inputs are left out."


# ---- a reader with both memories


def _read(
    x: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, c: int, M: int, k: int, s: int, *,
    future: bool = False, newest: bool = False, forget: bool = False, endless: bool = False,
    first: bool = False, scaled: bool = True, early: bool = False,
) -> Tensor:  # fmt: skip
    """Segment by segment; every keyword is a mistake."""
    compressed, memory, out = x[:0], x[:0], []
    for h in x.split(c):
        context = torch.cat([compressed, memory, h])
        q, keys, values = h @ Wq, context @ Wk, context @ Wv
        scores = q @ keys.mT * (q.shape[1] ** -0.5 if scaled else 1)
        later = torch.ones(len(h), len(context)).triu(len(context) - len(h) + 1).bool()
        scores = scores if future else scores.masked_fill(later, -torch.inf)
        out.append(scores.softmax(-1) @ values)
        memory = torch.cat([memory, h])
        while len(memory) > (M - c if early else M):
            old = memory[-c:] if newest else memory[:c]
            memory = memory[:-c] if newest else memory[c:]
            new = old[: len(old) // s] if first else _compress(old, s)
            compressed = compressed if forget else torch.cat([compressed, new])
            compressed = compressed if endless else compressed[max(0, len(compressed) - k) :]
    return torch.cat(out)


_READ_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Queries attend to later tokens of their own segment: mask them.",
        partial(_read, future=True),
    ),
    (
        "What is compressed are the newest inputs. The oldest c leave the memory.",
        partial(_read, newest=True),
    ),
    (
        "What leaves the memory is lost: compress it, and attend to the result.",
        partial(_read, forget=True),
    ),
    (
        "The compressed memory grows without bound: keep its newest k vectors.",
        partial(_read, endless=True),
    ),
    (
        "The first inputs of what leaves are kept in place of the means of s in a row.",
        partial(_read, first=True),
    ),
    ("The scores are not divided by √d.", partial(_read, scaled=False)),
    (
        "Inputs leave the memory one segment too early: it holds M of them.",
        partial(_read, early=True),
    ),
)


@returns_verdict
def check_compressive(function: Function) -> str:
    """Is it a reader with both memories? `read(x, Wq, Wk, Wv, c, M, k, s)`.

    One head, scores by content alone, divided by √d: `x` is (n, dim), the matrices (dim, d) or
    (dim, e), the compression is the mean, M is a multiple of c; n need not be. Returns (n, e).
    """
    for sizes in ((4, 4, 3, 2), (3, 6, 2, 3)):
        given = _reading(*sizes)
        require(function, given, _read, shape="n e", known_mistakes=_READ_MISTAKEN)
    check_arguments_and_dtype(function, _reading(4, 4, 3, 2))
    return "Segment, memory and compressed memory, all in one softmax."


def _reading(c: int, M: int, k: int, s: int) -> Arguments:
    x, *matrices = random_tensors((26, 5), (5, 7), (5, 7), (5, 3), seed=32)
    names = ("Wq", "Wk", "Wv")
    sizes = {"c": c, "M": M, "k": k, "s": s}
    return {"x": x, **dict(zip(names, matrices, strict=True)), **sizes}
