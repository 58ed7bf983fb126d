"""ListOps: the value of nested operations on lists of digits.

    [MAX 2 9 [MIN 4 7 ] 0 ]   →   9

MAX, MIN, MED (the median; of an even number of values, the mean of the middle two rounded down) and
SM (the sum modulo 10), so the answer is a digit. Which digits matter is decided by operators that
may stand far away, and the value of an inner list is an argument of the outer one: a model has to
follow the tree. The task comes from N. Nangia and S. R. Bowman, "ListOps: A Diagnostic Dataset for
Latent Tree Learning", NAACL-SRW 2018, arXiv:1804.06028; the Long Range Arena made it long (Y. Tay
and others, ICLR 2021, arXiv:2011.04006).

**What differs from the paper.** There, digits and operators are drawn independently, and of short
expressions far more than a tenth have the value 0 or 9. Here the value is drawn first, each digit
with probability 1/10, and passed down: the arguments of an operation are random among those that
give its value. So the classes are equal in number for every operator at the root, every depth and
every number of leaves, and the expected share of the most frequent class is 1/10. The sizes are
smaller, for tiny models. Operators are labels of nodes and digits are leaves: the form "words"
leaves the operators out, and shows what the digits alone tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.structures.tree import Tree
from attnlab.tasks import Batch, Example
from attnlab.tasks.tree_forms import FILLER, FORMS, TreeForm
from attnlab.tasks.tree_shapes import check_depths, labelled, random_shape
from attnlab.tasks.tree_task import TreeTask

OPERATORS = ("MAX", "MIN", "MED", "SM")
DIGITS = tuple("0123456789")
_NAMES = tuple[str, ...]


@dataclass(frozen=True)
class ListOps(TreeTask):
    """Expressions of a depth from `shallowest` to `deepest`; the class is the value, 0 to 9.

    All depths are equally frequent. For generalisation to deeper trees, train on one range and
    score on another: the positions and the tokens depend on `leaves`, not on the depths. The
    digits decide the split: no sequence of them occurs in both splits.

    Args:
        form: "tree", "words", "graph" or "brackets" (`attnlab.tasks.tree_forms`).
        shallowest: the least depth; 1 is an operation on digits alone.
        deepest: the greatest depth, at most `leaves // 2`.
        arguments: the most arguments of an operation; the least are 2.
        leaves: the most digits; at most half as many operations.
        operators: those that may occur.
    """

    form: str = "tree"
    shallowest: int = 1
    deepest: int = 4
    arguments: int = 5
    leaves: int = 32
    operators: tuple[str, ...] = OPERATORS
    names_of_classes: ClassVar[tuple[str, ...]] = DIGITS
    name: ClassVar[str] = "listops"

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        self._check_sizes(shallowest=1, deepest=1, arguments=2, leaves=6)
        check_depths(self.shallowest, self.deepest, self.leaves // 2, f"leaves={self.leaves}")
        # The class is frozen, so what is normalised is set this way.
        object.__setattr__(self, "operators", check_value("operators", self.operators, _NAMES))
        for operator in self.operators:
            check_choice("operator", operator, OPERATORS)
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(
                f"operators should name one operator or more, each once, got {self.operators!r}"
            )

    @property
    def _form(self) -> TreeForm:
        return TreeForm(self.form, DIGITS, OPERATORS, self.leaves, self.leaves // 2)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        random = Random(int(generator.integers(2**63)))
        return self._form.draw(split, size, lambda: self._sample(random))

    def _sample(self, random: Random) -> tuple[Tree, int]:
        depth = random.randint(self.shallowest, self.deepest)
        counts = range(2, self.arguments + 1)
        children = random_shape(depth, self.leaves, self.leaves // 2, counts, random)
        values = [random.randrange(10)] * len(children)
        labels = []
        for place, below in enumerate(children):  # from the root down
            if below:
                operator = random.choice(self.operators)
                wanted = arguments_with(operator, values[place], len(below), random)
                values[below[0] : below[-1] + 1] = wanted
            labels.append(operator if below else DIGITS[values[place]])
        return labelled(children, labels), values[0]

    def _describe(self, batch: Batch) -> Example:
        tokens = self.tokens(batch.inputs[0])
        value = DIGITS[int(batch.targets[0])]
        return Example(
            title=f"An expression with the value {value}",
            description=f"What is the value of the expression, from 0 to 9? The answer is {value}. "
            f"The tokens: {' '.join(token for token in tokens if token != FILLER)}.",
            tokens=tokens,
            labels=[value],
        )


def value_of(operator: str, arguments: Sequence[int]) -> int:
    """The digit that an operator makes of digits."""
    check_choice("operator", operator, OPERATORS)
    if operator == "SM":
        return sum(arguments) % 10
    if operator == "MED":
        ordered, half = sorted(arguments), len(arguments) // 2
        return (ordered[half] + ordered[-1 - half]) // 2
    return max(arguments) if operator == "MAX" else min(arguments)


def arguments_with(operator: str, value: int, count: int, random: Random) -> list[int]:
    """`count` digits, in random order, for which `value_of(operator, digits) == value`."""
    if operator == "SM":
        digits = [random.randrange(10) for _ in range(count - 1)]
        digits.append((value - sum(digits)) % 10)
    elif operator == "MED":
        low, high = _middle(value, count, random)
        digits = [low] if count % 2 else [low, high]
        for _ in range((count - 1) // 2):
            digits += [random.randint(0, low), random.randint(high, 9)]
    else:
        low, high = (0, value) if operator == "MAX" else (value, 9)
        digits = [value, *(random.randint(low, high) for _ in range(count - 1))]
    random.shuffle(digits)
    return digits


def _middle(value: int, count: int, random: Random) -> tuple[int, int]:
    """The two middle values of an even count, whose mean rounded down is the value."""
    if count % 2:
        return value, value
    total = min(2 * value + random.randrange(2), 18)
    low = random.randint(max(total - 9, 0), total // 2)
    return low, total - low
