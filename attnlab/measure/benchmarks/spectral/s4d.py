"""S4D: the kernel of a long sequence. Its forms, growth and decoding are in the topics of all."""

from collections.abc import Iterator
from functools import partial

from attnlab.core import state_space
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.recurrence.s4d import S4D

DIM, REPEATS = 256, 5


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, dim 256, 64 numbers of state per channel."""
    n, repeats = (1024, 2) if quick else (65_536, REPEATS)
    decay, drive, C = S4D(DIM).system()
    weight = (C * drive).to(C.dtype)
    calls = {"kernel": partial(state_space.kernel, decay, weight, n)}
    (found,) = compare(calls, repeats=repeats, threads=threads)
    figure = f"S4D: the kernel of {DIM} channels, n = {n:,}"
    yield Row(figure, found.median, "s", at_most=1, quartiles=found.quartiles)
