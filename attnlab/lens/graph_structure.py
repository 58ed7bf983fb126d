"""What follows from the edges of a graph: where to draw its nodes, which belong together, and which
are reached after so many layers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEPS, _HOT, _GRAVITY = 300, 0.12, 0.06
_LEAST = 1e-9


def adjacency(n: int, edges: Whole) -> NDArray[np.bool_]:
    """(n, n): whether an edge (m, 2) leads to the first node from the second."""
    found = np.zeros((n, n), dtype=bool)
    found[edges[:, 1], edges[:, 0]] = True
    return found


# Where to draw


def layout(n: int, edges: Whole) -> Floats:
    """(n, 2), from 0 to 1 along both axes: nodes repel each other, edges pull them together.

    The forces are those of Fruchterman and Reingold (Software: Practice and Experience 21, 1991),
    with a pull towards the middle, which keeps parts that are not connected on the page. Each run
    begins with the same places, from the distances between nodes, and so ends with the same.
    """
    links = adjacency(n, edges)
    links |= links.T
    np.fill_diagonal(links, False)
    at = _start(links)
    near = 1 / math.sqrt(n)  # how far apart nodes would be if they filled a square evenly
    for step in range(_STEPS):
        squares = np.subtract.outer(at[:, 0], at[:, 0]) ** 2
        squares += np.subtract.outer(at[:, 1], at[:, 1]) ** 2
        pull = np.where(links, np.sqrt(squares), 0) / near
        np.fill_diagonal(squares, np.inf)
        force = near**2 / (squares + _LEAST) - pull  # per unit of distance
        moves = at * force.sum(1, keepdims=True) - force @ at - _GRAVITY * at
        long = np.sqrt((moves**2).sum(-1, keepdims=True)) + _LEAST
        at = at + moves / long * np.minimum(long, _HOT * (1 - step / _STEPS))
    return _spread(at)


def _start(links: NDArray[np.bool_]) -> Floats:
    """Places whose distances are about the numbers of edges between nodes (classical scaling), and
    a spiral on top of them, which parts nodes that have the same neighbours."""
    n = len(links)
    away = distances(links).astype(float)
    away[away < 0] = max(away.max(), 1) + 1
    squares = -0.5 * away**2
    squares += squares.mean() - squares.mean(0) - squares.mean(1)[:, None]
    values, vectors = np.linalg.eigh(squares)
    at = np.zeros((n, 2))
    for axis in range(min(2, n)):
        vector = vectors[:, -1 - axis]
        sign = 1 if vector[np.abs(vector).argmax()] >= 0 else -1
        at[:, axis] = sign * vector * math.sqrt(max(values[-1 - axis], 0))
    at /= max(np.abs(at).max(), _LEAST) * 2
    turn = np.arange(n) * math.pi * (3 - math.sqrt(5))
    far = np.sqrt((np.arange(n) + 0.5) / n)
    return at + 0.1 * np.stack([far * np.cos(turn), far * np.sin(turn)], axis=1)


def _spread(at: Floats) -> Floats:
    """Turned so that the longest way lies across, and fitted to 0 … 1."""
    at = at - at.mean(0)
    _, axes = np.linalg.eigh(at.T @ at)
    at = at @ axes[:, ::-1]
    at *= np.where(at[np.abs(at).argmax(0), [0, 1]] >= 0, 1, -1)
    low, high = at.min(0), at.max(0)
    wide = high - low
    return np.where(wide > _LEAST, (at - low) / np.maximum(wide, _LEAST), 0.5)


# How far


def distances(links: NDArray[np.bool_]) -> Whole:
    """(n, n): how many steps lead from the first node to the second, along True; -1 for no way."""
    n = len(links)
    found = np.full((n, n), -1)
    np.fill_diagonal(found, 0)
    reached = np.eye(n, dtype=bool)
    step = 0
    while True:
        step += 1
        new = (reached.astype(np.float32) @ links.astype(np.float32) > 0) & (found < 0)
        if not new.any():
            return found
        found[new] = step
        reached = new


# What belongs together


def communities(n: int, edges: Whole) -> list[int]:
    """The number of each node's community, the largest community first.

    Those are joined, two at a time, whose union raises the modularity most, until none raises it
    (Clauset, Newman, Moore, arXiv:cond-mat/0408187). Directions are left out, parallel edges count.
    """
    share = np.zeros((n, n))
    other = edges[edges[:, 0] != edges[:, 1]]
    np.add.at(share, (other[:, 0], other[:, 1]), 1.0)
    share += share.T
    share /= max(share.sum(), 1.0)
    member = np.arange(n)
    while True:
        ends = share.sum(1)
        gain = np.where(share > 0, share - np.outer(ends, ends), -1.0)
        np.fill_diagonal(gain, -1.0)
        kept, joined = divmod(int(gain.argmax()), n)
        if gain[kept, joined] <= 1e-12:
            return numbered(member.tolist())
        share[kept] += share[joined]
        share[:, kept] += share[:, joined]
        share[joined], share[:, joined] = 0, 0
        member[member == joined] = kept


def numbered(kinds: Sequence[Any]) -> list[int]:
    """Kinds as numbers, that of which there are most first; of equally many the one seen first."""
    counts: dict[Any, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    order = sorted(counts, key=lambda kind: -counts[kind])
    number = {kind: at for at, kind in enumerate(order)}
    return [number[kind] for kind in kinds]


def degrees(n: int, edges: Whole) -> list[int]:
    """The number of other nodes to which each node is connected."""
    links = adjacency(n, edges)
    links |= links.T
    np.fill_diagonal(links, False)
    return [int(count) for count in links.sum(1)]


def order_by(kinds: Sequence[int], degree: Sequence[int]) -> list[int]:
    """The nodes kind by kind; of one kind those with most neighbours first."""
    return sorted(range(len(kinds)), key=lambda node: (kinds[node], -degree[node], node))
