"""Checks of lesson 51: the depth of tokens, the mask of subtrees, and a node of a Tree-LSTM."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# Tokens 0 … 3 are leaves, 6 the root. The first tree is a chain, the second is not.
_TREES = ((4, 4, 5, 6, 5, 6, -1), (4, 4, 5, 5, 6, 6, -1))

# ---- depths


def _above(parents: Sequence[int], token: int) -> list[int]:
    found = []
    while parents[token] >= 0:
        token = parents[token]
        found.append(token)
    return found


def _depths(parents: Sequence[int]) -> Tensor:
    return torch.tensor([len(_above(parents, token)) for token in range(len(parents))])


def _heights(parents: Sequence[int]) -> Tensor:
    found = [0] * len(parents)
    for token in range(len(parents)):
        for steps, node in enumerate(_above(parents, token), start=1):
            found[node] = max(found[node], steps)
    return torch.tensor(found)


_DEPTHS_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The token itself is counted: the root has nothing above it and the depth 0.",
        lambda parents: _depths(parents) + 1,
    ),
    (
        "These are heights, counted from the leaves up; the depth counts the nodes above a token.",
        _heights,
    ),
    (
        "It stops at the parent: go on from there until the parent is −1.",
        lambda parents: _depths(parents).clamp(max=1),
    ),
    (
        "It counts down from the deepest token: the root has the depth 0.",
        lambda parents: _depths(parents).max() - _depths(parents),
    ),
    (
        "It counts the children of each token: count the nodes above it.",
        lambda parents: torch.tensor([parents.count(token) for token in range(len(parents))]),
    ),
)


@returns_verdict
def check_tree_depths(function: Function) -> str:
    """How many nodes are above each token? `depths(parents) -> (n,)`.

    `parents` are n whole numbers, −1 at the root. Called with two trees of 7 tokens.
    """
    for parents in _TREES:
        require(
            function,
            {"parents": parents},
            lambda parents: _depths(parents).double(),
            shape="n",
            known_mistakes=_DEPTHS_MISTAKEN,
        )
    return "A Tree-LSTM takes as many steps up as the deepest token has nodes above it."


# ---- the mask


def _mask(parents: Sequence[int]) -> Tensor:
    found = _below(parents) | torch.eye(len(parents), dtype=torch.bool)
    leaf = _is_leaf(parents)
    return found | (leaf[:, None] & leaf)


def _below(parents: Sequence[int]) -> Tensor:
    """(n, n): whether the second token is below the first."""
    n = len(parents)
    return torch.tensor([[i in _above(parents, j) for j in range(n)] for i in range(n)])


def _is_leaf(parents: Sequence[int]) -> Tensor:
    return torch.tensor([token not in parents for token in range(len(parents))])


def _children_only(parents: Sequence[int]) -> Tensor:
    children = torch.tensor(parents) == torch.arange(len(parents))[:, None]
    return children | torch.eye(len(parents), dtype=torch.bool) | (_mask(parents) & ~_node(parents))


def _node(parents: Sequence[int]) -> Tensor:
    return ~_is_leaf(parents)[:, None].expand(len(parents), len(parents))


_MASK_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Rows and columns are exchanged: the row is the query, which attends to what is below it.",
        lambda parents: _mask(parents).mT,
    ),
    (
        "A node should attend to itself, too: it belongs to its own subtree.",
        lambda parents: (
            _mask(parents) & ~(torch.eye(len(parents), dtype=torch.bool) & _node(parents))
        ),
    ),
    (
        "A leaf attends to all leaves, not to itself alone.",
        lambda parents: _below(parents) | torch.eye(len(parents), dtype=torch.bool),
    ),
    (
        "Nodes attend to their children alone: the subtree holds all that is below, down to the "
        "leaves.",
        _children_only,
    ),
    (
        "Nodes attend to leaves alone: the nodes of the subtree belong to it.",
        lambda parents: _mask(parents) & _is_leaf(parents),
    ),
    (
        "Leaves attend to nodes: a leaf attends to leaves only.",
        lambda parents: _mask(parents) | ~_node(parents),
    ),
)


@returns_verdict
def check_subtree_mask(function: Function) -> str:
    """Who attends to whom in tree attention? `mask(parents) -> (n, n)`, True = may attend.

    A node attends to its subtree, itself included, a leaf to all leaves. `parents` are n whole
    numbers, −1 at the root. Called with two trees of 7 tokens.
    """
    for parents in _TREES:
        require(
            function,
            {"parents": parents},
            lambda parents: _mask(parents).double(),
            shape="n n",
            known_mistakes=tuple(
                (text, lambda parents, made=made: made(parents).double())
                for text, made in _MASK_MISTAKEN
            ),
        )
    return "The root attends to everything; that is why its vector can stand for the whole tree."


# ---- the Tree-LSTM


def _state(i: Tensor, o: Tensor, u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    return o.sigmoid() * _memory(i, u, f, c).tanh()


def _memory(i: Tensor, u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    return i.sigmoid() * u.tanh() + (f.sigmoid() * c).sum(0)


_STATE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The children's memories are averaged: the child-sum Tree-LSTM adds them.",
        lambda i, o, u, f, c: (
            o.sigmoid() * (i.sigmoid() * u.tanh() + (f.sigmoid() * c).mean(0)).tanh()
        ),
    ),
    (
        "One gate is used for the sum of all memories: each child has a forget gate of its own.",
        lambda i, o, u, f, c: (
            o.sigmoid() * (i.sigmoid() * u.tanh() + f.sum(0).sigmoid() * c.sum(0)).tanh()
        ),
    ),
    (
        "The gates of the children are averaged: each child has a forget gate of its own.",
        lambda i, o, u, f, c: (
            o.sigmoid() * (i.sigmoid() * u.tanh() + f.sigmoid().mean(0) * c.sum(0)).tanh()
        ),
    ),
    (
        "That is the memory: the hidden state is σ(o) · tanh of it.",
        lambda i, o, u, f, c: _memory(i, u, f, c),
    ),
    (
        "The last tanh is missing: the hidden state is σ(o) · tanh(memory).",
        lambda i, o, u, f, c: o.sigmoid() * _memory(i, u, f, c),
    ),
    (
        "The update u goes through a sigmoid: it goes through tanh, so that it can be negative.",
        lambda i, o, u, f, c: (
            o.sigmoid() * (i.sigmoid() * u.sigmoid() + (f.sigmoid() * c).sum(0)).tanh()
        ),
    ),
    (
        "Nothing of the children is kept: add their memories, each times its forget gate.",
        lambda i, o, u, f, c: o.sigmoid() * (i.sigmoid() * u.tanh()).tanh(),
    ),
    (
        "The gates are used as they are: i, o and f go through a sigmoid, u through tanh.",
        lambda i, o, u, f, c: o * (i * u + (f * c).sum(0)).tanh(),
    ),
)


@returns_verdict
def check_tree_node(function: Function) -> str:
    """Is this the hidden state of a Tree-LSTM's node? `node(i, o, u, f, c) -> (d,)`.

    `i`, `o`, `u` (d,) are the two gates and the update before their sigmoid and tanh, `f` (k, d)
    the forget gates of k children before the sigmoid and `c` (k, d) the children's memories. Called
    with d = 5 and k = 3.
    """
    i, o, u, f, c = random_tensors((5,), (5,), (5,), (3, 5), (3, 5), seed=4)
    given = {"i": i, "o": o, "u": u, "f": f, "c": c}
    require(function, given, _state, shape="d", known_mistakes=_STATE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Each child is kept or forgotten by itself, and their order makes no difference."
