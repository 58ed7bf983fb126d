"""A tree: a label, and children from left to right.

A node without children is a leaf; the leaves of a sentence's tree are its words. The trees of this
library can be written as nested lists, whose first entry is the label:

    ["S", ["NP", "the", "dog"], ["VP", "barks"]]

Nothing here recurses, so that a tree may be deeper than Python's limit of nested calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tree:
    """A node with the subtree below it.

    ``label`` is the word of a leaf, or the name of a phrase or an operation; ``children`` are the
    subtrees from left to right, none at a leaf.
    """

    label: str
    children: tuple["Tree", ...] = field(default=())

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise TypeError(f"the label of a tree is a string, got {self.label!r}")
        for child in self.children:
            if not isinstance(child, Tree):
                raise TypeError(f"the children of a tree are trees, got {child!r}")

    @property
    def is_leaf(self) -> bool:
        return not self.children

    def subtrees(self) -> Iterator["Tree"]:
        """The tree itself and every tree below it; a node comes before its children."""
        waiting = [self]
        while waiting:
            tree = waiting.pop()
            yield tree
            waiting.extend(reversed(tree.children))

    def leaves(self) -> list["Tree"]:
        """From left to right."""
        return [tree for tree in self.subtrees() if tree.is_leaf]

    def nodes(self) -> list["Tree"]:
        """Those with children; a node comes before its children."""
        return [tree for tree in self.subtrees() if not tree.is_leaf]

    @property
    def depth(self) -> int:
        """The number of nodes above the deepest leaf: 0 for a leaf alone."""
        deepest, waiting = 0, [(self, 0)]
        while waiting:
            tree, above = waiting.pop()
            deepest = max(deepest, above)
            waiting.extend((child, above + 1) for child in tree.children)
        return deepest

    @classmethod
    def of(cls, nested: Any) -> "Tree":
        """The tree of nested lists: a string is a leaf, a list is a label and then its children."""
        done: list[Tree] = []
        waiting: list[tuple[Any, bool]] = [(nested, False)]
        while waiting:
            item, children_done = waiting.pop()
            if isinstance(item, cls | str):
                done.append(cls(item) if isinstance(item, str) else item)
            elif children_done:
                count = len(item) - 1
                done[-count:] = [cls(item[0], tuple(done[-count:]))]
            else:
                _check_nested(item)
                waiting.append((item, True))
                waiting.extend((child, False) for child in reversed(item[1:]))
        return done[0]

    def nested(self) -> Any:
        """The tree as nested lists, the inverse of ``of``."""
        done: list[Any] = []
        for tree in reversed(list(self.subtrees())):
            if tree.is_leaf:
                done.append(tree.label)
            else:
                children = [done.pop() for _ in tree.children]
                done.append([tree.label, *children])
        return done[0]


def _check_nested(item: Any) -> None:
    if not isinstance(item, Sequence):
        raise TypeError(f"a tree is a string or a list of a label and children, got {item!r}")
    if not item or not isinstance(item[0], str):
        raise ValueError(f"a list that is a tree begins with its label, a string; got {item!r}")
    if len(item) == 1:
        raise ValueError(
            f"the node {item[0]!r} has no children; write a leaf as a string: {item[0]!r}"
        )
