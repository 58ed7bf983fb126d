"""Types: what a piece of real Python code evaluates to.

    "".join(x)[:3]         (Subscript (Call (Attribute "" .join) name) (Slice 0))       →  str
    len(x.split(y)) + 1    (BinOp+ (Call len (Call (Attribute name .split) name)) 0)    →  int

The expressions come from the standard library of CPython and come with attnlab, reduced to trees
over some hundred labels (`attnlab.tasks.python_expressions`, with their licence). The type follows
by simple rules from the leaves upwards: `len` returns an integer, a slice of a list is a list, and
what `a if b else c` gives follows from a and c. Only roots that leave it open are kept: calls, `+`,
`*`, subscripts and conditional expressions, not comparisons or displays.

``"whole"`` asks for the type of the expression, each of the six drawn with the same probability.
The root's label alone is right for about a quarter. But a program that contains `.join` is likely
to make a string: counts of tokens, without the tree, are right for nine tenths.

``"part"`` asks for the type of a part that the node `?` marks. Only expressions are drawn whose
parts have different types, each type of an expression with the same probability, so a model that
does not know where the mark is can be right for half at most. The most frequent class, str, has a
share of about 0.4.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import ClassVar

import numpy as np

from attnlab.core.suggest import check_choice
from attnlab.structures.tree import Tree
from attnlab.tasks import SPLITS, Batch, Example
from attnlab.tasks.python_expressions import (
    MOST_LEAVES,
    OPEN_ROOTS,
    TYPES,
    expressions,
    type_of,
    vocabulary,
)
from attnlab.tasks.sequences import in_split
from attnlab.tasks.tree_forms import FILLER, FORMS, TreeForm
from attnlab.tasks.tree_shapes import check_depths
from attnlab.tasks.tree_task import TreeTask

QUESTIONS = ("whole", "part")
MARK = "?"

Groups = list[list[tuple[Tree, int]]]


@dataclass(frozen=True)
class PythonTypes(TreeTask):
    """Expressions of a depth from `shallowest` to `deepest`; the class is one of `TYPES`.

    The mark is not counted as a level.
    For generalisation to deeper expressions, train on one range and score on another: the positions
    depend on `leaves`, not on the depths; the mark is not counted. The leaves decide the split: no
    sequence of them occurs in both splits, though a part of an expression may.

    Args:
        question: "whole" or "part".
        form: "tree", "words", "graph" or "brackets" (`attnlab.tasks.tree_forms`).
        shallowest: the least depth.
        deepest: the greatest depth, at most `leaves`.
        leaves: the most leaves of an expression, and the most nodes; at most 32.
    """

    question: str = "whole"
    form: str = "tree"
    shallowest: int = 1
    deepest: int = 8
    leaves: int = 16
    names_of_classes: ClassVar[tuple[str, ...]] = TYPES
    name: ClassVar[str] = "python_types"

    def __post_init__(self) -> None:
        check_choice("question", self.question, QUESTIONS)
        check_choice("form", self.form, FORMS)
        self._check_sizes(shallowest=1, deepest=1, leaves=4)
        if self.leaves > MOST_LEAVES:
            raise ValueError(
                f"leaves should be at most {MOST_LEAVES}, the most of any expression that comes "
                f"with attnlab, got {self.leaves}"
            )
        check_depths(self.shallowest, self.deepest, self.leaves, f"leaves={self.leaves}")
        for split in SPLITS:
            self._check_enough(split)

    def _check_enough(self, split: str) -> None:
        for type_, count in self.expressions(split).items():
            if not count:
                raise ValueError(
                    f"no expression of the {split} split has the type {type_}, at most "
                    f"{self.leaves} leaves and a depth from {self.shallowest} to {self.deepest}: "
                    "allow more depths or more leaves"
                )

    @property
    def _form(self) -> TreeForm:
        words, phrases = _vocabulary()
        marks = (MARK,) if self.question == "part" else ()
        return TreeForm(self.form, words, phrases + marks, self.leaves, self.leaves + len(marks))

    def expressions(self, split: str) -> dict[str, int]:
        """How many different expressions of each type, or with a part of it, a split has."""
        check_choice("split", split, SPLITS)
        groups = self._groups(split)
        if self.question == "whole":
            return {type_: len(groups[place]) for place, type_ in enumerate(TYPES)}
        found = Counter(type_ for by_type in groups for type_ in {type_ for _, type_ in by_type})
        return {type_: found[place] for place, type_ in enumerate(TYPES)}

    def _groups(self, split: str) -> Groups:
        return _groups(self.question, split, self.shallowest, self.deepest, self.leaves)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        groups = self._groups(split)
        chosen, places = (generator.random(size).tolist() for _ in range(2))
        rows = []
        for first, second in zip(chosen, places, strict=True):
            group = groups[int(first * len(groups))]
            rows.append(group[int(second * len(group))])
        trees, types = zip(*rows, strict=True)
        return self._form.batch(trees, types)

    def _describe(self, batch: Batch) -> Example:
        tokens = self.tokens(batch.inputs[0])
        type_ = TYPES[int(batch.targets[0])]
        asked = "this expression" if self.question == "whole" else "the part marked by ?"
        shown = " ".join(token for token in tokens if token != FILLER)
        return Example(
            title=f"The type of {asked}: {type_}",
            description=f"Which type has the value of {asked}, from real Python code? The answer "
            f"is {type_}. The tokens: {shown}.",
            tokens=tokens,
            labels=[type_],
        )


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[tuple[str, ...], tuple[str, ...]]:
    return vocabulary(expressions())


@lru_cache(maxsize=2)
def _of_split(split: str) -> list[tuple[Tree, str]]:
    """The expressions whose sequence of leaves belongs to a split, with their types."""
    known = expressions()
    words = TreeForm("words", *_vocabulary(), MOST_LEAVES, MOST_LEAVES)
    leaves = words.batch(list(known), np.zeros(len(known))).inputs.numpy()
    here = in_split(leaves, split)  # the fillers behind a row are 0 and change no hash
    return [pair for pair, chosen in zip(known.items(), here, strict=True) if chosen]


@lru_cache(maxsize=16)
def _groups(question: str, split: str, shallowest: int, deepest: int, most: int) -> Groups:
    """Trees with the numbers of their classes, in groups that are drawn equally often.

    For "whole" a group is a type. For "part" it is an expression: the marked trees with each of its
    types, repeated so that every type of the expression has the same number.
    """
    known = [
        (tree, type_)
        for tree, type_ in _of_split(split)
        if shallowest <= tree.depth <= deepest
        and len(tree.leaves()) <= most
        and len(tree.nodes()) <= most
    ]
    if question == "whole":
        return [[(tree, n) for tree, t in known if t == type_] for n, type_ in enumerate(TYPES)]
    return [group for tree, _ in known if (group := _parts(tree))]


def _parts(tree: Tree) -> list[tuple[Tree, int]]:
    """The tree with each of its parts marked that has an open root; none if all are of one type."""
    by_type: dict[int, list[Tree]] = {}
    for place, part in enumerate(tree.subtrees()):
        type_ = type_of(part)
        if part.label in OPEN_ROOTS and type_ in TYPES:
            by_type.setdefault(TYPES.index(type_), []).append(marked(tree, place))
    if len(by_type) < 2:
        return []
    times = lcm(*map(len, by_type.values()))
    return [
        (shown, type_)
        for type_, trees in by_type.items()
        for shown in trees * (times // len(trees))
    ]


def marked(tree: Tree, place: int) -> Tree:
    """The tree with a node `?` above the part that stands at `place` in `Tree.subtrees`."""
    done: list[Tree] = []
    for number, part in reversed(list(enumerate(tree.subtrees()))):
        copy = Tree(part.label, tuple(done.pop() for _ in part.children))
        done.append(Tree(MARK, (copy,)) if number == place else copy)
    return done[0]
