"""Recurrence and memory beside their loops, their peers and full attention."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.benchmarks import memory
from attnlab.measure.report import Row


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder."""
    yield from command.rows_of(memory, quick=quick, threads=threads)
