"""Learned patterns: hashing, clustering, sorting, sparse softmax and search, beside their peers."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.report import Row
from attnlab.measure.topics import learned


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder, in alphabetical order."""
    for name in command.names(learned):
        yield from command.module(learned, name).rows(quick=quick, threads=threads)
