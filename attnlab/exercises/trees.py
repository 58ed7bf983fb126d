"""Checks of lesson 51: the depth of tokens, the mask of subtrees, and a node of a Tree-LSTM."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

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


def _trees() -> Iterator[Arguments]:
    for parents in _TREES:
        yield {"parents": parents}


check_tree_depths = Exercise(
    """How many nodes are above each token? `depths(parents) -> (n,)`.

    `parents` are n whole numbers, −1 at the root. Called with two trees of 7 tokens.
    """,
    right=_depths,
    cases=_trees,
    axes="n",
    mistakes={
        (lambda parents: _depths(parents) + 1): (
            "The token itself is counted: the root has nothing above it and the depth 0."
        ),
        _heights: (
            "These are heights, counted from the leaves up; the depth counts the nodes above a "
            "token."
        ),
        (lambda parents: _depths(parents).clamp(max=1)): (
            "It stops at the parent: go on from there until the parent is −1."
        ),
        (lambda parents: _depths(parents).max() - _depths(parents)): (
            "It counts down from the deepest token: the root has the depth 0."
        ),
        (lambda parents: torch.tensor([parents.count(token) for token in range(len(parents))])): (
            "It counts the children of each token: count the nodes above it."
        ),
    },
    praise="A Tree-LSTM takes as many steps up as the deepest token has nodes above it.",
)


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


check_subtree_mask = Exercise(
    """Who attends to whom in tree attention? `mask(parents) -> (n, n)`, True = may attend.

    A node attends to its subtree, itself included, a leaf to all leaves. `parents` are n whole
    numbers, −1 at the root. Called with two trees of 7 tokens.
    """,
    right=_mask,
    cases=_trees,
    axes="n n",
    mistakes={
        (lambda parents: _mask(parents).mT): (
            "Rows and columns are exchanged: the row is the query, which attends to what is below "
            "it."
        ),
        (
            lambda parents: (
                _mask(parents) & ~(torch.eye(len(parents), dtype=torch.bool) & _node(parents))
            )
        ): ("A node should attend to itself, too: it belongs to its own subtree."),
        (lambda parents: _below(parents) | torch.eye(len(parents), dtype=torch.bool)): (
            "A leaf attends to all leaves, not to itself alone."
        ),
        _children_only: (
            "Nodes attend to their children alone: the subtree holds all that is below, down to "
            "the leaves."
        ),
        (lambda parents: _mask(parents) & _is_leaf(parents)): (
            "Nodes attend to leaves alone: the nodes of the subtree belong to it."
        ),
        (lambda parents: _mask(parents) | ~_node(parents)): (
            "Leaves attend to nodes: a leaf attends to leaves only."
        ),
    },
    praise="The root attends to everything; that is why its vector can stand for the whole tree.",
)


# ---- the Tree-LSTM


def _state(i: Tensor, o: Tensor, u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    return o.sigmoid() * _memory(i, u, f, c).tanh()


def _memory(i: Tensor, u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    return i.sigmoid() * u.tanh() + (f.sigmoid() * c).sum(0)


check_tree_node = Exercise(
    """Is this the hidden state of a Tree-LSTM's node? `node(i, o, u, f, c) -> (d,)`.

    `i`, `o`, `u` (d,) are the two gates and the update before their sigmoid and tanh, `f` (k, d)
    the forget gates of k children before the sigmoid and `c` (k, d) the children's memories. Called
    with d = 5 and k = 3.
    """,
    right=_state,
    cases=drawn(4, i=(5,), o=(5,), u=(5,), f=(3, 5), c=(3, 5)),
    axes="d",
    mistakes={
        (
            lambda i, o, u, f, c: (
                o.sigmoid() * (i.sigmoid() * u.tanh() + (f.sigmoid() * c).mean(0)).tanh()
            )
        ): ("The children's memories are averaged: the child-sum Tree-LSTM adds them."),
        (
            lambda i, o, u, f, c: (
                o.sigmoid() * (i.sigmoid() * u.tanh() + f.sum(0).sigmoid() * c.sum(0)).tanh()
            )
        ): (
            "One gate is used for the sum of all memories: each child has a forget gate of its own."
        ),
        (
            lambda i, o, u, f, c: (
                o.sigmoid() * (i.sigmoid() * u.tanh() + f.sigmoid().mean(0) * c.sum(0)).tanh()
            )
        ): ("The gates of the children are averaged: each child has a forget gate of its own."),
        (lambda i, o, u, f, c: _memory(i, u, f, c)): (
            "That is the memory: the hidden state is σ(o) · tanh of it."
        ),
        (lambda i, o, u, f, c: o.sigmoid() * _memory(i, u, f, c)): (
            "The last tanh is missing: the hidden state is σ(o) · tanh(memory)."
        ),
        (lambda i, o, u, f, c: o.sigmoid() * (i.sigmoid() * u + (f.sigmoid() * c).sum(0)).tanh()): (
            "The update u is used as it is: it goes through tanh."
        ),
        (
            lambda i, o, u, f, c: (
                o.sigmoid() * (i.sigmoid() * u.sigmoid() + (f.sigmoid() * c).sum(0)).tanh()
            )
        ): (
            "The update u goes through a sigmoid: it goes through tanh, so that it can be negative."
        ),
        (lambda i, o, u, f, c: o.sigmoid() * (i.sigmoid() * u.tanh()).tanh()): (
            "Nothing of the children is kept: add their memories, each times its forget gate."
        ),
        (lambda i, o, u, f, c: o * (i * u + (f * c).sum(0)).tanh()): (
            "The gates are used as they are: i, o and f go through a sigmoid, u through tanh."
        ),
    },
    praise="Each child is kept or forgotten by itself, and their order makes no difference.",
)


# ---- a whole Tree-LSTM

Gate = Callable[
    [Tensor, Tensor, Tensor], Tensor
]  # (f of the node or the children, children's h, Uf)


def _from_below(parents: Sequence[int]) -> list[int]:
    return sorted(range(len(parents)), key=lambda token: -len(_above(parents, token)))


def _states(
    x: Tensor, parents: Sequence[int], w: Tensor, u: Tensor, uf: Tensor, *,
    order: Callable[[Sequence[int]], list[int]] = _from_below,
    forget: Gate = lambda own, h, uf: (own + h @ uf).sigmoid(),
    below: Callable[[Tensor], Tensor] = lambda h: h.sum(0),
    squash: Callable[[Tensor], Tensor] = torch.tanh, labels: bool = True, memory: bool = False,
    childs: bool = False,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps or leaves one out."""
    h, c = torch.zeros(2, len(x), len(u), dtype=x.dtype).unbind(0)
    for token in order(parents):
        children = [child for child, parent in enumerate(parents) if parent == token]
        own = (x[token] @ w) * (1 if labels or not children else 0)
        i, o, update, f = own.chunk(4)
        more = (below(h[children]) @ u).chunk(3) if children else (0, 0, 0)
        if childs:  # (k, d), the last quarter of each child's own x W
            f = (x[children] @ w)[:, -len(u) :]
        kept = (forget(f, h[children], uf) * c[children]).sum(0)
        c[token] = (i + more[0]).sigmoid() * squash(update + more[2]) + kept
        h[token] = (o + more[1]).sigmoid() * c[token].tanh()
    return c if memory else h


