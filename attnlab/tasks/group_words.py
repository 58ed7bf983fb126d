"""Words of a group: after each symbol, which element is the product of all symbols so far?

    1 0 1 1        inputs in Z2, added modulo 2
    1 1 0 1        targets: the parity

In S3 and S5 the symbols are permutations of 3 and 5 objects, and the target is where all objects
are now. What happened so far has to be kept as one of the elements of the group, and every symbol
changes it, so a model of fixed depth cannot look the answer up: it has to track a state. For Z2 the
state is a sign, for S3 an element of a group that is not commutative, and S5 is not solvable: its
words are complete for a class of problems (NC1) that transformers of fixed depth and linear
recurrences with diagonal transitions are thought not to contain.

W. Merrill, J. Petty, A. Sabharwal, "The Illusion of State in State-Space Models", ICML 2024,
arXiv:2404.08819; R. Grazzi, J. Siems and others, "Unlocking State-Tracking in Linear RNNs Through
Negative Eigenvalues", ICLR 2025, arXiv:2411.12537, train on parity and on permutations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, repeat
from typing import ClassVar

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, enough_contents

GROUPS = ("Z2", "Z3", "Z5", "S3", "S4", "S5", "A5")
"""Rotations of so many objects, all their permutations, and the even ones."""


@cache
def elements(group: str) -> np.ndarray:
    """(elements, objects): to which place each object goes; the first element moves none."""
    check_choice("group", group, GROUPS)
    objects = int(group[1])
    if group[0] == "Z":
        return (np.arange(objects)[:, None] + np.arange(objects)) % objects
    every = np.array(list(permutations(range(objects))))
    return every[_even(every)] if group[0] == "A" else every


@cache
def product_table(group: str) -> np.ndarray:
    """(elements, elements): the number of the element that does the row's, then the column's."""
    every = elements(group)
    place = {tuple(each): number for number, each in enumerate(every.tolist())}
    return np.array([[place[tuple(after[first])] for after in every] for first in every])


def _even(every: np.ndarray) -> np.ndarray:
    """Whether an even number of pairs of objects has changed its order."""
    first, second = np.triu_indices(every.shape[1], 1)
    changed: np.ndarray = (every[:, first] > every[:, second]).sum(axis=1) % 2 == 0
    return changed


@dataclass(frozen=True)
class GroupWords(Task):
    """`length` random elements of `group`; at each position the product of those read so far.

    With `swaps` the symbols are only the identity and the exchanges of two objects, which generate
    all permutations; the answers are still elements of the whole group. The word decides the split:
    none occurs in both splits.
    """

    length: int = 16
    group: str = "Z2"
    swaps: bool = False
    name: ClassVar[str] = "group_words"
    kind: ClassVar[str] = "language_model"

    def __post_init__(self) -> None:
        self._check_sizes(length=2)
        check_choice("group", self.group, GROUPS)
        check_value("swaps", self.swaps, bool)
        if self.swaps and self.group[0] != "S":
            raise ValueError(
                f"swaps=True needs all permutations of some objects, and group={self.group!r} has "
                "only some of them: choose S3, S4 or S5, or leave swaps out"
            )
        options = f"group={self.group!r}, swaps={self.swaps} and length={self.length}"
        enough_contents(repeat(len(self.symbols), self.length), options)

    @property
    def vocab(self) -> int:
        return len(elements(self.group))

    @property
    def symbols(self) -> np.ndarray:
        """The numbers of the elements that occur as inputs."""
        every = elements(self.group)
        moved = (every != np.arange(every.shape[1])).sum(axis=1)
        return np.flatnonzero(moved <= 2) if self.swaps else np.arange(len(every))

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token: a number in Z, else the places of the objects."""
        every = elements(self.group)
        names = ["".join(str(place + 1) for place in each) for each in every]
        if self.group[0] == "Z":
            names = [str(number) for number in range(len(every))]
        return display_names(ids, names)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        words = draw_contents(split, size, generator, self._sample)
        table, products = product_table(self.group), words.copy()
        for place in range(1, self.length):
            products[:, place] = table[products[:, place - 1], words[:, place]]
        return Batch(from_numpy(words), from_numpy(products))

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        return generator.choice(self.symbols, size=(rows, self.length))

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        return Example(
            title=f"A word of {self.length} elements of {self.group}",
            description="At each position the product of all elements so far is asked for, in the "
            f"order in which they come; at the end it is {labels[-1]}.",
            tokens=tokens,
            labels=labels,
        )
