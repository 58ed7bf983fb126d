"""Lesson 50's checks: the subtree mask, and the mean along each branch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.core.tree_batch import TreeBatch
from attnlab.exercises import Verdict, check_subtree_mask, check_upward_average


def mask_of(parents: Tensor, itself: bool = True, steps: int = 99) -> Tensor:
    n, up = len(parents), parents.tolist()
    below = torch.zeros(n, n, dtype=torch.bool)
    for token in range(n):
        above, taken = (token if itself else up[token]), int(not itself)
        while above != -1 and taken <= steps:
            below[above, token] = True
            above, taken = up[above], taken + 1
    return with_leaves(parents, below, leaf_of(parents).expand(n, n))


def leaf_of(parents: Tensor) -> Tensor:
    return torch.tensor([i not in parents.tolist() for i in range(len(parents))])


def with_leaves(parents: Tensor, nodes: Tensor, leaves: Tensor) -> Tensor:
    return torch.where(leaf_of(parents)[:, None], leaves, nodes)


def powers(parents: Tensor) -> Tensor:
    """Reachable by steps down: the powers of the matrix of children."""
    n = len(parents)
    step = torch.eye(n) + (parents == torch.arange(n)[:, None])
    return with_leaves(parents, step.matrix_power(n) > 0, leaf_of(parents).expand(n, n))


def everywhere(parents: Tensor) -> Tensor:
    return torch.ones(len(parents), len(parents), dtype=torch.bool)


def by_loops(s: Tensor, covers: Tensor, leaf: int = 1, counted: int = 1) -> Tensor:
    out = torch.zeros_like(s[1:])
    for i in range(len(covers)):
        for j in range(covers.shape[1]):
            if covers[i, j]:
                branch = [s[t + 1, j] for t in range(i + 1) if covers[t, j]]
                out[i, j] = (leaf * s[0, j] + sum(branch)) / (counted + len(branch))
    return out


def downwards(s: Tensor, covers: Tensor) -> Tensor:
    turned = torch.cat([s[:1], s[1:].flip(0)])
    return by_loops(turned, covers.flip(0)).flip(0)


def rows_counted(s: Tensor, covers: Tensor) -> Tensor:
    sums = [(s[: i + 2].sum(0) / (i + 2)) for i in range(len(covers))]
    return torch.stack(sums) * covers[..., None]


def unmasked(s: Tensor, covers: Tensor) -> Tensor:
    return s.cumsum(0)[1:] / (covers.cumsum(0)[..., None] + 1)


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Any]]] = [
    (check_subtree_mask, mask_of),
    (check_subtree_mask, powers),
    (check_subtree_mask, lambda p: TreeBatch.from_parents(p[None]).subtree_mask[0, 0]),
    (check_upward_average, by_loops),
    (check_upward_average, lambda s, covers: unmasked(s, covers) * covers[..., None]),
]

MASK_WRONG: dict[str, tuple[str, Any]] = {
    "leaf alone": (
        "A leaf attends to itself alone",
        lambda p: with_leaves(p, mask_of(p), torch.eye(len(p)) > 0),
    ),
    "leaf to nodes": (
        "A leaf attends to nodes as well",
        lambda p: with_leaves(p, mask_of(p), everywhere(p)),
    ),
    "not itself": ("does not attend to itself", lambda p: mask_of(p, itself=False)),
    "children": ("to its children and not", lambda p: mask_of(p, steps=1)),
    "leaves only": ("to its leaves and not", lambda p: mask_of(p) & leaf_of(p)),
    "above": (
        "what is above it",
        lambda p: with_leaves(
            p, with_leaves(p, mask_of(p), torch.eye(len(p)) > 0).mT, leaf_of(p).expand(len(p), -1)
        ),
    ),
    "all": (
        "A node attends to every token",
        lambda p: with_leaves(p, everywhere(p), leaf_of(p).expand(len(p), -1)),
    ),
    "inverted": ("inverted", lambda p: ~mask_of(p)),
    "additive": ("additive", lambda p: torch.where(mask_of(p), 0.0, -torch.inf)),
    "parents changed": ("in place", lambda p: mask_of(p) & (p.fill_(0) == 0)),
    "None": ("`return`", lambda p: None),
    "row": ("Wrong shape", lambda p: mask_of(p)[0]),
    "raises": ("raised", lambda p: p @ mask_of(p)),
}

AVERAGE_WRONG: dict[str, tuple[str, Any]] = {
    "as released": ("The sum has the leaf", lambda s, c: by_loops(s, c, counted=0)),
    "leaf counted": ("missing from the sum", lambda s, c: by_loops(s, c, leaf=0)),
    "no leaf": ("mean of the nodes alone", lambda s, c: by_loops(s, c, leaf=0, counted=0)),
    "sums": ("Nothing is divided", lambda s, c: s.cumsum(0)[1:] * c[..., None]),
    "rows": ("counts every row", rows_counted),
    "ends": ("the node and the leaf alone", lambda s, c: (s[:1] + s[1:]) / 2 * c[..., None]),
    "down": ("down from the root", downwards),
    "zeros": ("whether a vector is zero", lambda s, c: by_loops(s, s[1:].abs().sum(-1) > 0)),
    "unmasked": ("Outside the subtrees", unmasked),
    "across": (
        "along the leaves",
        lambda s, c: s.cumsum(1)[1:] / (c.cumsum(1)[..., None] + 1) * c[..., None],
    ),
    "half": ("result is float32", lambda s, c: by_loops(s, c).float()),
    "in place": ("still needs", lambda s, c: by_loops(s, c) + 0 * s.mul_(2)[1:]),
    "None": ("`return`", lambda s, c: None),
    "all rows": ("Wrong shape", lambda s, c: s.cumsum(0)),
}

TABLES = [(check_subtree_mask, MASK_WRONG), (check_upward_average, AVERAGE_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_are_right(check: Callable[..., Verdict], answer: Any) -> None:
    verdict = check(answer)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "sentence", "answer"), WRONG)
def test_mistakes_are_named(check: Callable[..., Verdict], sentence: str, answer: Any) -> None:
    verdict = check(answer)
    assert not verdict.right
    assert sentence in verdict.message, verdict.message
