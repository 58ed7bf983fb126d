"""A check of lesson 50: the mean along each branch of a tree."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_loop

_COVERS = (
    (0, 0, 1, 1, 0, 0, 0),
    (0, 0, 0, 0, 0, 1, 1),
    (0, 1, 1, 1, 0, 0, 0),
    (1, 1, 1, 1, 1, 1, 1),
)  # 7 leaves, 4 nodes, the deepest first


def _interpolated(covers: Tensor) -> Tensor:
    """S (m + 1, l, e); the value of the third node is zero, although it has leaves."""
    (s,) = random_tensors((len(covers) + 1, covers.shape[1], 2))
    s[1:] = s[1:, :1].expand(-1, covers.shape[1], -1) * covers[..., None]
    s[3] = 0
    return s


def _averaged(s: Tensor, covers: Tensor) -> Tensor:
    count = covers.cumsum(0)[..., None] + 1
    return s.cumsum(0)[1:] / count * covers[..., None]


def _inside(mean: Callable[[Tensor, Tensor], Tensor]) -> Function:
    """A mistaken mean, with zeros outside the subtrees."""
    return lambda s, covers: mean(s, covers) * covers[..., None]


def _nodes(covers: Tensor) -> Tensor:
    """How many nodes are on each branch, at least 1."""
    return covers.cumsum(0).clamp(min=1)[..., None]


def _upward_average_cases(times: int = 1) -> Iterator[Arguments]:
    covers = torch.tensor(_COVERS, dtype=torch.bool)
    covers = covers.repeat_interleave(2 * times - 1, 0).repeat(1, times)
    yield {"s": _interpolated(covers), "covers": covers}


def _upward_average_then(function: Function, given: Arguments) -> None:
    (large,) = _upward_average_cases(2)
    require_no_loop(function, given, large, over="nodes or leaves")


check_upward_average = Exercise(
    """Is it the mean along each branch? `upward_average(s (m + 1, l, e), covers (m, l)) ->
    (m, l, e)`.

    Row 0 of s has the leaves, row i + 1 node i, the deepest first, and one node has the value zero.
    """,
    right=_averaged,
    cases=_upward_average_cases,
    axes="m l e",
    mistakes={
        _inside(lambda s, covers: s.cumsum(0)[1:] / _nodes(covers)): (
            "The sum has the leaf and the count has not: one more stands on a branch than its "
            "nodes. The code that the authors released divides like this; the paper counts the "
            "leaf."
        ),
        _inside(lambda s, covers: s[1:].cumsum(0) / (_nodes(covers) + 1)): (
            "The leaf is missing from the sum, although it is counted: row 0 of S stands on every "
            "branch."
        ),
        _inside(lambda s, covers: s[1:].cumsum(0) / _nodes(covers)): (
            "The leaf is missing: this is the mean of the nodes alone, and row 0 of S stands on "
            "every branch, too."
        ),
        _inside(lambda s, covers: s.cumsum(0)[1:]): (
            "Nothing is divided: these are the sums along the branches."
        ),
        _inside(
            lambda s, covers: (
                s.cumsum(0)[1:] / torch.arange(2, len(s) + 1, dtype=s.dtype)[:, None, None]
            )
        ): (
            "The mean counts every row down to the node's own. Count those that are above the "
            "leaf: others hold a zero there that is not a value."
        ),
        _inside(lambda s, covers: (s[:1] + s[1:]) / 2): (
            "The mean is that of the node and the leaf alone; the nodes between them are missing."
        ),
        _inside(
            lambda s, covers: (
                (s[:1] + s[1:].flip(0).cumsum(0).flip(0))
                / (covers.flip(0).cumsum(0).flip(0)[..., None] + 1)
            )
        ): (
            "It goes down from the root and should go up from the leaf: rows stand the deepest "
            "first, so add from the first row on."
        ),
        (lambda s, covers: _averaged(s, (s[1:] != 0).any(-1))): (
            "Whether a leaf is below a node is decided by `covers` and not by whether a vector is "
            "zero: a node's own value can be zero."
        ),
        (lambda s, covers: s.cumsum(0)[1:] / (covers.cumsum(0)[..., None] + 1)): (
            "Outside the subtrees it should be zero: multiply by `covers` at the end."
        ),
        _inside(lambda s, covers: s.cumsum(1)[1:] / (covers.cumsum(1)[..., None] + 1)): (
            "It adds along the leaves, from left to right. The branch goes through the rows: axis "
            "0."
        ),
    },
    praise="Every branch is averaged from its leaf up to the node, the leaf counted.",
    then=_upward_average_then,
)


# ---- two numbers

check_root_value = NumberExercise(
    "Is it the value of the root 6 above the leaf 2 and the node 4, which has the leaf 3?",
    right=((2 + 6) / 2 + (3 + 4 + 6) / 3) / 2,
    tolerance=1e-3,
    unit="(the value of the root)",
    mistakes={
        4.375: (
            "That is the mean from the bottom up, with the new value of the node in place of its "
            "own: a branch holds the values that the tokens have at the beginning."
        ),
        ((2 + 6) / 2 + (4 + 6) / 2) / 2: (
            "The leaf 3 is missing from its branch: a branch is the leaf and the nodes above it."
        ),
        (6 + (4 + 6) / 2) / 2: (
            "The leaves are missing: these are the means of the nodes on the branches alone."
        ),
        ((2 + 6) / 1 + (3 + 4 + 6) / 2) / 2: (
            "The leaf is missing from the counts: a branch with one node has two vectors."
        ),
        (2 + 6) / 2 + (3 + 4 + 6) / 3: (
            "That is the sum of the two branch means. Divide by the number of leaves."
        ),
        (2 + 6 + 3 + 4 + 6) / 5: "All branches were thrown together: average each branch first.",
        (6 + 2 + 4 + 3) / 4: (
            "That is the mean of the four values of the tree. The root stands on both branches."
        ),
        3.5: "The branch to the leaf 2 has one node, the root: the node 4 is not above this leaf.",
        (3 + 4 + 6) / 3: "That is one of the branches. The root has two leaves.",
    },
)


check_chain_pairs = NumberExercise(
    "Is it how many pairs the mask leaves in a right-branching tree of 64 leaves?",
    right=64 * 64 + sum(2 * i + 1 for i in range(1, 64)),
    tolerance=1e-5,
    unit="pairs",
    mistakes={
        4801: "That is the balanced tree. Here the subtrees are larger.",
        sum(2 * i + 1 for i in range(1, 64)): (
            "Those are the rows of the nodes. Each leaf attends to all leaves, too."
        ),
        64 * 64 + sum(2 * i for i in range(1, 64)): (
            "A node belongs to its own subtree: one more pair for each node."
        ),
        64 * 64 + sum(i + 1 for i in range(1, 64)): (
            "The nodes below a node are missing: it attends to its leaves and to its nodes."
        ),
        64 * 64: "Those are the rows of the leaves. The nodes attend to their subtrees, too.",
        (64 + 63) ** 2: "Those are all pairs.",
    },
)
