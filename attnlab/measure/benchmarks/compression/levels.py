"""Integers of a shipped model: how long it takes to make them."""

from collections.abc import Iterator

from attnlab import pretrained
from attnlab.compression.quantization import Quantization
from attnlab.measure.comparison import taken
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

SECONDS = 1.0


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """All matrices of ``documentation``, 8 bits."""
    model, _ = pretrained.load("documentation")
    (timing,) = compare(
        {"quantization": lambda: Quantization()(model)},
        repeats=2 if quick else 15, warmup=0 if quick else 1, threads=threads,
    )  # fmt: skip
    yield Row(
        "documentation: making integers of all matrices", timing.median, "s",
        at_most=SECONDS, quartiles=timing.quartiles, note=taken(timing),
    )  # fmt: skip
