"""Checks of lesson 30: how far a memory reaches, its update, what a mean tells, a reader."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, run
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function, Mistake

# ---- how far a memory reaches

check_reach = NumberExercise(
    "Is it the reach of 12 layers, segments of 128 and a memory of 384, of a first token?",
    right=12 * 384,
    unit="tokens",
    mistakes={
        384: (
            "That is the reach of one layer: each layer above looks back from where that one ends."
        ),
        12 * 128: "Each layer reaches back by its memory, not by a segment.",
        12 * (384 + 128): "The first token of a segment has nothing of its own segment before it.",
        11 * 384: "All twelve layers have a memory, the first one included.",
    },
)


# ---- the memory of the next segment


def _next_memory(memory: Tensor, segment: Tensor, M: int, *, detach: bool = True) -> Tensor:
    both = torch.cat([memory, segment])
    both = both.detach() if detach else both
    return both[max(0, len(both) - M) :]


_GRADIENT = (
    "The numbers are right, but the result still has a gradient: the next loss would go back into "
    "this segment, and from there into all before it. Detach it."
)


def _next_memory_cases() -> Iterator[Arguments]:
    memory, segment = random_tensors((5, 3), (4, 3), seed=30)
    for kept, M in ((5, 6), (0, 6), (3, 3), (0, 0)):
        yield {"memory": memory[:kept], "segment": segment, "M": M}


def _next_memory_then(function: Function, given: Arguments) -> None:
    learning = {**given, "segment": given["segment"].clone().requires_grad_(), "M": 6}
    if getattr(run(function, learning).value, "requires_grad", False):
        raise Mistake(_GRADIENT)


check_next_memory = Exercise(
    """Are the last M inputs kept, without a gradient? `next_memory(memory, segment, M)`.

    `memory` is (m, dim), `segment` (c, dim), m at most M; it returns (up to M, dim).
    """,
    right=_next_memory,
    cases=_next_memory_cases,
    axes="m dim",
    mistakes={
        but(detach=False): _GRADIENT,
        (lambda memory, segment, M: torch.cat([memory, segment])[-M:]): (
            "With M = 0 the slice [-0:] is the whole tensor, not nothing: count from the front."
        ),
        (lambda memory, segment, M: torch.cat([memory, segment])[:M]): (
            "It keeps the oldest inputs. The newest are to be kept, and the oldest to be dropped."
        ),
        (lambda memory, segment, M: segment[max(0, len(segment) - M) :]): (
            "The old memory is lost: where M is longer than a segment, some of it stays."
        ),
        (lambda memory, segment, M: _next_memory(segment, memory, M)): (
            "The segment comes first here: the memory is older and stands before it."
        ),
        (lambda memory, segment, M: torch.cat([memory, segment])): (
            "Nothing is dropped: a memory has at most M inputs."
        ),
    },
    praise="The newest M inputs, as constants.",
    then=_next_memory_then,
)


# ---- what a perfect reader of means pays

_FLOOR = 3 * math.log(2) / 7

check_mean_floor = NumberExercise(
    """Is it the mean loss at places 0 to 6 of a perfect reader of means of two inputs each?

    For a period of 24, segments and a memory of 16, and two different symbols in each group.
    """,
    right=_FLOOR,
    tolerance=0.02,
    unit="nats",
    mistakes={
        math.log(2) / 2: (
            "That is the mean over whole groups. Which symbol of its group does place 0 ask for, "
            "and which of that group has been read in this segment?"
        ),
        4 * math.log(2) / 7: (
            "Place 0 pays nothing: the first symbol of its group is the one that it has just read."
        ),
        math.log(2): "That is paid at every second place. Take the mean over the places 0 to 6.",
        4.97 / 7: "That is the mean for rate 4; here each vector is the mean of two inputs.",
        3 / 7: "Those are bits: in nats each choice between two symbols costs ln 2.",
        3 * math.log(2): "That is the sum over the seven places. Divide by 7.",
    },
)


# ---- a reader that keeps what was used most


def _read(
    x: Tensor, Wq: Tensor, Wk: Tensor, Wv: Tensor, c: int, M: int, k: int, s: int, *,
    future: bool = False, hidden: bool = False, newest: bool = False, forget: bool = False,
    endless: bool = False, oldest: bool = False, mean: bool = False, least: bool = False,
    by_use: bool = False, last: bool = False, own: bool = False, scaled: bool = True,
    early: bool = False,
) -> Tensor:  # fmt: skip
    """Segment by segment; every keyword is a mistake."""
    short, memory, used, out = x[:0], x[:0], x.new_zeros(0), []
    for h in x.split(c):
        context = torch.cat([short, memory, h])
        q, keys, values = h @ Wq, context @ Wk, context @ Wv
        scores = q @ keys.mT * (q.shape[1] ** -0.5 if scaled else 1)
        before = 0 if hidden else len(context) - len(h)
        later = torch.ones(len(h), len(context)).triu(before + 1).bool()
        weights = (scores if future else scores.masked_fill(later, -torch.inf)).softmax(-1)
        out.append(weights @ values)
        uses = weights.sum(0)[len(short) :]
        uses = torch.cat([uses[: len(memory)], uses[len(memory) :] * own])
        used = uses + torch.cat([used * (not last), x.new_zeros(len(h))])
        memory = torch.cat([memory, h])
        while len(memory) > (M - c if early else M):
            part = slice(-c, None) if newest else slice(None, c)
            old, counts = memory[part], used[part]
            rest = slice(None, -c) if newest else slice(c, None)
            memory, used = memory[rest], used[rest]
            if mean:
                new = old[: len(old) // s * s].unflatten(0, (-1, s)).mean(1)
            else:
                best = counts.topk(len(old) // s, largest=not least).indices
                new = old[best if by_use else best.sort().values]
            short = short if forget else torch.cat([short, new])
            short = short if endless else short[:k] if oldest else short[max(0, len(short) - k) :]
    return torch.cat(out)


check_most_used = Exercise(
    """Is it a reader that keeps what was used most? `read(x, Wq, Wk, Wv, c, M, k, s)`.

    One head, scores by content alone, divided by √d: `x` is (n, dim), the matrices (dim, d) or
    (dim, e). Of c inputs that leave the memory, the ⌊c / s⌋ with the largest sums of weights stay,
    and the newest k of those; M is a multiple of c; n need not be. Returns (n, e).
    """,
    right=_read,
    cases=lambda: [_reading(*sizes) for sizes in ((4, 8, 3, 2), (3, 3, 2, 2))],
    axes="n e",
    mistakes={
        but(future=True): "Queries attend to later tokens of their own segment: mask them.",
        but(hidden=True): "The mask begins at the first column: a query attends to both memories "
        "whole, and the triangle stands to the right of their columns.",
        but(newest=True): (
            "What is chosen from are the newest inputs. The oldest c leave the memory."
        ),
        but(forget=True): (
            "What leaves the memory is lost: keep the most used of it, and attend to them."
        ),
        but(endless=True): "What is kept grows without bound: keep the newest k.",
        but(oldest=True): "The oldest k are kept: the newest should be, and the oldest dropped.",
        but(mean=True): "Those are means of s inputs. Here inputs are kept as they are.",
        but(least=True): "Those are the least used inputs.",
        but(by_use=True): "The kept inputs stand in the order of their use, so the wrong ones are "
        "dropped later: keep them in the order of the text.",
        but(last=True): "Only the last segment is counted: add up the weights of all queries since "
        "an input entered the memory.",
        but(own=True): "The queries of an input's own segment are counted, too: count from the "
        "time it stands in the memory.",
        but(scaled=False): "The scores are not divided by √d.",
        but(early=True): "Inputs leave the memory one segment too early: it holds M of them.",
    },
    praise="Segment, memory and what was used most before it, all in one softmax.",
)


def _reading(c: int, M: int, k: int, s: int) -> Arguments:
    x, *matrices = random_tensors((26, 5), (5, 7), (5, 7), (5, 3), seed=30)
    names = ("Wq", "Wk", "Wv")
    sizes = {"c": c, "M": M, "k": k, "s": s}
    return {"x": x, **dict(zip(names, matrices, strict=True)), **sizes}
