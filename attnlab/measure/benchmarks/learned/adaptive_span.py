"""Adaptive span: time and memory against the longest span, and beside all n × n weights.

Sequences of 4,096 tokens, 4 heads of width 64: with 16,384 tokens and the longest of these spans
the weights of a training step take several gigabytes.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.adaptive_span import AdaptiveSpanOptions, banded, naive

HEADS, WIDTH, RAMP = 4, 64, 32


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    n, repeats = (256, 1) if quick else (4096, 5)
    longest = [32, 64, 128] if quick else [128, 256, 512, 1024]
    calls = {f"{span}": _trained(banded, n, span) for span in longest}
    found = compare(calls, repeats=repeats, warmup=1, threads=threads)
    for span, timing in zip(longest, found, strict=True):
        figure = f"longest span {span:,} / {longest[0]}, n = {n:,}"
        note = f"{timing.median * 1e3:.3g} ms"
        yield Row(figure, timing.ratio, "×", quartiles=timing.ratio_quartiles, note=note)
    seconds = [timing.median for timing in found]
    yield _exponent("exponent of time in the longest span", longest, seconds)
    counted = [
        count(_form(banded), *_inputs(n, span), backward=True).largest_tensor.elements
        for span in longest
    ]
    yield _exponent("exponent of the largest tensor in the longest span", longest, counted)
    span = longest[1]
    both = {"banded": _trained(banded, n, span), "naive": _trained(naive, n, span)}
    base, other = compare(both, repeats=repeats, warmup=1, threads=threads)
    note = f"{other.median * 1e3:.3g} ms beside {base.median * 1e3:.3g} ms"
    figure = f"all pairs / banded, longest span {span:,}, n = {n:,}"
    yield Row(figure, other.ratio, "×", quartiles=other.ratio_quartiles, note=note)


def _exponent(figure: str, spans: list[int], values: list[float] | list[int]) -> Row:
    slope, error = exponent(spans, values)
    note = f"± {error:.3f}, spans {spans[0]:,} to {spans[-1]:,}"
    return Row(figure, slope, at_most=1.1, note=note)


def _inputs(n: int, longest: int) -> tuple[Tensor, ...]:
    """One head has the longest span, and the ramp ends there; the others have none."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, n, WIDTH, generator=generator)
    span = torch.zeros(HEADS)
    span[0] = longest - RAMP
    return tuple(x.requires_grad_() for x in (q, k, v, span))


def _form(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return partial(form, options=AdaptiveSpanOptions(ramp=RAMP))


def _trained(form: Callable[..., Tensor], n: int, longest: int) -> Callable[[], object]:
    inputs = _inputs(n, longest)
    arriving = torch.randn(inputs[2].shape)
    return lambda: torch.autograd.grad(_form(form)(*inputs), inputs, arriving)
