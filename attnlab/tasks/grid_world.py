"""Grid world: how are the blocks on a table to be moved, so that a goal is reached?

    [observation] how to put red on blue ?   →   green to table , red to blue .

A few coloured blocks stand on the places of a table, alone or stacked (`attnlab.tasks.blocks`). A
model is told the world by an observation, asked for a plan, and writes its steps in words. A plan
is right if it reaches the goal when it is carried out, whatever its words are; what stands in
``targets`` is one of the shortest. The questions:

    put      how to put red on blue ?
    clear    how to clear green ?
    tower    how to put red on blue , blue on green ?

The observation stands in front of the question: in words, or as vectors in ``source``, for each of
which a marker stands in the sentence:

    words      red is on blue , green is on table , blue is on table ,
    state      one vector: of each colour whether it is there, its place and its height
    objects    a vector for each block, in any order: its colour, its place and its height
    named      the same vectors, each named: red is [·] , green is [·] , blue is [·] ,
    picture    the table seen from the front, as patches of the pixels of one block

Places and heights are from 0 to 1. Words say what stands on what, vectors where it stands: places
next to each other mean nothing, the same place and the next height mean "on".

No arrangement, of which block stands on which, occurs in both splits, on whatever places: the
observations of validation are new in words too. How many steps a question needs is bounded by
``fewest`` and ``most``, so that a model that has learned plans of two steps can be asked for longer
ones, with ``GridWorld(fewest=3)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import ClassVar, NamedTuple

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.integers import check_integer
from attnlab.core.options import check_value
from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS, Batch, Example, Task
from attnlab.tasks.blocks import (
    AND,
    COLOURS,
    END,
    PIXELS,
    TABLE,
    TO,
    Goal,
    Move,
    World,
    every_world,
    shortest,
    written,
)
from attnlab.tasks.sequences import display_names, next_words

OBSERVATIONS = ("words", "state", "objects", "named", "picture")
ASKS = ("put", "clear", "tower")
NAMES = (*COLOURS, TABLE, TO, AND, END, "is", "on", "how", "put", "clear", "?", "start", "vector")
IDS = {name: place for place, name in enumerate(NAMES)}
START, STOP, MARKER = IDS["start"], IDS[END], IDS["vector"]
MOST_PLACES = 8
_HELD = 6  # one arrangement in so many is validation
_Names = tuple[str, ...]


class Question(NamedTuple):
    """A goal in a world, and one of the shortest plans that reach it."""

    world: World
    goal: Goal
    plan: tuple[Move, ...]


@dataclass(frozen=True)
class GridWorld(Task):
    """Observations, questions and plans `(b, n)`; with vectors also ``source`` `(b, m, f)`.

    Every question that needs so many steps is equally likely. The plan is to be answered, from its
    first word to its ".".

    observation: "words", "state", "objects", "named" or "picture".
    markers: how many stand in the sentence for each vector of the source, for a model that makes
        several of one.
    also_words: half of the rows are told in words, and have no vectors.
    asks: which questions: "put", "clear", "tower".
    blocks, places: how many, 2 to 4 blocks on at least as many places, at most 8.
    fewest, most: the steps of the shortest plan of a question.
    """

    observation: str = "objects"
    markers: int = 1
    also_words: bool = False
    asks: _Names = ASKS
    blocks: int = 3
    places: int = 4
    fewest: int = 1
    most: int = 8
    name: ClassVar[str] = "grid_world"
    vocab: ClassVar[int] = len(NAMES)

    def __post_init__(self) -> None:
        self._check_sizes(markers=1, blocks=2, places=1, fewest=1, most=1)
        check_choice("observation", self.observation, OBSERVATIONS)
        object.__setattr__(self, "also_words", check_value("also_words", self.also_words, bool))
        object.__setattr__(self, "asks", check_value("asks", self.asks, _Names))
        for ask in self.asks:
            check_choice("question", ask, ASKS)
        if not self.asks or len(set(self.asks)) < len(self.asks):
            raise ValueError(f"asks should name each kind of question once, got {self.asks!r}")
        if self.blocks > len(COLOURS):
            raise ValueError(f"there are {len(COLOURS)} colours, got blocks={self.blocks}")
        if not self.blocks <= self.places <= MOST_PLACES:
            raise ValueError(
                f"places should be from blocks={self.blocks} to {MOST_PLACES}, so that each block "
                f"can stand on the table, got {self.places}"
            )
        if self.also_words and self.observation == "words":
            raise ValueError("observation='words' tells every row in words: leave also_words out")
        if not self._asked("train") or not self._asked("validation"):
            raise ValueError(
                f"no question about {self.blocks} blocks on {self.places} places needs from "
                f"fewest={self.fewest} to most={self.most} steps in both splits"
            )

    @property
    def kind(self) -> str:
        return "language_model" if self.observation == "words" else "encoder_decoder"

    @property
    def vectors(self) -> int:
        """How many vectors an observation has: the rows of ``source``."""
        counts = {"words": 0, "state": 1, "picture": self.places**2}
        return counts.get(self.observation, self.blocks)

    @property
    def numbers(self) -> int:
        """The width of a vector of the source; 0 without one."""
        counts = {"words": 0, "state": 3 * len(COLOURS), "picture": 3 * PIXELS**2}
        return counts.get(self.observation, len(COLOURS) + 2)

    @property
    def length(self) -> int:
        told = [self._told(self.observation)] + [self._told("words")] * self.also_words
        return max(told) + _longest(self.blocks, self.places, self.asks, self.fewest, self.most)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, NAMES)

    def questions(self, split: str, size: int, seed: int) -> list[Question]:
        """The questions of the rows of `batch(split, size, seed)`, by which answers are judged."""
        return self._chosen(split, *self._begin(split, size, seed))

    def of(self, questions: Sequence[Question], seed: int = 0) -> Batch:
        """The batch of these questions; the seed orders the blocks of an observation."""
        seed = check_integer("seed", seed, at_least=0)
        return self._batch(questions, np.random.default_rng(seed))

    def example(self, index: int = 0, split: str = "validation") -> Example:
        """As that of any task; the image is the table, its colours 1 to 4 as in ``COLOURS``."""
        example = super().example(index, split)
        (question,) = self.questions(split, 1, seed=index)
        return replace(example, image=_front(question.world))

    def _asked(self, split: str) -> tuple[Question, ...]:
        return _questions(split, self.blocks, self.places, self.asks, self.fewest, self.most)

    def _told(self, observation: str) -> int:
        """Tokens of an observation, with "start"."""
        if observation == "words":
            return 1 + 5 * self.blocks
        return 1 + self.vectors * (self.markers + 3 * (observation == "named"))

    def _chosen(self, split: str, size: int, generator: np.random.Generator) -> list[Question]:
        asked = self._asked(split)
        return [asked[place] for place in generator.integers(len(asked), size=size)]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        return self._batch(self._chosen(split, size, generator), generator)

    def _batch(self, questions: Sequence[Question], generator: np.random.Generator) -> Batch:
        shown = np.full(len(questions), self.vectors > 0)
        if self.also_words:
            shown = generator.integers(2, size=len(questions)) == 1
        source = np.zeros((len(questions), max(1, self.vectors), max(1, self.numbers)), np.float32)
        rows = []
        for row, (question, seen) in enumerate(zip(questions, shown, strict=True)):
            world = question.world
            order = [world.blocks[place] for place in generator.permutation(self.blocks)]
            said = _in_words(world, order)
            if seen:
                said, source[row] = self._observed(world, order)
            asked = [IDS[word] for word in ("start", *said, *question.goal.words)]
            rows.append((asked, [IDS[word] for word in written(question.plan)]))
        batch = next_words(rows)
        if not self.vectors:
            return batch
        real = np.repeat(shown[:, None], self.vectors, axis=1)
        return replace(batch, source=from_numpy(source), source_padding=from_numpy(real))

    def _observed(self, world: World, order: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """The words of an observation, with its markers, and its vectors."""
        marks = ["vector"] * self.markers * self.vectors
        if self.observation == "picture":
            return marks, _patches(world.picture())
        if self.observation == "state":
            there = [[1, *self._where(world, c)] if c in order else [0, 0, 0] for c in COLOURS]
            return marks, np.array(there).reshape(1, -1)
        colours = np.eye(len(COLOURS))
        each = [[*colours[COLOURS.index(c)], *self._where(world, c)] for c in order]
        if self.observation == "named":
            own = ["vector"] * self.markers
            marks = [word for colour in order for word in (colour, "is", *own, AND)]
        return marks, np.array(each)

    def _where(self, world: World, block: str) -> tuple[float, float]:
        """Place and height, from 0 to 1."""
        place, height = world.place(block)
        return place / (self.places - 1), height / (self.places - 1)

    def _describe(self, batch: Batch) -> Example:
        tokens, labels = self.tokens(batch.inputs[0]), self.tokens(batch.targets[0])
        begin = tokens.index("how")
        asked = " ".join(tokens[begin : tokens.index("?") + 1])
        plan = " ".join(label for label in labels if label)
        count = tokens.count("vector")
        told = f"{count} vector{'s' * (count > 1)}" if count else " ".join(tokens[1 : begin - 1])
        return Example(
            title=asked.capitalize(),
            description=f"The world is told by {told}. To “{asked}” one of the shortest plans is: "
            f"{plan}",
            tokens=tokens,
            labels=labels,
        )


def _in_words(world: World, order: Sequence[str]) -> list[str]:
    return [word for block in order for word in (block, "is", "on", world.under(block), AND)]


def _patches(light: np.ndarray) -> np.ndarray:
    """Patches (n, PIXELS² · 3) of a picture in reading order: row, column, colour inside."""
    n = light.shape[1] // PIXELS
    cut = light.reshape(3, n, PIXELS, n, PIXELS).transpose(1, 3, 2, 4, 0)
    return cut.reshape(n * n, -1)


def _front(world: World) -> np.ndarray:
    """The picture of a world in one number for each colour."""
    level = np.zeros((PIXELS * len(world.stacks),) * 2, dtype=np.int64)
    for number, block in enumerate(COLOURS, start=1):
        if block in world.blocks:
            place, height = world.place(block)
            left, low = PIXELS * place, len(level) - PIXELS * height
            level[low - PIXELS : low, left : left + PIXELS] = number
    return level


def _goals(blocks: Sequence[str], asks: Sequence[str]) -> list[Goal]:
    """Every goal of some kinds about blocks of these colours."""
    found = {
        "put": [Goal(on=(pair,)) for pair in permutations(blocks, 2)],
        "clear": [Goal(clear=(block,)) for block in blocks],
        "tower": [Goal(on=((a, b), (b, c))) for a, b, c in permutations(blocks, 3)],
    }
    return [goal for ask in asks for goal in found[ask]]


@cache
def _worlds(split: str, blocks: int, places: int) -> tuple[World, ...]:
    """The worlds of a split, where it is decided by what stands on what, whatever the places.

    Every sixth arrangement, of all towers, then of all that have more stacks, is validation.
    """
    every = [*every_world(blocks, places)]
    kinds = {_stacks(world) for world in every}
    held = sorted(kinds, key=lambda stacks: (len(stacks), stacks))[3::_HELD]
    return tuple(world for world in every if (_stacks(world) in held) == (split == "validation"))


def _stacks(world: World) -> tuple[tuple[str, ...], ...]:
    """The stacks of a world in an order of their own."""
    return tuple(sorted(stack for stack in world.stacks if stack))


@cache
def _questions(
    split: str, blocks: int, places: int, asks: _Names, fewest: int, most: int
) -> tuple[Question, ...]:
    found = (
        Question(world, goal, shortest(world, goal))
        for world in _worlds(split, blocks, places)
        for goal in _goals(world.blocks, asks)
    )
    return tuple(each for each in found if fewest <= len(each.plan) <= most)


@cache
def _longest(blocks: int, places: int, asks: _Names, fewest: int, most: int) -> int:
    """Words of the longest question with its plan, in both splits."""
    asked = (_questions(split, blocks, places, asks, fewest, most) for split in SPLITS)
    return max(len(q.goal.words) + len(written(q.plan)) for both in asked for q in both)
