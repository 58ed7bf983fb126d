"""A check of lesson 50: the mean along each branch of a tree."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

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


_AVERAGE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The sum has the leaf and the count has not: one more stands on a branch than its nodes. "
        "The code that the authors released divides like this; the paper counts the leaf.",
        _inside(lambda s, covers: s.cumsum(0)[1:] / _nodes(covers)),
    ),
    (
        "The leaf is missing from the sum, although it is counted: row 0 of S stands on every "
        "branch.",
        _inside(lambda s, covers: s[1:].cumsum(0) / (_nodes(covers) + 1)),
    ),
    (
        "The leaf is missing: this is the mean of the nodes alone, and row 0 of S stands on every "
        "branch, too.",
        _inside(lambda s, covers: s[1:].cumsum(0) / _nodes(covers)),
    ),
    (
        "Nothing is divided: these are the sums along the branches.",
        _inside(lambda s, covers: s.cumsum(0)[1:]),
    ),
    (
        "The mean counts every row down to the node's own. Count those that are above the leaf: "
        "others hold a zero there that is not a value.",
        _inside(
            lambda s, covers: (
                s.cumsum(0)[1:] / torch.arange(2, len(s) + 1, dtype=s.dtype)[:, None, None]
            )
        ),
    ),
    (
        "The mean is that of the node and the leaf alone; the nodes between them are missing.",
        _inside(lambda s, covers: (s[:1] + s[1:]) / 2),
    ),
    (
        "It goes down from the root and should go up from the leaf: rows stand the deepest first, "
        "so add from the first row on.",
        _inside(
            lambda s, covers: (
                (s[:1] + s[1:].flip(0).cumsum(0).flip(0))
                / (covers.flip(0).cumsum(0).flip(0)[..., None] + 1)
            )
        ),
    ),
    (
        "Whether a leaf is below a node is decided by `covers` and not by whether a vector is "
        "zero: a node's own value can be zero.",
        lambda s, covers: _averaged(s, (s[1:] != 0).any(-1)),
    ),
    (
        "Outside the subtrees it should be zero: multiply by `covers` at the end.",
        lambda s, covers: s.cumsum(0)[1:] / (covers.cumsum(0)[..., None] + 1),
    ),
    (
        "It adds along the leaves, from left to right. The branch goes through the rows: axis 0.",
        _inside(lambda s, covers: s.cumsum(1)[1:] / (covers.cumsum(1)[..., None] + 1)),
    ),
)


@returns_verdict
def check_upward_average(function: Function) -> str:
    """Is it the mean along each branch? `upward_average(s (m + 1, l, e), covers (m, l)) ->
    (m, l, e)`.

    Row 0 of s has the leaves, row i + 1 node i, the deepest first, and one node has the value zero.
    """
    covers = torch.tensor(_COVERS, dtype=torch.bool)
    given = {"s": _interpolated(covers), "covers": covers}
    require(function, given, _averaged, shape="m l e", known_mistakes=_AVERAGE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Every branch is averaged from its leaf up to the node, the leaf counted."
