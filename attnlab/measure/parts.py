"""Work that several processes share: ``--part K/N``, and whose turn it is."""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

Mine = Callable[[], bool]
"""Asked once before each piece of work, in the same order by every process: is it this one's?"""


class Part(NamedTuple):
    """One of ``parts`` processes that share a list, from 1."""

    number: int = 1
    parts: int = 1

    def of(self, everything: Sequence[str]) -> list[str]:
        """Every ``parts``-th name: the lists of all parts together are the whole, without overlap.

        Raises ValueError where there are more parts than names.
        """
        if self.parts > len(everything):
            raise ValueError(self.too_many(len(everything)))
        return list(everything[self.number - 1 :: self.parts])

    def too_many(self, pieces: int) -> str:
        """What to say where there are fewer pieces of work than parts."""
        return (
            f"--part {self.number}/{self.parts}: there are only {pieces} to share; "
            f"use at most {pieces} parts"
        )


class Turns:
    """Pieces of work go to the parts in turn. Every process counts them all, those too that are
    measured already, so that all agree without a word."""

    def __init__(self, part: Part) -> None:
        self.part, self.asked = part, 0

    def mine(self) -> bool:
        """Whether the next piece is of this part."""
        self.asked += 1
        return (self.asked - self.part.number) % self.part.parts == 0


def always() -> bool:
    """A process that shares with no other takes every piece."""
    return True


def add_part(made: argparse.ArgumentParser, what: str) -> None:
    made.add_argument(
        "--part", type=part, default=Part(), metavar="K/N",
        help=f"only each N-th of the {what}, from the K-th on: one of N processes that share them",
    )  # fmt: skip


def part(text: str) -> Part:
    """``2/8``: the second of eight."""
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return Part(int(number), int(count))
    raise argparse.ArgumentTypeError(f"K/N with K from 1 to N is needed, such as 2/8, got {text!r}")
