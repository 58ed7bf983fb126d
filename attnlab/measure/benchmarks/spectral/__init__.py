"""Mixing without attention: Fourier transforms beside full attention and their peers.

H3, GSS and retention have no peer here: the authors' code of H3 is no package, and
gated-state-spaces-pytorch and flash-linear-attention are not installed by ``attnlab[peers]``. Their
forms, growth and decoding are in the topics `forms`, `growth` and `decoding` of all mechanisms.
"""

from collections.abc import Iterator

from attnlab.measure import command
from attnlab.measure.benchmarks import spectral
from attnlab.measure.report import Row


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of this folder."""
    yield from command.rows_of(spectral, quick=quick, threads=threads)
