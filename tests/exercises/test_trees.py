"""Lesson 51's checks: depths of tokens, the mask of subtrees, and a node of a Tree-LSTM."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import (
    Verdict,
    check_subtree_mask,
    check_tree_depths,
    check_tree_lstm,
    check_tree_node,
)
from attnlab.structures.tree_batch import TreeBatch
from tests.exercises.frame import answers_to


def depths(parents: list[int]) -> Tensor:
    return TreeBatch.from_parents(torch.tensor([parents])).depth[0]


def mask(parents: list[int]) -> Tensor:
    return TreeBatch.from_parents(torch.tensor([parents])).subtree_mask[0, 0]


def node(i: Tensor, o: Tensor, u: Tensor, f: Tensor, c: Tensor) -> Tensor:
    kept = sum(one.sigmoid() * memory for one, memory in zip(f, c, strict=True))
    return o.sigmoid() * (i.sigmoid() * u.tanh() + kept).tanh()


def recursive(x, parents, w, u, uf):
    d, found = len(u), {}

    def state(token):
        below = [state(child) for child, parent in enumerate(parents) if parent == token]
        i, o, g, f = (x[token] @ w).chunk(4)
        more = sum((h for _, h in below), torch.zeros(d, dtype=x.dtype)) @ u
        c = (i + more[:d]).sigmoid() * (g + more[2 * d :]).tanh()
        for memory, h in below:
            c = c + (f + h @ uf).sigmoid() * memory
        found[token] = (c, (o + more[d : 2 * d]).sigmoid() * c.tanh())
        return found[token]

    state(parents.index(-1))
    return torch.stack([found[token][1] for token in range(len(parents))])


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_tree_depths, depths),
    (check_subtree_mask, mask),
    (check_subtree_mask, lambda parents: mask(parents).int()),
    (check_tree_node, node),
    (check_tree_lstm, recursive),
]
TestAnswers = answers_to(RIGHT)
