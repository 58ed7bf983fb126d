"""Trees as the input of a model: as a tree, as its words alone, or as bracketed text.

    tree        the dog barks  S NP VP           and which node stands above which
    words       the dog barks
    graph       the dog barks  S NP VP           and an edge to and from the node above each
    brackets    (S (NP the dog ) (VP barks ) )   one token per opening bracket, word and ")"

The forms hold the same trees, so a model that computes along a tree can be compared with one
that reads a sequence, and with one that is told the tree within the sequence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice, suggestion
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch, parents_of
from attnlab.tasks import Batch
from attnlab.tasks.sequences import display_names, in_split

FORMS = ("tree", "words", "graph", "brackets")
FILLER, CLOSE = "·", ")"
_MOST_TRIES = 1000  # for each tree that is wanted


@dataclass(frozen=True)
class TreeForm:
    """How trees become the tokens of a ``Batch``.

    Tokens are numbers: 0 fills short rows up (``padding`` marks it), then come the ``words``, then
    the ``phrases``, and in brackets the closing bracket. The positions of a row are

        form        positions
        "tree"      the leaves from left to right, then the nodes in the order of ``Tree.nodes()``
        "words"     the leaves from left to right
        "graph"     as "tree"; edges of kind 0 lead up, those of kind 1 down, and two features say
                    the same
        "brackets"  the bracketed text

    filled up to the longest row of the batch.

    Args:
        form: "tree", "words", "graph" or "brackets".
        words: the labels that leaves may have.
        phrases: the labels that nodes may have. One label may stand in both.
        leaves: the most leaves of a tree.
        nodes: the most nodes of a tree, leaves not counted.
    """

    form: str
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    leaves: int
    nodes: int

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        for name in ("leaves", "nodes"):
            check_integer(name, getattr(self, name), at_least=1)
        for name in ("words", "phrases"):
            labels = getattr(self, name)
            if not isinstance(labels, tuple) or not all(isinstance(item, str) for item in labels):
                raise TypeError(f"{name} should be a tuple of strings, got {labels!r}")
            if len(set(labels)) < len(labels):
                twice = next(label for label in labels if labels.count(label) > 1)
                raise ValueError(f"{name} names {twice!r} twice; name every label once")

    @property
    def length(self) -> int:
        """The most positions that a row can have."""
        return (
            self.leaves + {"tree": 1, "words": 0, "graph": 1, "brackets": 2}[self.form] * self.nodes
        )

    @property
    def vocab(self) -> int:
        return len(self._names)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token; `·` where the row is filled up."""
        return display_names(ids, self._names)

    def batch(self, trees: Sequence[Tree], classes: Sequence[int] | np.ndarray) -> Batch:
        """A batch of one row per tree, the target of row ``i`` being ``classes[i]``.

        Raises ValueError where a tree has a label that the form does not know, or too many leaves
        or nodes.
        """
        targets = np.asarray(classes, dtype=np.int64)
        if targets.shape != (len(trees),):
            raise ValueError(
                f"classes should be one number for each of the {len(trees)} trees, got shape "
                f"{targets.shape}"
            )
        rows = [self._row(tree) for tree in trees]
        inputs = np.zeros((len(trees), max(map(len, rows))), dtype=np.int64)
        for filled, row in zip(inputs, rows, strict=True):
            filled[: len(row)] = row
        structure: TreeBatch | GraphBatch | None = None
        if self.form == "tree":
            structure = TreeBatch.of(trees)
        elif self.form == "graph":
            structure = GraphBatch.of([graph_of(tree) for tree in trees])
        padding = from_numpy(inputs > 0)
        return Batch(from_numpy(inputs), from_numpy(targets), padding, structure=structure)

    def draw(
        self,
        split: str,
        size: int,
        sample: Callable[[], tuple[Tree, int]],
        *,
        decided_by: str = "words",
    ) -> Batch:
        """The first ``size`` trees of ``split`` among those that ``sample()`` returns, as a batch.

        ``sample()`` gives a tree and its class, at random. Training and validation share no tree:
        what ``decided_by`` names is hashed (``in_split``), the leaves alone ("words") or leaves and
        nodes ("brackets"). With "words", the same words never stand in both splits, not even under
        two trees. The form plays no part, so every form sees the same trees.
        """
        check_choice("part of a tree", decided_by, ("words", "brackets"))
        hashed = self._words if decided_by == "words" else self._bracketed
        trees: list[Tree] = []
        classes: list[int] = []
        for _ in range(_MOST_TRIES * size):
            tree, target = sample()
            if in_split(np.array([hashed(tree)]), split)[0]:
                trees.append(tree)
                classes.append(target)
                if len(trees) == size:
                    return self.batch(trees, classes)
        raise ValueError(
            f"of {_MOST_TRIES * size:,} trees only {len(trees)} belong to {split!r}: there are too "
            "few different ones; allow more leaves or more labels"
        )

    @cached_property
    def _names(self) -> list[str]:
        if self.form == "brackets":
            return [FILLER, *self.words, *("(" + phrase for phrase in self.phrases), CLOSE]
        return [FILLER, *self.words, *(() if self.form == "words" else self.phrases)]

    @cached_property
    def _word_numbers(self) -> dict[str, int]:
        return {label: 1 + place for place, label in enumerate(self.words)}

    @cached_property
    def _phrase_numbers(self) -> dict[str, int]:
        return {label: 1 + len(self.words) + place for place, label in enumerate(self.phrases)}

    def _row(self, tree: Tree) -> list[int]:
        self._check_size(tree)
        if self.form == "brackets":
            return self._bracketed(tree)
        return self._words(tree) + ([] if self.form == "words" else self._phrases(tree))

    def _words(self, tree: Tree) -> list[int]:
        return [self._number(leaf) for leaf in tree.leaves()]

    def _phrases(self, tree: Tree) -> list[int]:
        return [self._number(node) for node in tree.nodes()]

    def _bracketed(self, tree: Tree) -> list[int]:
        """The tokens of the bracketed text."""
        close = 1 + len(self.words) + len(self.phrases)
        text: list[int] = []
        waiting: list[Tree | None] = [tree]  # None closes a bracket
        while waiting:
            item = waiting.pop()
            text.append(close if item is None else self._number(item))
            if item is not None and not item.is_leaf:
                waiting.append(None)
                waiting.extend(reversed(item.children))
        return text

    def _number(self, tree: Tree) -> int:
        numbers = self._word_numbers if tree.is_leaf else self._phrase_numbers
        if tree.label not in numbers:
            kind, argument = ("leaf", "words") if tree.is_leaf else ("node", "phrases")
            raise ValueError(
                f"no {kind} may be labelled {tree.label!r} here{suggestion(tree.label, numbers)}; "
                f"{argument} names what is allowed"
            )
        return numbers[tree.label]

    def _check_size(self, tree: Tree) -> None:
        for name, found in (("leaves", tree.leaves()), ("nodes", tree.nodes())):
            most = getattr(self, name)
            if len(found) > most:
                raise ValueError(
                    f"a tree has {len(found)} {name}, more than the {most} that {name}={most} "
                    "allows; make it larger"
                )


def graph_of(tree: Tree) -> Graph:
    """Leaves and nodes, with an edge of kind 0 from each to the node above it and one of kind 1
    back; of the two features of an edge the one of its kind is 1."""
    parents = parents_of(tree)
    up = [(place, above) for place, above in enumerate(parents) if above >= 0]
    edges = up + [(above, place) for place, above in up]
    kinds = [0] * len(up) + [1] * len(up)
    return Graph(len(parents), edges, kinds, [[1.0 - kind, float(kind)] for kind in kinds])
