"""What stands between attention layers: ways through them, and experts beside loops and peers."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.benchmarks import architecture
from attnlab.measure.report import Row


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder."""
    yield from command.rows_of(architecture, quick=quick, threads=threads)
