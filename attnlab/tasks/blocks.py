"""Blocks on a table: worlds, goals, and plans that are carried out step by step.

A table has a few places in a row. On each stands a stack of blocks, or none; every block has a
colour of its own. A plan is a sentence of steps, each of which takes a block from the top of its
stack and puts it on another block, or on a free place of the table:

    green to table , red to blue .

Whether a plan is right is decided by carrying it out: it is right if each step can be done and the
goal holds in the end. So there may be several right plans, and a plan that differs from another in
its words can be as right. A block that stands on the table already cannot be put there: a plan that
clears what might be in the way, to be safe, is not a plan for this world.

``World``     where the blocks stand, as coordinates and as a picture.
``Goal``      what is to hold; ``Goal.missing`` says what does not.
``outcome``   what becomes of a plan in a world: its last world, or which step fails, and why.
``shortest``  one of the shortest plans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

COLOURS = ("red", "green", "blue", "yellow")
TABLE, TO, AND, END = "table", "to", ",", "."
LIGHT = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
PIXELS = 2  # along each side of a block

Move = tuple[str, str]
"""A block, and where it goes: a block or "table"."""


@dataclass(frozen=True)
class World:
    """Stacks of blocks, one for each place of the table from left to right, each from its lowest
    block to its highest; () where no block stands."""

    stacks: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        every = [block for stack in self.stacks for block in stack]
        if not every or len(set(every)) < len(every) or not set(every) <= set(COLOURS):
            raise ValueError(
                f"a world has blocks of different colours, of {', '.join(COLOURS)}, got "
                f"{self.stacks!r}"
            )

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The colours that are there, in the order of ``COLOURS``."""
        return tuple(colour for colour in COLOURS if any(colour in one for one in self.stacks))

    def place(self, block: str) -> tuple[int, int]:
        """Where a block stands: the place on the table and its height, both from 0."""
        for place, stack in enumerate(self.stacks):
            if block in stack:
                return place, stack.index(block)
        raise ValueError(f"there is no {block} block; there are {', '.join(self.blocks)}")

    def under(self, block: str) -> str:
        """What a block stands on: another block or "table"."""
        place, height = self.place(block)
        return self.stacks[place][height - 1] if height else TABLE

    def on(self, block: str) -> str | None:
        """The block that stands on a block, if one does."""
        place, height = self.place(block)
        return next(iter(self.stacks[place][height + 1 :]), None)

    def moved(self, block: str, onto: str) -> "World":
        """The world after a step. A ValueError, in a sentence, where the step cannot be done.

        On the table a block goes to the first place that is free.
        """
        place, _ = self.place(block)
        if (above := self.on(block)) is not None:
            raise ValueError(f"{block} cannot be taken, since {above} stands on it")
        if onto == block:
            raise ValueError(f"{block} cannot be put on itself")
        stacks = [*self.stacks]
        if onto == TABLE:
            if self.under(block) == TABLE:
                raise ValueError(f"{block} stands on the table already")
            if () not in stacks:
                raise ValueError(f"{block} cannot be put on the table, where no place is free")
            target = stacks.index(())
        else:
            target, _ = self.place(onto)
            if (above := self.on(onto)) is not None:
                raise ValueError(f"{block} cannot be put on {onto}, since {above} stands on it")
        stacks[place] = stacks[place][:-1]
        stacks[target] = (*stacks[target], block)
        return World(tuple(stacks))

    def picture(self) -> np.ndarray:
        """The table seen from the front, (3, side, side), red, green and blue light from 0 to 1.

        A block has 2 × 2 pixels, the lowest row of pixels is that of the lowest blocks, and yellow
        is red and green. The picture is square, with as many rows of blocks as there are places: a
        ValueError for a higher stack.
        """
        highest = max(len(stack) for stack in self.stacks)
        if highest > len(self.stacks):
            raise ValueError(
                f"a picture of {len(self.stacks)} places has as many rows of blocks, and a stack "
                f"of {highest} does not fit; give the world {highest} places"
            )
        side = PIXELS * len(self.stacks)
        light = np.zeros((3, side, side), dtype=np.float32)
        for block in self.blocks:
            place, height = self.place(block)
            left, low = PIXELS * place, side - PIXELS * height
            light[:, low - PIXELS : low, left : left + PIXELS] = np.array(LIGHT[block])[
                :, None, None
            ]
        return light


