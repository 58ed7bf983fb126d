"""Logic grids: from clues to a full table, one cell after the other.

    red with cat  cat before dog  blue not-at 3 =          three houses, their colours and pets
    house2 blue … red blue green cat fox dog               with ``scratchpad``: one deduction a step

Three houses stand in a row. Each has another value of every attribute, and the clues leave one
table only; none of them can be left out. There are four sorts of clues, of three tokens each:

    red at 2        the red house is the second one
    red not-at 2    it is not
    red with cat    the cat lives in the red house
    red before cat  the red house stands somewhere before that of the cat

**The computation.** Each step fills one cell. It is the cell that the fewest clues decide, together
with the cells that are known (the clues tried in their order, those cells left out that are not
needed), and these clues and cells are its parents. So a table has an easy beginning where one clue
is enough, or none. The answer copies the cells in their order. Other ways of solving the same
puzzle have other graphs.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, section 2, ask for Einstein's puzzle with up to five houses and attributes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, permutations, product
from typing import Any, ClassVar

import numpy as np

from attnlab.structures.computation import Computation
from attnlab.tasks import Batch, Example
from attnlab.tasks.worked import Question, Worked

HOUSES = 3
VALUES = (("red", "green", "blue"), ("cat", "dog", "fox"), ("tea", "milk", "juice"))
ATTRIBUTES = ("colour", "pet", "drink")
RELATIONS = ("at", "not-at", "with", "before")
_ITEMS = tuple(item for of_one in VALUES for item in of_one)
_PLACES = tuple(str(house + 1) for house in range(HOUSES))
_CELLS = tuple(f"house{house}" for house in _PLACES)
_NAMES = (*_ITEMS, *_PLACES, *RELATIONS, *_CELLS, "=")
_IDS = {name: place for place, name in enumerate(_NAMES)}
Clue = tuple[str, str, str]
_FILLER = 999


@cache
def tables(attributes: int) -> np.ndarray:
    """All tables (tables, attributes · houses): the item, by its number, in each cell."""
    own = [permutations(range(HOUSES * of, HOUSES * (of + 1))) for of in range(attributes)]
    return np.array([[item for row in table for item in row] for table in product(*own)])


@cache
def clues(attributes: int) -> tuple[Clue, ...]:
    """All clues that can be given about so many attributes."""
    known = _ITEMS[: HOUSES * attributes]
    told = [(one, how, at) for one in known for how in ("at", "not-at") for at in _PLACES]
    pairs = [(one, other) for one, other in combinations(known, 2) if _of(one) != _of(other)]
    told += [(one, "with", other) for one, other in pairs]
    return (*told, *((one, "before", other) for one, other in permutations(known, 2)))


@cache
def fits(attributes: int) -> np.ndarray:
    """(clues, tables): whether a clue is true of a table."""
    every = tables(attributes)
    house = {item: (every == number).argmax(1) % HOUSES for number, item in enumerate(_ITEMS)}
    return np.array([_true(house, *clue) for clue in clues(attributes)])


@cache
def _masks(attributes: int) -> tuple[int, ...]:
    """The tables that each clue is true of: bit t of a whole number stands for table t."""
    return tuple(_bits(row) for row in fits(attributes))


@cache
def _holding(attributes: int) -> tuple[dict[int, int], ...]:
    """The tables, as such numbers, that have an item in a cell: a dictionary for each cell."""
    return tuple(
        {item: _bits(of_cell == item) for item in np.unique(of_cell).tolist()}
        for of_cell in tables(attributes).T
    )


def _bits(chosen: np.ndarray) -> int:
    return sum(1 << table for table in np.flatnonzero(chosen).tolist())


def _true(house: dict[str, np.ndarray], one: str, how: str, other: str) -> np.ndarray:
    at = int(other) - 1 if other in _PLACES else house[other]
    return {
        "at": house[one] == at,
        "not-at": house[one] != at,
        "with": house[one] == at,
        "before": house[one] < at,
    }[how]


def _of(item: str) -> int:
    return _ITEMS.index(item) // HOUSES


@dataclass(frozen=True)
class LogicGrids(Worked):
    """Puzzles of three houses with two or three `attributes`: colours, pets and drinks.

    Tokens are nine items, three places, four relations, three names of houses, and =. With
    ``scratchpad`` a deduction is two tokens, a house and an item. A question is the numbers of its
    clues among `clues(attributes)`. The clues decide the split, whatever their order: a puzzle
    of validation occurs in training in no order, and with no other number of attributes.
    """

    attributes: int = 2
    name: ClassVar[str] = "logic_grids"
    names: ClassVar[tuple[str, ...]] = _NAMES

    def __post_init__(self) -> None:
        self._check_sizes(attributes=2)
        self._check_scratchpad()
        if self.attributes > len(VALUES):
            raise ValueError(f"attributes should be 2 or 3, got {self.attributes}")

    @property
    def most_clues(self) -> int:
        """The most clues that a puzzle has; one with more is drawn again."""
        return 4 * self.attributes

    @property
    def cells(self) -> int:
        """How many cells a table has."""
        return HOUSES * self.attributes

    @property
    def length(self) -> int:
        return 3 * self.most_clues + (3 if self.scratchpad else 1) * self.cells

    def computation(self, question: Sequence[int]) -> Computation:
        """The graph of the deductions from some clues."""
        made, left = Computation(), set(range(self.cells))
        given = [made.given(f"clue {place}", number) for place, number in enumerate(question)]
        known: dict[int, str] = {}
        while left:
            cell, parents = self._deduced(question, known, left, made)
            used = [given[place] for place in parents[0]] + [known[each] for each in parents[1]]
            rule = partial(_rule, self.attributes, len(parents[0]), cell, tuple(parents[1]))
            known[cell] = made.step(self._cell(cell), rule, *used)
            left.remove(cell)
        for cell in range(self.cells):
            made.step(f"answer {self._cell(cell)}", int, known[cell])
        return made

    def asked(self, question: Sequence[int]) -> list[int]:
        """Three tokens for each clue, and =."""
        every = clues(self.attributes)
        if not len(question) or not all(0 <= number < len(every) for number in question):
            raise ValueError(
                f"a question should be numbers of clues, from 0 to {len(every) - 1}, "
                f"got {list(question)}"
            )
        words = [word for number in question for word in every[number]]
        return [*(_IDS[word] for word in words), _IDS["="]]

    def answer(self, made: Computation) -> list[str]:
        """All cells, the first attribute of all houses first."""
        return [f"answer {self._cell(cell)}" for cell in range(self.cells)]

    def spelled(self, made: Computation, node: str, value: int) -> list[int]:
        """An item; of a deduction the house before it."""
        return [value] if node.startswith("answer") else [self._house(node), value]

    def _read(self, made: Computation, node: str, tokens: Sequence[int]) -> int | None:
        *house, item = tokens
        attribute = ATTRIBUTES.index(node.split()[-1])
        of_it = HOUSES * attribute <= item < HOUSES * (attribute + 1)
        return item if of_it and house in ([], [self._house(node)]) else None

    def _cell(self, cell: int) -> str:
        return f"{_CELLS[cell % HOUSES]} {ATTRIBUTES[cell // HOUSES]}"

    def _house(self, node: str) -> int:
        return _IDS[node.split()[-2]]

    def _deduced(
        self, question: Sequence[int], known: dict[int, str], left: set[int], made: Computation
    ) -> tuple[int, tuple[tuple[int, ...], list[int]]]:
        """The next cell, and the places of the clues and the cells that decide it."""
        values = {cell: made.steps[name].value for cell, name in known.items()}
        for count in range(len(question) + 1):
            for chosen in combinations(range(len(question)), count):
                numbers = [question[place] for place in chosen]
                fitting = _fitting(self.attributes, numbers, values)
                decided = [c for c in left if _item(self.attributes, fitting, c) is not None]
                if not decided:
                    continue
                cell, needed = min(decided), dict(values)
                for other in values:
                    fewer = {each: item for each, item in needed.items() if each != other}
                    fitting = _fitting(self.attributes, numbers, fewer)
                    if (chosen or fewer) and _item(self.attributes, fitting, cell) is not None:
                        needed = fewer
                return cell, (chosen, list(needed))
        raise ValueError(f"the clues {list(question)} leave several tables, or none")

    def _question(self, contents: Sequence[int]) -> Question:
        return tuple(number for number in contents if number != _FILLER)

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        found = np.full((rows, self.most_clues), _FILLER)
        for row in found:
            puzzle = self._puzzle(generator)
            while len(puzzle) > self.most_clues:
                puzzle = self._puzzle(generator)
            row[: len(puzzle)] = puzzle
        return found

    def _deciding(self, rows: np.ndarray) -> np.ndarray:
        every = {clue: 1 + place for place, clue in enumerate(clues(len(VALUES)))}
        numbers = np.array([every[clue] for clue in clues(self.attributes)])
        known = np.where(rows == _FILLER, 0, numbers[np.where(rows == _FILLER, 0, rows)])
        return -np.sort(-known)  # the largest first, zeros last

    def _puzzle(self, generator: np.random.Generator) -> list[int]:
        """Clues of a random table, drawn until they leave no other, without those not needed."""
        fit, masks = fits(self.attributes), _masks(self.attributes)
        table = generator.integers(fit.shape[1])
        chosen: list[int] = []
        allowed = _fitting(self.attributes, (), {})
        for number in generator.permutation(np.flatnonzero(fit[:, table])).tolist():
            if allowed & ~masks[number]:
                chosen.append(number)
                allowed &= masks[number]
        for number in list(chosen):
            others = [each for each in chosen if each != number]
            if _fitting(self.attributes, others, {}).bit_count() == 1:
                chosen = others
        return chosen

    def _describe(self, batch: Batch) -> Example:
        title = f"A logic grid of {HOUSES} houses and {self.attributes} attributes"
        return self._described(batch, title, "{} is followed by {}.")


def _fitting(attributes: int, numbers: Sequence[int], cells: Mapping[int, int]) -> int:
    """The tables that these clues and the items in some cells leave, as bits."""
    found, masks, holding = (
        (1 << len(tables(attributes))) - 1,
        _masks(attributes),
        _holding(attributes),
    )
    for number in numbers:
        found &= masks[number]
    for cell, item in cells.items():
        found &= holding[cell].get(item, 0)
    return found


def _item(attributes: int, fitting: int, cell: int) -> int | None:
    """The item that all of these tables have in a cell; None where there are several, or none."""
    own = [item for item, held in _holding(attributes)[cell].items() if fitting & held]
    return own[0] if len(own) == 1 else None


def _rule(attributes: int, count: int, cell: int, places: Sequence[int], *values: int) -> Any:
    """The rule of a step, from the numbers of ``count`` clues and the items in the cells
    ``places``; None where these decide nothing, as wrong items may."""
    cells = dict(zip(places, values[count:], strict=True))
    return _item(attributes, _fitting(attributes, values[:count], cells), cell)
