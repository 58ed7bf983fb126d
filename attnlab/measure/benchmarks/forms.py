"""Forms: how long each way to compute a mechanism takes beside its default one, for all of them."""

from collections.abc import Iterator, Mapping

from attnlab.measure.comparison import ratio
from attnlab.measure.measured import call_of
from attnlab.measure.report import Row
from attnlab.measure.subject import subject, subjects
from attnlab.measure.timing import compare

PASSES: Mapping[str, str] = {"forward": "forward", "forward and backward": "both"}
AT_LEAST: Mapping[tuple[str, str], float] = {
    ("retention", "naive"): 1,
    ("retention", "recurrent"): 1,
}
"""How many times as long as the default form another one should take."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each mechanism, form and pass."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows."""
    return [
        f"{one.mechanism}: {form} / {one.form}, n = {64 if quick else 1024:,}, {which}"
        for one in subjects()
        for form in one.card.forms
        if form != one.form
        for which in PASSES
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    name, _, rest = figure.partition(": ")
    form, which = rest.split(" / ")[0], rest.rpartition(", ")[2]
    default, n = subject(name), 64 if quick else 1024
    calls = {
        each.form: call_of(each, n, PASSES[which]) for each in (default, default.with_form(form))
    }
    own, other = compare(calls, repeats=2 if quick else 7, warmup=1, threads=threads)
    work = "the same map of all tokens in both"
    target = None if quick else AT_LEAST.get((name, form))
    return ratio(figure, other, own, work=work, at_least=target)