def _tree_lstm_cases() -> Iterator[Arguments]:
    shapes = {"x": (7, 5), "W": (5, 12), "U": (3, 9), "Uf": (3, 3)}
    made = dict(zip(shapes, random_tensors(*shapes.values(), seed=9), strict=True))
    for parents in ((6, 6, 5, 4, -1, 4, 5), (4, 4, 5, 5, 6, 6, -1)):
        yield {"x": made["x"], "parents": parents, **made}


check_tree_lstm = Exercise(
    """Is it a child-sum Tree-LSTM? `states(x, parents, W, U, Uf) -> (n, d)`.

    `x` (n, dim) are the tokens' vectors; `parents` has the parent of each token, −1 at the root.
    x W, `W` (dim, 4d), has the parts i, o, u, f of a token; the sum of its children's states times
    `U` (d, 3d) is added to i, o, u, and each child's state times `Uf` (d, d) to f for that child.
    Called with n = 7, dim = 5, d = 3 and a tree whose numbers are not in order.
    """,
    right=_states,
    cases=_tree_lstm_cases,
    axes="n d",
    mistakes={
        but(order=lambda parents: list(range(len(parents)))): (
            "The tokens are computed in the order of their numbers, so that some parents come "
            "before their children: begin with the deepest."
        ),
        but(forget=lambda own, h, uf: (own + h.sum(0, keepdim=True) @ uf).sigmoid()): (
            "All children share a forget gate, made from the sum of their states: each child has "
            "one, from its own state."
        ),
        but(forget=lambda own, h, uf: (h @ uf).sigmoid()): (
            "The forget gates leave out the vector of the node itself: x W has a part for them, "
            "the last quarter."
        ),
        but(childs=True): (
            "The forget gates take f from the vectors of the children: take it from that of the "
            "node, and from each child its hidden state."
        ),
        but(forget=lambda own, h, uf: torch.ones_like(h)): (
            "The children's memories are added without forget gates."
        ),
        but(below=lambda h: h.mean(0)): (
            "The states of the children are averaged: child-sum adds them."
        ),
        but(labels=False): (
            "The nodes forget their own vectors: x W is added at nodes as at leaves."
        ),
        but(memory=True): "These are the memories c: the states are o · tanh(c).",
        but(squash=torch.sigmoid): (
            "The update goes through a sigmoid; it is no gate, and takes tanh."
        ),
    },
    praise="One map from children to parent, used at every height of the tree.",
)
