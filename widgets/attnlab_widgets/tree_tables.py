"""Trees as bracketed text, and the tables of hierarchical accumulation over them.

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

from attnlab.core.tree import Tree

EXAMPLE = "(S (NP the dog) (VP barks))"
MOST = 24
_SPACE = r"\s\ufeff"  # what JavaScript calls a space, too
_PIECE = re.compile(rf"[()]|[^{_SPACE}()]+")


def read(text: str) -> Tree:
    """The tree of bracketed text; a ValueError says what is wrong and at which column, from 1."""
    pieces = [(piece.group(), piece.start() + 1) for piece in _PIECE.finditer(text)]
    if not pieces:
        raise ValueError(f"write a tree, for instance {EXAMPLE}")
    if pieces[0][0] != "(":
        raise ValueError(f"column {pieces[0][1]}: a tree begins with “(”, as in {EXAMPLE}")
    opened: list[tuple[str, int, list[Tree]]] = []
    found: Tree | None = None
    named = iter(pieces)
    for piece, column in named:
        if found is not None:
            raise ValueError(f"column {column}: the tree is complete before “{piece}”; remove it")
        if piece == "(":
            label = next(named, ("", 0))[0]
            if label in ("", "(", ")"):
                raise ValueError(f"column {column}: write the label of the phrase after “(”")
            opened.append((label, column, []))
        elif piece == ")":
            label, start, children = opened.pop()
            if not children:
                raise ValueError(
                    f"column {start}: the phrase “{label}” has no words; a word has no brackets"
                )
            one = Tree(label, tuple(children))
            if opened:
                opened[-1][2].append(one)
            else:
                found = one
        else:
            opened[-1][2].append(Tree(piece))
    if found is None:
        label, column, _ = opened[-1]
        raise ValueError(f"column {column}: the bracket of “{label}” is never closed")
    _check_size(found)
    return found


def _check_size(tree: Tree) -> None:
    for found, what in ((tree.leaves(), "words"), (tree.nodes(), "phrases")):
        if len(found) > MOST:
            raise ValueError(f"at most {MOST} {what} can be drawn, this tree has {len(found)}")


def write(tree: Tree) -> str:
    """The inverse of ``read``. Labels have neither spaces nor brackets: see ``one_word``."""
    if tree.is_leaf:
        return tree.label
    return f"({' '.join([tree.label, *map(write, tree.children)])})"


def one_word(label: str) -> str:
    """A label for bracketed text: brackets as in the Penn Treebank, spaces as a sign."""
    found = label.replace("(", "-LRB-").replace(")", "-RRB-")
    return re.sub(rf"[{_SPACE}]", "␣", found) or "∅"


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
        """N̄ (m,), equation 7: the weighted averages of a node, over its number of leaves."""
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
        """Of leaves and nodes, each once: labels that recur have a number, the₁ and the₂."""
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
