"""Checks of lesson 50: which tokens a node may attend to, and the mean along each branch."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# ---- the subtree mask

# Six leaves, then nodes: 6, the root, above 7 10; 7 above 0 8 3; 8 above 9 alone; 9 above 1 2;
# 10 above 4 5.
_PARENTS = (7, 9, 9, 7, 10, 10, -1, 6, 7, 8, 6)
_MIXED = (2, 2, 4, 4, -1)  # nodes 2 and 4 stand among the leaves 0 1 3; the root is last


def _below(parents: Tensor) -> Tensor:
    """(n, n): whether the second token is in the subtree of the first."""
    n = len(parents)
    below = torch.eye(n, dtype=torch.bool)
    for token in range(n):
        above = int(parents[token])
        while above != -1:
            below[above, token] = True
            above = int(parents[above])
    return below


def _leaf(parents: Tensor) -> Tensor:
    return ~(parents[:, None] == torch.arange(len(parents))).any(0)


def _subtrees(parents: Tensor) -> Tensor:
    leaf = _leaf(parents)
    return torch.where(leaf[:, None], leaf.expand(len(parents), -1), _below(parents))


def _children(parents: Tensor) -> Tensor:
    return parents == torch.arange(len(parents))[:, None]


def _rows_of(nodes: Callable[[Tensor], Tensor], leaves: Callable[[Tensor], Tensor]) -> Function:
    """The mask whose rows of nodes and of leaves follow one rule each."""

    def mask(parents: Tensor) -> Tensor:
        return torch.where(_leaf(parents)[:, None], leaves(parents), nodes(parents))

    return mask


def _all_leaves(parents: Tensor) -> Tensor:
    return _leaf(parents).expand(len(parents), -1)


def _own(parents: Tensor) -> Tensor:
    return torch.eye(len(parents), dtype=torch.bool)


_MASK_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "A leaf attends to itself alone: the rule of nodes is used for leaves, too. A leaf attends "
        "to all leaves.",
        _below,
    ),
    (
        "A leaf attends to nodes as well: its row should be True at leaves alone.",
        _rows_of(_below, lambda parents: torch.ones(2 * [len(parents)], dtype=torch.bool)),
    ),
    (
        "A node does not attend to itself: it belongs to its own subtree.",
        _rows_of(lambda parents: _below(parents) & ~_own(parents), _all_leaves),
    ),
    (
        "A node attends to its children and not to what is below them: follow the parents up to "
        "the root.",
        _rows_of(lambda parents: _children(parents) | _own(parents), _all_leaves),
    ),
    (
        "A node attends to its leaves and not to the nodes below it, itself included.",
        _rows_of(lambda parents: _below(parents) & _leaf(parents), _all_leaves),
    ),
    (
        "A node attends to itself and to what is above it: rows are queries, and row i should be "
        "True where i is above the column.",
        _rows_of(lambda parents: _below(parents).mT, _all_leaves),
    ),
    (
        "A node attends to every token: its row should be True in its subtree alone.",
        _rows_of(lambda parents: torch.ones(2 * [len(parents)], dtype=torch.bool), _all_leaves),
    ),
    (
        "It is inverted: True means that the query MAY attend to the key.",
        lambda parents: ~_subtrees(parents),
    ),
    (
        "These are additive numbers, 0 and −∞. The mask is asked for: True where it may attend.",
        lambda parents: torch.zeros(2 * [len(parents)]).masked_fill(
            ~_subtrees(parents), float("-inf")
        ),
    ),
)


@returns_verdict
def check_subtree_mask(function: Function) -> str:
    """Does each node attend to its subtree? `subtree_mask(parents (n,)) -> (n, n)`.

    Called with three trees: one with a node above a single child, one whose nodes stand among the
    leaves, and a leaf alone.
    """
    for parents in (_PARENTS, _MIXED, (-1,)):
        given = {"parents": torch.tensor(parents)}
        require(function, given, _subtrees, shape="n n", known_mistakes=_MASK_MISTAKEN)
        check_arguments(function, given)
    return "Nodes attend to their subtrees, leaves to all leaves, wherever they stand."


# ---- the mean along each branch

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