@dataclass(frozen=True)
class Goal:
    """What is to hold: blocks that stand on others, ((red, blue),), and blocks with nothing on
    them, (green,). A ValueError where nothing is to hold."""

    on: tuple[Move, ...] = ()
    clear: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.on and not self.clear:
            raise ValueError(
                "a goal asks for something: give blocks that are to stand on others, such as "
                "on=(('red', 'blue'),), or blocks to clear, such as clear=('green',)"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The question: how to put red on blue ?"""
        puts = [[upper, "on", lower] for upper, lower in self.on]
        clears = [["clear", block] for block in self.clear]
        said = [*(["put", *one] if i == 0 else one for i, one in enumerate(puts)), *clears]
        return ("how", "to", *said[0], *(word for part in said[1:] for word in (AND, *part)), "?")

    def missing(self, world: World) -> str:
        """The first part of the goal that does not hold, in words; "" if all of it holds."""
        for upper, lower in self.on:
            if world.under(upper) != lower:
                return f"{upper} stands on {_the(world.under(upper))}, not on {lower}"
        for block in self.clear:
            if (above := world.on(block)) is not None:
                return f"{above} still stands on {block}"
        return ""


class Outcome(NamedTuple):
    """What becomes of a plan.

    ``right``: every step was done, and the goal holds. ``world``: after the steps that were done.
    ``step``: the number, from 1, of the step that fails; None if all were done. ``why``: a sentence
    for a plan that is not right.
    """

    right: bool
    world: World
    step: int | None
    why: str


def outcome(world: World, goal: Goal, plan: Sequence[str]) -> Outcome:
    """Carry out the words of a plan, up to and with its "."."""
    words, step = list(plan), 0
    while True:
        step += 1
        block, to, onto, end = (*words[:4], "", "", "", "")[:4]
        places = (TABLE, *COLOURS)
        if block not in COLOURS or to != TO or onto not in places or end not in (AND, END):
            said = " ".join(words[:4]) or "nothing"
            return Outcome(
                False, world, step,
                f"step {step} should be as “red to blue ,” or “red to table .”, got “{said}”",
            )  # fmt: skip
        try:
            world = world.moved(block, onto)
        except ValueError as error:
            return Outcome(False, world, step, f"step {step}: {error}")
        if end == END:
            break
        words = words[4:]
    missing = goal.missing(world)
    steps = f"after {step} step{'s' * (step > 1)}"
    return Outcome(not missing, world, None, missing and f"{steps} {missing}")


def written(moves: Sequence[Move]) -> tuple[str, ...]:
    """The words of a plan of one step at least."""
    words = [word for block, onto in moves for word in (block, TO, onto, AND)]
    return (*words[:-1], END)


def shortest(world: World, goal: Goal) -> tuple[Move, ...]:
    """One of the shortest plans; () where the goal holds already.

    Of equally short plans the one that comes first where the table comes before all blocks, and
    blocks come in the order of ``COLOURS``. A ValueError where no plan reaches the goal.
    """
    return _shortest(_sorted(world), goal)


def every_world(blocks: int, places: int) -> Iterator[World]:
    """All worlds of so many blocks, of any colours, on so many places."""
    for colours in combinations(COLOURS, blocks):
        for order in permutations(colours):
            for cuts in combinations(range(blocks + places - 1), places - 1):
                ends = [cut - number for number, cut in enumerate(cuts)]
                begins = [0, *ends]
                yield World(tuple(order[a:b] for a, b in zip(begins, [*ends, blocks], strict=True)))


def _the(under: str) -> str:
    return "the table" if under == TABLE else under


@cache
def _sorted(world: World) -> World:
    """A world with the same stacks, sorted, and no more places than blocks: what a plan depends
    on."""
    stacks = sorted(stack for stack in world.stacks if stack)
    places = min(len(world.stacks), len(world.blocks))
    return World((*stacks, *[()] * (places - len(stacks))))


@cache
def _shortest(world: World, goal: Goal) -> tuple[Move, ...]:
    for reached, moves in _reached(world):
        if not goal.missing(reached):
            return moves
    raise ValueError(f"no plan reaches “{' '.join(goal.words)}” from {world.stacks!r}")


@cache
def _reached(first: World) -> list[tuple[World, tuple[Move, ...]]]:
    """Every world that can be reached, the nearest first, with the moves that lead there."""
    found: dict[World, tuple[Move, ...]] = {first: ()}
    waiting = [first]
    for world in waiting:
        for block in world.blocks:
            for onto in (TABLE, *world.blocks):
                if world.on(block) is not None or world.under(block) == onto:
                    continue
                if onto == TABLE and () not in world.stacks:
                    continue
                if onto != TABLE and (onto == block or world.on(onto) is not None):
                    continue
                after = _sorted(world.moved(block, onto))
                if after not in found:
                    found[after] = (*found[world], (block, onto))
                    waiting.append(after)
    return list(found.items())
