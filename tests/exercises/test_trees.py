"""Lesson 51's checks: depths of tokens, the mask of subtrees, and a node of a Tree-LSTM."""

from collections.abc import Callable
from typing import Any

import pytest
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


def heights(parents: list[int]) -> Tensor:
    return TreeBatch.from_parents(torch.tensor([parents])).height[0]


def leaves(parents: list[int]) -> Tensor:
    return TreeBatch.from_parents(torch.tensor([parents])).is_leaf[0]


def children(parents: list[int]) -> Tensor:
    """(n, n): whether the second token is a child of the first."""
    return torch.tensor([[parent == i for parent in parents] for i in range(len(parents))])


def itself(parents: list[int]) -> Tensor:
    return torch.eye(len(parents)).bool()


def node(i: Tensor, o: Tensor, u: Tensor, f: Tensor, c: Tensor, **changed: Any) -> Tensor:
    """The equations, each part of which may be changed."""
    gates, total = f.sigmoid(), changed.get("total", torch.sum)
    kept = changed.get("kept", lambda: total(gates * c, 0))()
    memory = i.sigmoid() * changed.get("update", torch.tanh)(u) + kept
    return changed.get("out", lambda m: o.sigmoid() * m.tanh())(memory)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_tree_depths, depths),
    (check_subtree_mask, mask),
    (check_subtree_mask, lambda parents: mask(parents).int()),
    (check_tree_node, node),
]

DEPTHS_WRONG = {
    "itself": ("itself is counted", lambda p: depths(p) + 1),
    "heights": ("heights", heights),
    "parent": ("stops at the parent", lambda p: torch.tensor([int(x >= 0) for x in p])),
    "reversed": ("counts down", lambda p: depths(p).max() - depths(p)),
    "children": ("counts the children", lambda p: children(p).sum(1)),
    "None": ("`return`", lambda p: None),
}

MASK_WRONG = {
    "exchanged": ("exchanged", lambda p: mask(p).T),
    "without itself": ("to itself, too", lambda p: mask(p) & ~(itself(p) & ~leaves(p))),
    "leaf alone": (
        "not to itself alone",
        lambda p: (mask(p) & ~leaves(p)[:, None]) | itself(p),
    ),
    "children": (
        "children alone",
        lambda p: torch.where(leaves(p)[:, None], mask(p), children(p) | itself(p)),
    ),
    "leaves": ("leaves alone", lambda p: mask(p) & leaves(p)[None]),
    "leaf to node": ("Leaves attend to nodes", lambda p: mask(p) | leaves(p)[:, None]),
    "None": ("`return`", lambda p: None),
}

NODE_WRONG = {
    "mean": ("averaged: the child-sum", lambda *a: node(*a, total=torch.mean)),
    "one gate": (
        "One gate",
        lambda i, o, u, f, c: node(i, o, u, f, c, kept=lambda: torch.sigmoid(f.sum(0)) * c.sum(0)),
    ),
    "mean gate": (
        "The gates of the children",
        lambda i, o, u, f, c: node(i, o, u, f, c, kept=lambda: torch.sigmoid(f).mean(0) * c.sum(0)),
    ),
    "memory": ("That is the memory", lambda *a: node(*a, out=lambda m: m)),
    "no tanh": ("last tanh", lambda *a: node(*a, out=lambda m: torch.sigmoid(a[1]) * m)),
    "sigmoid": ("through tanh, so that", lambda *a: node(*a, update=torch.sigmoid)),
    "forgets": ("Nothing of the children", lambda *a: node(*a, kept=lambda: 0)),
    "no gates": (
        "as they are",
        lambda i, o, u, f, c: o * torch.tanh(i * u + torch.einsum("kd,kd->d", f, c)),
    ),
    "None": ("`return`", lambda *a: None),
}

TABLES = [
    (check_tree_depths, DEPTHS_WRONG),
    (check_subtree_mask, MASK_WRONG),
    (check_tree_node, NODE_WRONG),
]


TestAnswers = answers_to(RIGHT, TABLES)


# ---- a whole Tree-LSTM


def recursive(
    x,
    parents,
    w,
    u,
    uf,
    *,
    each=True,
    own=True,
    gates=True,
    mean=False,
    labels=True,
    give=1,
    squash=torch.tanh,
):
    d, found = len(u), {}

    def state(token):
        below = [state(child) for child, parent in enumerate(parents) if parent == token]
        z = x[token] @ w * (1 if labels or not below else 0)
        i, o, g, f = z[:d], z[d : 2 * d], z[2 * d : 3 * d], z[3 * d :]
        hs = [h for _, h in below]
        total = sum(hs) / (len(hs) if mean else 1) if hs else torch.zeros(d, dtype=x.dtype)
        more = total @ u
        c = (i + more[:d]).sigmoid() * squash(g + more[2 * d :])
        for memory, h in below:
            gate = ((f if own else 0) + (h if each else sum(hs)) @ uf).sigmoid()
            c = c + (gate if gates else 1) * memory
        found[token] = (c, (o + more[d : 2 * d]).sigmoid() * c.tanh())
        return found[token]

    state(parents.index(-1))
    return torch.stack([found[token][give] for token in range(len(parents))])


def in_order(x, parents, w, u, uf):
    d = len(u)
    h, c = torch.zeros(2, len(x), d, dtype=x.dtype)
    for token in range(len(x)):
        below = [child for child, parent in enumerate(parents) if parent == token]
        i, o, g, f = (x[token] @ w).chunk(4)
        more = h[below].sum(0) @ u
        kept = ((f + h[below] @ uf).sigmoid() * c[below]).sum(0)
        c[token] = (i + more[:d]).sigmoid() * (g + more[2 * d :]).tanh() + kept
        h[token] = (o + more[d : 2 * d]).sigmoid() * c[token].tanh()
    return h


def variant(**changes):
    return lambda *given: recursive(*given, **changes)


LSTM_WRONG = {
    "in order": ("begin with the deepest", in_order),
    "one gate": ("share a forget gate", variant(each=False)),
    "no own part": ("leave out the vector", variant(own=False)),
    "no gates": ("without forget gates", variant(gates=False)),
    "mean": ("averaged", variant(mean=True)),
    "no labels": ("forget their own vectors", variant(labels=False)),
    "memories": ("memories c", variant(give=0)),
    "sigmoid": ("goes through a sigmoid", variant(squash=torch.sigmoid)),
    "none": ("`return`", lambda *given: None),
}


def test_a_tree_lstm_by_recursion_is_right():
    verdict = check_tree_lstm(recursive)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), LSTM_WRONG.values(), ids=LSTM_WRONG)
def test_mistakes_of_a_tree_lstm_by_name(words, solution, refuses):
    refuses(check_tree_lstm(solution), words)
