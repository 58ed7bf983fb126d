"""Logic: the truth value of a formula, or whether one formula entails another.

    (given p=1 q=0 r=1 (or q (not (implies p r))))   →   false
    (entails (and p q) (or q r))                     →   true

``"value"`` asks for the truth value of a formula under an assignment, which is part of the tree. It
needs every variable's value from elsewhere in the tree and then the whole formula. ``"entailment"``
asks whether the second formula is true under every assignment that makes the first one true, so it
needs the meaning of both, their truth tables.

**The classes are balanced so that parts say nothing.** No formula drawn is always true or always
false. For ``"value"`` the class is drawn after the formula, then one of the assignments that give
it: the formula alone, and so its root operator, is right half of the time. For ``"entailment"`` two
pairs with A ⊨ B and C ⊨ D are drawn for which A ⊨ D and C ⊨ B are false, and one of these four is
shown: either formula alone is right half of the time. That is the design of R. Evans, D. Saxton,
D. Amos, P. Kohli and E. Grefenstette, "Can Neural Networks Understand Logical Entailment?", ICLR
2018, arXiv:1802.08535; theirs are longer formulas over up to 26 variables. Which models compute
with formulas longer than those they were trained on was asked before by S. R. Bowman, C. Potts and
C. D. Manning, "Recursive Neural Networks Can Learn Logical Semantics", CVSC 2015, arXiv:1406.1827.

What the bags of tokens of both formulas tell together remains: a formula with many ``and`` entails
more than one with many ``or``. The tests bound it. Operators are labels of nodes and variables are
leaves, so the form "words" leaves the operators out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar

import numpy as np

from attnlab.core.suggest import check_choice
from attnlab.structures.tree import Tree
from attnlab.tasks import Batch, Example
from attnlab.tasks.tree_forms import FILLER, FORMS, TreeForm
from attnlab.tasks.tree_shapes import check_depths, labelled, random_shape
from attnlab.tasks.tree_task import TreeTask

CLASSES = ("false", "true")
QUESTIONS = ("value", "entailment")
VARIABLES = ("p", "q", "r", "s", "t", "u")
OPERATORS = ("not", "and", "or", "implies", "iff")
GIVEN, ENTAILS = "given", "entails"
_CHILDREN = (1, 2, 2, 2, 2)  # one operator in five is "not"
_POOL = 256  # formulas among which pairs that entail each other are looked for

Sample = Callable[[], tuple[Tree, int]]
Formula = tuple[Tree, int]  # with its truth table, one bit for each assignment


@dataclass(frozen=True)
class Logic(TreeTask):
    """Formulas of a depth from `shallowest` to `deepest`; the class is false (0) or true (1).

    All depths are equally frequent; the root `given` or `entails` is not counted. For
    generalisation to deeper formulas, train on one range and score on another: the positions and
    the tokens depend on `leaves` and `variables`, not on the depths. The leaves decide the split:
    no sequence of them occurs in both splits.

    Args:
        question: "value" or "entailment".
        form: "tree", "words", "graph" or "brackets" (`attnlab.tasks.tree_forms`).
        shallowest: the least depth of a formula; 1 is one operator.
        deepest: the greatest depth of a formula, less than `leaves`.
        leaves: the most variables in a formula, each counted as often as it stands there.
        variables: how many different variables there are, 2 to 6.
    """

    question: str = "value"
    form: str = "tree"
    shallowest: int = 1
    deepest: int = 4
    leaves: int = 12
    variables: int = 4
    names_of_classes: ClassVar[tuple[str, ...]] = CLASSES
    name: ClassVar[str] = "logic"

    def __post_init__(self) -> None:
        check_choice("question", self.question, QUESTIONS)
        check_choice("form", self.form, FORMS)
        self._check_sizes(shallowest=1, deepest=1, leaves=4, variables=2)
        if self.variables > len(VARIABLES):
            raise ValueError(
                f"variables should be at most {len(VARIABLES)}, so that truth tables stay small, "
                f"got {self.variables}"
            )
        check_depths(self.shallowest, self.deepest, self.leaves - 1, f"leaves={self.leaves}")

    @property
    def _form(self) -> TreeForm:
        names = VARIABLES[: self.variables]
        if self.question == "value":
            words = (*names, *(f"{name}={bit}" for name in names for bit in (0, 1)))
            most = self.leaves + self.variables, 1 + self._nodes
            return TreeForm(self.form, words, (*OPERATORS, GIVEN), *most)
        most = 2 * self.leaves, 1 + 2 * self._nodes
        return TreeForm(self.form, names, (*OPERATORS, ENTAILS), *most)

    @property
    def _nodes(self) -> int:
        """The most operators in a formula."""
        return self.leaves + self.leaves // 2

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        random = Random(int(generator.integers(2**63)))
        sample = self._values(random) if self.question == "value" else self._pairs(random)
        return self._form.draw(split, size, sample)

    def _values(self, random: Random) -> Sample:
        """Draws formulas with an assignment, and their truth values."""
        names = VARIABLES[: self.variables]

        def sample() -> tuple[Tree, int]:
            formula, table = self._formula(random)
            value = random.randrange(2)
            rows = [row for row in range(2**self.variables) if table >> row & 1 == value]
            row = random.choice(rows)
            given = (Tree(f"{name}={row >> place & 1}") for place, name in enumerate(names))
            return Tree(GIVEN, (*given, formula)), value

        return sample

    def _pairs(self, random: Random) -> Sample:
        """Draws pairs of formulas, and whether the first entails the second."""
        pool = [self._formula(random) for _ in range(_POOL)]
        tables = np.array([table for _, table in pool], dtype=np.uint64)
        entails = (tables[:, None] & ~tables[None, :]) == 0
        np.fill_diagonal(entails, False)
        firsts, seconds = (places.tolist() for places in entails.nonzero())

        def sample() -> tuple[Tree, int]:
            while True:
                one, other = random.randrange(len(firsts)), random.randrange(len(firsts))
                a, b, c, d = firsts[one], seconds[one], firsts[other], seconds[other]
                if not entails[a, d] and not entails[c, b]:
                    break
            value = random.randrange(2)
            left, right = (a, b) if value else (a, d)
            return Tree(ENTAILS, (pool[left][0], pool[right][0])), value

        return sample

    def _formula(self, random: Random) -> Formula:
        """A formula that is neither always true nor always false, and its truth table."""
        names = VARIABLES[: self.variables]
        depth = random.randint(self.shallowest, self.deepest)
        while True:
            children = random_shape(depth, self.leaves, self._nodes, _CHILDREN, random)
            labels = [
                random.choice(OPERATORS[1:] if len(below) == 2 else ("not",) if below else names)
                for below in children
            ]
            table = _table_of_shape(children, labels, self.variables)
            if 0 < table < 2**2**self.variables - 1:
                return labelled(children, labels), table

    def _describe(self, batch: Batch) -> Example:
        tokens = self.tokens(batch.inputs[0])
        answer = CLASSES[int(batch.targets[0])]
        asked = {
            "value": "Is the formula true under the given values of its variables?",
            "entailment": "Is the second formula true wherever the first is?",
        }[self.question]
        return Example(
            title=f"{self.question.capitalize()} of formulas: {answer}",
            description=f"{asked} The answer is {answer}. "
            f"The tokens: {' '.join(token for token in tokens if token != FILLER)}.",
            tokens=tokens,
            labels=[answer],
        )


@lru_cache(maxsize=8)
def _tables_of_variables(variables: int) -> dict[str, int]:
    """The truth table of each variable: bit `row` is its value in that assignment.

    The variable at `place` has the value of bit `place` of the number of the row.
    """
    rows = range(2**variables)
    return {
        name: sum((row >> place & 1) << row for row in rows)
        for place, name in enumerate(VARIABLES[:variables])
    }


def _table_of_shape(
    children: Sequence[Sequence[int]], labels: Sequence[str], variables: int
) -> int:
    """The truth table of a formula; a whole table is computed by one operation on its bits."""
    every = 2**2**variables - 1
    known = _tables_of_variables(variables)
    tables = [0] * len(children)
    for place in reversed(range(len(children))):
        below, label = [tables[child] for child in children[place]], labels[place]
        if not below:
            tables[place] = known[label]
        elif label == "not":
            tables[place] = every ^ below[0]
        elif label == "and":
            tables[place] = below[0] & below[1]
        elif label == "or":
            tables[place] = below[0] | below[1]
        elif label == "implies":
            tables[place] = (every ^ below[0]) | below[1]
        else:
            tables[place] = every ^ below[0] ^ below[1]
    return tables[0]
