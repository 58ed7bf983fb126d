"""Learned patterns: hashing, clustering, sorting, sparse softmax and search, beside their peers."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.benchmarks import learned
from attnlab.measure.report import Row


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder."""
    yield from command.rows_of(learned, quick=quick, threads=threads)
