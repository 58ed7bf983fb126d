"""A few latents in the place of all pairs: growth with n, and where full attention is overtaken."""

from collections.abc import Iterator
from statistics import median

from attnlab.measure.costs import counted
from attnlab.measure.fit import crossover, fit
from attnlab.measure.measured import measured
from attnlab.measure.report import Row
from attnlab.measure.subject import subject

LAYERS = ("set_transformer", "perceiver_io")
PASSES = {"forward": "forward", "both": "forward and backward"}
LENGTHS = (512, 1024, 2048, 4096, 8192)
GROWTH_FROM = 2048  # below, a step of Python and the latents' own layers take a share that shows


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, 32 latents; the whole layer with its feed-forward."""
    lengths, rounds = ((64, 128), 2) if quick else (LENGTHS, 7)
    layers = [subject(name, dim=256, heads=4) for name in ("full", *LAYERS)]
    times: dict[tuple[str, str], dict[int, tuple[float, ...]]] = {}
    for n in lengths:
        for one in measured(layers, n, passes=tuple(PASSES), rounds=rounds, threads=threads):
            times.setdefault((one.subject.mechanism, one.of), {})[n] = one.seconds
    for name, layer in zip(LAYERS, layers[1:], strict=True):
        flops = fit(lengths, [float(counted(layer, n).flops) for n in lengths]).slope
        yield Row(f"{name}: exponent of counted FLOPs", flops, at_most=1.1)
        for of, words in PASSES.items():
            own, full = times[name, of], times["full", of]
            grown = [n for n in lengths if quick or n >= GROWTH_FROM]
            slope = fit(grown, [median(own[n]) for n in grown])
            note = f"n = {grown[0]:,} … {grown[-1]:,}"
            yield Row(f"{name}: exponent of time, {words}", slope.slope, at_most=1.1, note=note)
            met = crossover(own, full)
            yield Row(f"{name}: faster than full attention from, {words}", met.n, "tokens",
                      note=met.sentence)  # fmt: skip
            last = lengths[-1]
            ratio = median(full[last]) / median(own[last])
            yield Row(f"full attention / {name}, {words}, n = {last:,}", ratio, "×")
