"""Growth: time, counted work and the largest tensor as the length grows, for the whole catalogue.

Each figure is an exponent in n of one mechanism in its default form: 1 is linear, 2 quadratic. What
the cards claim is proved by the tests of all mechanisms; `sweep` shows every point.
"""

from collections.abc import Iterator

from attnlab.measure.costs import Uncountable, counted
from attnlab.measure.count import exponent
from attnlab.measure.measured import call_of
from attnlab.measure.report import Row
from attnlab.measure.subject import subject, subjects
from attnlab.measure.timing import compare

LENGTHS, SHORT = (1024, 2048, 4096), (32, 64)
KINDS = ("time", "FLOPs", "largest tensor")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each mechanism and kind of cost."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows."""
    lengths = SHORT if quick else LENGTHS
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}"
    return [f"{one.mechanism}: exponent of {kind}, {span}" for one in subjects() for kind in KINDS]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure, forward pass."""
    name, kind = figure.split(",")[0].split(": exponent of ")
    layer, lengths = subject(name), SHORT if quick else LENGTHS
    try:
        if kind == "time":
            calls = {f"{n}": call_of(layer, n, "forward") for n in lengths}
            timed = compare(calls, repeats=2 if quick else 7, warmup=1, threads=threads)
            values = [one.median for one in timed]
        else:
            costs = [counted(layer, n) for n in lengths]
            values = [
                float(one.flops if kind == "FLOPs" else one.largest_elements) for one in costs
            ]
    except Uncountable as error:
        return Row(figure, None, note=str(error))
    return Row(figure, exponent(lengths, values).slope, note=layer.label)
