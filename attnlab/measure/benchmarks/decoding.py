"""Decoding: what a mechanism keeps of its past, and one more token after short and long texts.

All mechanisms of the catalogue are asked that decode with a state.
"""

from collections.abc import Iterator

from attnlab.measure.comparison import ratio
from attnlab.measure.costs import Uncountable, decodes, state_bytes
from attnlab.measure.measured import call_of
from attnlab.measure.report import Row
from attnlab.measure.subject import subject, subjects
from attnlab.measure.timing import compare

AFTER, SHORT = (256, 4096), (32, 64)
KINDS = ("bytes of the state", "one token")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Two rows for each mechanism."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows."""
    near, far = SHORT if quick else AFTER
    span = f"after {far:,} tokens / after {near:,}"
    return [
        f"{one.mechanism}: {kind} {span}" for one in subjects() if decodes(one) for kind in KINDS
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    name, _, what = figure.partition(": ")
    layer, lengths = subject(name), SHORT if quick else AFTER
    layer = layer.caused()
    try:
        if what.startswith(KINDS[0]):
            near, far = (state_bytes(layer, n) or 0 for n in lengths)
            return Row(figure, far / max(1, near), "×", note=f"{far:,} bytes")
        calls = {f"{n}": call_of(layer, n, "decode") for n in lengths}
    except Uncountable as error:
        return Row(figure, None, "×", note=str(error))
    short, long = compare(calls, repeats=3 if quick else 15, warmup=1, threads=threads)
    return ratio(figure, long, short, work="one token in both")
