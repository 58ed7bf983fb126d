"""Hyena and the convolutions beside causal full attention: growth, crossover, memory."""

from collections.abc import Iterator
from typing import Any

from attnlab.measure.costs import counted
from attnlab.measure.fit import crossover, fit
from attnlab.measure.measured import Measurement, measured
from attnlab.measure.report import Row
from attnlab.measure.subject import Subject, subject

DIM, HEADS = 256, 4
LENGTHS, QUICK = (512, 1024, 2048, 4096, 8192), (128, 256, 512)
NAMES = ("hyena", "dynamic_convolution", "lightweight_convolution", "lite_transformer")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, causal; forward and backward of one layer."""
    lengths, rounds = (QUICK, 2) if quick else (LENGTHS, 5)
    base = subject("full", dim=DIM, heads=HEADS, causal=True)
    layers = {name: _layer(name, lengths[-1]) for name in NAMES}
    times: dict[str, dict[int, Measurement]] = {name: {} for name in ("full", *NAMES)}
    for n in lengths:
        found = measured(
            [base, *layers.values()], n, passes=("both",), rounds=rounds, threads=threads
        )
        for name, one in zip(times, found, strict=True):
            times[name][n] = one
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}"
    seconds = {name: [one.median for one in by_n.values()] for name, by_n in times.items()}
    grows = fit(lengths, seconds["hyena"], log=True)
    yield Row(
        f"Hyena: a of n^a log n, both passes, {span}", grows.slope, at_most=1.15,
        quartiles=(grows.low, grows.high), note="interval of 95 % in place of quartiles",
    )  # fmt: skip
    for name in NAMES:
        yield _crossing(layers[name].card.title, times[name], times["full"])
    for name in NAMES[:3]:
        largest = [counted(layers[name], n).largest_elements for n in lengths]
        slope = fit(lengths, largest).slope
        yield Row(
            f"{layers[name].card.title}: exponent of largest tensor, {span}", slope, at_most=1.1
        )


def _layer(name: str, longest: int) -> Subject:
    given: dict[str, Any] = {"max_len": longest} if name == "hyena" else {}
    return subject(name, dim=DIM, heads=HEADS, causal=True, **given)


def _crossing(title: str, own: dict[int, Measurement], base: dict[int, Measurement]) -> Row:
    """The time at the longest length, and where it is first less than full attention's."""
    n = max(own)
    ratio = base[n].median / own[n].median
    found = crossover(
        {at: one.seconds for at, one in own.items()}, {at: one.seconds for at, one in base.items()}
    )
    figure = f"causal SDPA layer / {title}, both passes, n = {n:,}"
    return Row(figure, ratio, "×", note=f"{title} is {found.sentence}")
