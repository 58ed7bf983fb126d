"""Trees that can be drawn, and the tables of hierarchical accumulation over them.

    tree = read("(S (NP the dog) (VP barks))")
    Numbered(tree).averages([1, 2, 3], [10, 20, 30])

The leaves have the numbers 0 … n − 1 from left to right, the nodes 0 … m − 1, each before its
children; among keys the nodes follow the leaves, n … n + m − 1.

Nguyen, Joty, Hoi, Socher, "Tree-structured attention with hierarchical accumulation", ICLR 2020,
equations 5 to 7 and 11.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.core.markup import legible
from attnlab.structures.brackets import shown
from attnlab.structures.tree import Tree

MOST = 24


def drawable(tree: Tree) -> Tree:
    """The tree, if it has a phrase and few enough words and phrases; else a ValueError."""
    if tree.is_leaf:
        label = shown(tree.label)
        raise ValueError(f"a tree needs at least one phrase: write (NP {label})")
    for found, what in ((tree.leaves(), "words"), (tree.nodes(), "phrases")):
        if len(found) > MOST:
            raise ValueError(f"at most {MOST} {what} can be drawn, this tree has {len(found)}")
    return tree


def read(text: str) -> Tree:
    """The tree of bracketed text; a ValueError where there is none, or none that can be drawn."""
    return drawable(Tree.read(legible(text)))


def writable(tree: Tree) -> Tree:
    """The tree with labels that bracketed text can hold: a sign for each space, ∅ for no label."""
    label = tree.label.replace("-LRB-", "(").replace("-RRB-", ")")
    label = re.sub(r"\s", "␣", legible(label)) or "∅"
    return Tree(label, tuple(map(writable, tree.children)))


class Numbered:
    """A tree whose leaves and nodes have numbers.

    ``leaves`` n and ``nodes`` m labels; ``parents``, of the n leaves and then of the m nodes, the
    number of the node above, −1 above the root.
    """

    def __init__(self, tree: Tree) -> None:
        self.leaves: list[str] = []
        self.nodes: list[str] = []
        of_leaves: list[int] = []
        of_nodes: list[int] = []
        waiting = [(tree, -1)]
        while waiting:
            one, above = waiting.pop()
            if one.is_leaf:
                self.leaves.append(one.label)
                of_leaves.append(above)
                continue
            waiting.extend((child, len(self.nodes)) for child in reversed(one.children))
            self.nodes.append(one.label)
            of_nodes.append(above)
        self.parents = of_leaves + of_nodes

    def above(self, key: int) -> list[int]:
        """The nodes above a key (a leaf, or n + a node), from its parent to the root."""
        found = []
        node = self.parents[key]
        while node >= 0:
            found.append(node)
            node = self.parents[len(self.leaves) + node]
        return found

    def branch(self, node: int, leaf: int) -> list[int]:
        """The nodes from ``node`` down to ``leaf``; none where the leaf is not below the node."""
        above = self.above(leaf)
        return above[: above.index(node) + 1][::-1] if node in above else []

    def spans(self) -> NDArray[np.bool_]:
        """(m, n): whether the leaf is below the node."""
        return np.array([[bool(self.branch(i, j)) for j in self._n] for i in self._m])

    def interpolation(self, leaf_values: Any, node_values: Any) -> NDArray[np.float64]:
        """S (m + 1, n), equation 5: the leaves, then each node's value above its leaves, else 0."""
        nodes = np.asarray(node_values, float)[:, None] * self.spans()
        return np.concatenate((np.asarray(leaf_values, float)[None], nodes))

    def averages(self, leaf_values: Any, node_values: Any) -> NDArray[np.float64]:
        """Ŝ (m, n), equation 6: the mean of a leaf and the nodes on its branch, else 0."""
        found = np.zeros((len(self.nodes), len(self.leaves)))
        for i in self._m:
            for j in self._n:
                branch = self.branch(i, j)
                if branch:
                    terms = [leaf_values[j], *(node_values[t] for t in branch)]
                    found[i, j] = sum(terms) / len(terms)
        return found

    def gathered(
        self, leaf_values: Any, node_values: Any, weights: Sequence[float]
    ) -> NDArray[np.float64]:
        """v̄ (m,), equation 7: the weighted averages of a node, over its number of leaves."""
        averages = self.averages(leaf_values, node_values)
        found: NDArray[np.float64] = averages @ np.asarray(weights, float) / self.spans().sum(1)
        return found

    def mask(self) -> NDArray[np.bool_]:
        """(n + m, n + m), equation 11: a leaf attends to leaves, a node to its subtree."""
        n, m = len(self.leaves), len(self.nodes)
        allowed = np.zeros((n + m, n + m), bool)
        allowed[:n, :n] = True
        for key in range(n + m):
            allowed[[n + node for node in self.above(key)], key] = True
        allowed[range(n, n + m), range(n, n + m)] = True
        return allowed

    def names(self) -> list[str]:
        """Labels of leaves and nodes, each once: labels that recur have a number, the₁ and the₂."""
        labels = self.leaves + self.nodes
        again = {label for label in labels if labels.count(label) > 1}
        seen: dict[str, int] = {}
        found = []
        for label in labels:
            seen[label] = seen.get(label, 0) + 1
            found.append(label + str(seen[label]).translate(_LOW) if label in again else label)
        return found

    @property
    def _n(self) -> range:
        return range(len(self.leaves))

    @property
    def _m(self) -> range:
        return range(len(self.nodes))


_LOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
