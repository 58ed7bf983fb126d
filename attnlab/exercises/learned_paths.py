"""Checks of lesson 54: how many paths there are, where they lead, what they weigh, a layer."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_square

# ---- how many paths

KINDS, STEPS = 6, 3
NODES = 300  # of the ring that shows whether a matrix is made

check_path_count = NumberExercise(
    "Is it (K + 1) to the power of s, for K = 6 kinds and s = 3 choices?",
    right=(KINDS + 1) ** STEPS,
    unit="products",
    mistakes={
        KINDS**STEPS: "No step at all is a choice, too: there are K + 1 at each place.",
        (KINDS + 1) ** STEPS - 1: "No step at all, three times, is a product, too.",
        (KINDS + 1) * STEPS: (
            "The choices multiply: each of the first goes with each of the second."
        ),
        KINDS * STEPS: "The choices multiply, and no step at all is one of them.",
        STEPS ** (KINDS + 1): "There are s places, and at each of them one of K + 1 kinds.",
    },
)


# ---- where paths lead


def _by_row_sums(matrix: Tensor) -> Tensor:
    sums = matrix.sum(-1, keepdim=True)
    return matrix / (sums + (sums == 0))


def _product(
    A: Tensor, w: Tensor, *, axis: int = -1, soft: bool = True, turned: bool = False,
) -> Tensor:  # fmt: skip
    chosen = torch.einsum("st,tij->sij", w.softmax(axis) if soft else w, A)
    out = torch.eye(A.shape[-1], dtype=A.dtype)
    for each in reversed(chosen) if turned else chosen:
        out = out @ each
    return out


def _soft_paths(A: Tensor, w: Tensor) -> Tensor:
    return _by_row_sums(_product(A, w))


def _adjacencies() -> Tensor:
    """Two kinds of edges between five nodes; node 4 has none."""
    found = (random_tensors((2, 5, 5), seed=54)[0] > 0.2).double()
    found[:, 4] = 0
    return found


check_soft_paths = Exercise(
    """Which nodes do soft paths lead to? `soft_paths(A, w) -> (n, n)`.

    `A` (t, n, n) are adjacencies, `w` (s, t) the choices before the softmax. The rows of the result
    sum to 1, or are zero. Called with t = 2, n = 5, s = 2 and 3.
    """,
    right=_soft_paths,
    cases=lambda: [
        {"A": _adjacencies(), "w": random_tensors((steps, 2), seed=steps)[0]} for steps in (2, 3)
    ],
    axes="n n",
    mistakes={
        (lambda A, w: _by_row_sums(_product(A, w, turned=True))): (
            "The matrices are multiplied in the wrong order: the first choice stands on the left."
        ),
        (lambda A, w: _by_row_sums(_product(A, w, soft=False))): (
            "The softmax is missing: the choices w become weights that sum to 1 over the kinds."
        ),
        (lambda A, w: _by_row_sums(_product(A, w, axis=0))): (
            "The softmax runs over the choices: it should run over the kinds, the last axis of w."
        ),
        _product: "The product is not divided by its row sums.",
        (lambda A, w: _by_row_sums(_product(A, w).mT).mT): (
            "The product is divided by its column sums: the rows should sum to 1."
        ),
        (lambda A, w: _by_row_sums(torch.einsum("st,tij->ij", w.softmax(-1), A))): (
            "The matrices are added: one step after another is their product."
        ),
        (lambda A, w: _product(A, w) / _product(A, w).sum(-1, keepdim=True)): (
            "A row of zeros was divided by zero: a node from which no path leads on keeps zeros."
        ),
    },
    praise="A product of soft choices is a sum over all paths of their kinds.",
)


# ---- the weight of a path


def _weight(w: Tensor, path: Sequence[int], *, turned: bool = True, soft: bool = True) -> Tensor:
    rows = w.softmax(-1) if soft else w
    kinds = list(reversed(path)) if turned else list(path)
    return torch.stack([row[kind] for row, kind in zip(rows, kinds, strict=True)])


check_path_weight = Exercise(
    """What does a meta-path weigh? `weight(w, path)`: one number, as a tensor.

    `w` (s, t) are the choices before the softmax, `path` s kinds in the order in which they are
    walked, from the node that is attended to. Called with s = 3, t = 4.
    """,
    right=lambda w, path: _weight(w, path).prod(),
    cases=lambda: [{"w": random_tensors((3, 4), seed=57)[0], "path": (2, 0, 3)}],
    axes="",
    mistakes={
        (lambda w, path: _weight(w, path, turned=False).prod()): (
            "The path is read from the wrong end: it starts at the node that is attended to, which "
            "is the last choice."
        ),
        (lambda w, path: _weight(w, path).sum()): (
            "The weights are added: a path needs all of its steps, so that they are multiplied."
        ),
        (lambda w, path: _weight(w, path, soft=False).prod()): (
            "The softmax is missing: w are the choices before it."
        ),
        (lambda w, path: _weight(w, path).mean()): (
            "That is the mean weight of a step; the weight of the path is the product."
        ),
        (lambda w, path: _weight(w, path).min()): (
            "That is the smallest weight of a step; the weight of the path is the product."
        ),
    },
    praise="The weights of all paths sum to 1.",
)


# ---- a layer that goes along edges

_softmax: Callable[[Tensor], Tensor] = partial(torch.softmax, dim=-1)


def _along(
    v: Tensor, w: Tensor, sources: Tensor, targets: Tensor, kinds: Tensor, *,
    turned: bool = False, choose: Callable[[Tensor], Tensor] = _softmax, stay: bool = True,
    sums: bool = True, own: bool = True, half: bool = False, back: bool = False,
) -> Tensor:  # fmt: skip
    """Each matrix applied to vectors; every keyword is a mistake."""
    if back:
        sources, targets = targets, sources
    moved = torch.cat([v, torch.ones_like(v[:, :1])], dim=1)
    rows = choose(w)
    for step in rows if turned else reversed(rows):
        carried = step[kinds][:, None] * moved[sources]
        moved = torch.zeros_like(moved).index_add(0, targets, carried) + stay * step[-1] * moved
    total, reach = moved[:, :-1], moved[:, -1:]
    mean = total / (reach + (reach == 0)) if sums else total
    if not own:
        return mean
    return (mean + v) / (2 if half else 1 + (reach != 0).to(v.dtype))


def _edges_given(*, certain: bool) -> Arguments:
    """Six nodes, two kinds; where the choices are ``certain``, nodes 4 and 5 reach nothing."""
    v, w = random_tensors((6, 3), (3, 3), seed=58)
    if certain:
        w = torch.full_like(w, -1e4)
        w[0, 0] = w[1, 2] = w[2, 1] = 0
    listed = [(0, 1, 0), (2, 1, 1), (1, 3, 0), (3, 0, 1), (4, 2, 0), (2, 4, 1), (0, 3, 0)]
    sources, targets, kinds = torch.tensor(listed).unbind(1)
    return {"v": v, "w": w, "sources": sources, "targets": targets, "kinds": kinds}


def _along_edges_then(function: Function, given: Arguments) -> None:
    ring = torch.arange(NODES)
    v, w = random_tensors((NODES, 3), (3, 3), seed=59)
    large = {"v": v, "w": w, "sources": ring, "targets": (ring + 1) % NODES, "kinds": ring % 2}
    require_no_square(function, large, NODES, "Go along the edges.")


check_along_edges = Exercise(
    """Is it the layer without a product of matrices? `along(v, w, sources, targets, kinds)`.

    `v` (n, e) are vectors, `w` (s, t) the choices before the softmax, the last of the t kinds no
    step at all; the others are (m,), for each edge. It returns (n, e): the mean over where paths
    lead, and then the mean of this and the node's own vector. Called with n = 6, m = 7, e = 3,
    s = t = 3, with soft choices and with certain ones.
    """,
    right=_along,
    cases=lambda: [_edges_given(certain=certain) for certain in (False, True)],
    axes="n e",
    mistakes={
        but(turned=True): (
            "The choices are applied in the wrong order: the last matrix meets the vectors first."
        ),
        but(back=True): (
            "The vectors go against the edges: they are taken at the source and added "
            "at the target."
        ),
        but(choose=torch.clone): "The softmax is missing: w are the choices before it.",
        but(stay=False): "The last kind is missing: with its weight each vector stays where it is.",
        but(sums=False): "The sums are not divided by the row sums of the product, which are what "
        "a column of ones becomes on the same way.",
        but(own=False): "The vector of the node itself is missing from the last mean.",
        but(half=True): (
            "A node that no path reaches has only its own vector: divide by 1 there, not by 2."
        ),
    },
    praise="Its cost grows with the edges, and no n × n matrix was made.",
    then=_along_edges_then,
)
