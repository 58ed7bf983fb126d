"""Mixing without attention: Fourier transforms beside full attention and their peers."""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.report import Row
from attnlab.measure.topics import spectral


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Those of every module of this folder."""
    yield from command.rows_of(spectral, quick=quick, threads=threads)
