"""Compression: smaller models beside the whole one, and what it takes to make them."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.benchmarks import compression
from attnlab.measure.report import Row


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder."""
    yield from command.rows_of(compression, quick=quick, threads=threads)
