"""A tree: a label, and children from left to right.

A node without children is a leaf; the leaves of a sentence's tree are its words. The trees of this
library can be written as nested lists, whose first entry is the label:

    ["S", ["NP", "the", "dog"], ["VP", "barks"]]

and as bracketed text (``attnlab.structures.brackets``):

    (S (NP the dog) (VP barks))

Nothing here recurses, so that a tree may be deeper than Python's limit of nested calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnlab.structures import brackets
from attnlab.structures.nltk_trees import nested_of_nltk, nltk_of_nested


@dataclass(frozen=True, eq=False, repr=False)
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
        if not isinstance(self.children, Sequence) or isinstance(self.children, str):
            raise TypeError(f"the children of a tree are a tuple of trees, got {self.children!r}")
        object.__setattr__(self, "children", tuple(self.children))
        for child in self.children:
            if not isinstance(child, Tree):
                raise TypeError(f"the children of a tree are trees, got {child!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        pairs = zip(self.subtrees(), other.subtrees(), strict=False)
        return self is other or all(_head(one) == _head(two) for one, two in pairs)

    def __hash__(self) -> int:
        return hash(tuple(map(_head, self.subtrees())))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled without recursion: the subtrees in a row, the last one first."""
        return _rebuilt, ([_head(tree) for tree in reversed(list(self.subtrees()))],)

    def __repr__(self) -> str:
        return f"<Tree {self}>"

    def __str__(self) -> str:
        """The bracketed text; a label that it cannot hold stands in quotation marks."""
        return brackets.write(self.nested(), brackets.shown)

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
        return [tree for tree in self.subtrees() if not tree.children]

    def nodes(self) -> list["Tree"]:
        """The subtrees that have children; a node comes before its children."""
        return [tree for tree in self.subtrees() if tree.children]

    @property
    def depth(self) -> int:
        """The number of nodes above the deepest leaf: 0 for a leaf alone."""
        deepest, waiting = 0, [(self, 0)]
        while waiting:
            tree, above = waiting.pop()
            deepest = max(deepest, above)
            waiting.extend((child, above + 1) for child in tree.children)
        return deepest

    def spans(self) -> list[tuple[int, int]]:
        """For each of ``nodes()``, the place of its first leaf and the place after its last one."""
        counts: list[int] = []  # of leaves below, for the subtrees from the last to the first
        waiting: list[int] = []
        subtrees = list(self.subtrees())
        for tree in reversed(subtrees):
            below = sum(waiting.pop() for _ in tree.children) if tree.children else 1
            waiting.append(below)
            counts.append(below)
        spans, start = [], 0
        for tree, below in zip(subtrees, reversed(counts), strict=True):
            if tree.is_leaf:
                start += 1
            else:
                spans.append((start, start + below))
        return spans

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

    @classmethod
    def read(cls, text: str) -> "Tree":
        """The tree of bracketed text, as in the Penn Treebank; a single word is a leaf.

        >>> Tree.read("(S (NP the dog) (VP barks))").depth
        2

        Raises ValueError, with line and column, where the text is not exactly one tree.
        """
        return cls.of(brackets.read(text))

    @classmethod
    def read_all(cls, text: str) -> Iterator["Tree"]:
        """Every tree of a text such as a file of the Penn Treebank, one after another."""
        return map(cls.of, brackets.read_all(text))

    def bracketed(self) -> str:
        """The tree as bracketed text on one line, the inverse of ``read``.

        Raises ValueError where a label is empty, holds white space, or holds -LRB- or -RRB-.
        """
        return brackets.write(self.nested(), brackets.escaped)

    @classmethod
    def from_nltk(cls, tree: Any) -> "Tree":
        """The tree of an ``nltk.Tree``, or of any object with ``label()`` and children."""
        return cls.of(nested_of_nltk(tree))

    def to_nltk(self) -> Any:
        """The tree as an ``nltk.Tree``, the inverse of ``from_nltk``; needs nltk."""
        return nltk_of_nested(self.nested())


def _head(tree: Tree) -> tuple[str, int]:
    """What tells two trees apart when all their nodes, in order, are compared."""
    return tree.label, len(tree.children)


def _rebuilt(heads: list[tuple[str, int]]) -> Tree:
    done: list[Tree] = []
    for label, count in heads:
        done.append(Tree(label, tuple(done.pop() for _ in range(count))))
    return done[0]


def _check_nested(item: Any) -> None:
    if not isinstance(item, Sequence):
        raise TypeError(f"a tree is a string or a list of a label and children, got {item!r}")
    if not item or not isinstance(item[0], str):
        raise ValueError(f"a list that is a tree begins with its label, a string, got {item!r}")
    if len(item) == 1:
        raise ValueError(
            f"the node {item[0]!r} has no children; write a leaf as a string: {item[0]!r}"
        )
