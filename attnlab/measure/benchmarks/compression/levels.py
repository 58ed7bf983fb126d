"""Integers of a model as large as the shipped ``documentation``: how long it takes to make them."""

from collections.abc import Iterator

from attnlab.compression.quantization import Quantization
from attnlab.measure.comparison import taken
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.models.tiny import TinyTransformer

SECONDS = 1.0


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """All matrices in 8 bits; the time does not depend on what the weights are."""
    model = TinyTransformer(vocab=512, dim=128, layers=4, heads=4, max_len=128).eval()
    (timing,) = compare(
        {"quantization": lambda: Quantization()(model)},
        repeats=2 if quick else 15, warmup=0 if quick else 1, threads=threads,
    )  # fmt: skip
    yield Row(
        "documentation: making integers of all matrices", timing.median, "s",
        at_most=SECONDS, quartiles=timing.quartiles, note=taken(timing),
    )  # fmt: skip
