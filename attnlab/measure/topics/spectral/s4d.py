"""S4D: the kernel of a long sequence, its forms, growth in n, and decoding."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.core import state_space
from attnlab.measure.count import count, exponent
from attnlab.measure.decoding import decoding
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.recurrence.s4d import S4D

DIM, REPEATS = 256, 5


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 64 numbers of state per channel."""
    repeats = 2 if quick else REPEATS
    yield from _kernel(1024 if quick else 65_536, repeats, threads)
    yield from _forms(256 if quick else 4096, repeats, threads)
    yield from _growth((256, 512) if quick else (2048, 4096, 8192, 16384), repeats, threads)
    after = (64, 256) if quick else (1024, 4096, 16384)
    yield from decoding("S4D", S4D(DIM), DIM, after, repeats=3 * repeats, threads=threads)


def _kernel(n: int, repeats: int, threads: int) -> Iterator[Row]:
    decay, drive, C = S4D(DIM).system()
    weight = (C * drive).to(C.dtype)
    calls = {"kernel": partial(state_space.kernel, decay, weight, n)}
    (found,) = compare(calls, repeats=repeats, threads=threads)
    figure = f"S4D: the kernel of {DIM} channels, n = {n:,}"
    yield Row(figure, found.median, "s", at_most=1, quartiles=found.quartiles)


def _forms(n: int, repeats: int, threads: int) -> Iterator[Row]:
    x = torch.randn(1, n, DIM)
    calls = {form: partial(_infer, S4D(DIM, form=form), x) for form in ("chunked", "fft")}
    loop = partial(_infer, S4D(DIM, form="recurrent"), x)
    found = compare({**calls, "loop": loop}, baseline="chunked", repeats=repeats, threads=threads)
    for one, name in zip(found[1:], ("Fourier transforms", "token by token"), strict=True):
        figure = f"S4D: {name} / chunked, n = {n:,}, forward"
        yield Row(figure, one.ratio, "×", quartiles=one.ratio_quartiles)


def _growth(lengths: tuple[int, ...], repeats: int, threads: int) -> Iterator[Row]:
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}"
    for form in ("chunked", "fft"):
        layer = S4D(DIM, form=form)
        calls = {f"{n}": partial(_infer, layer, torch.randn(1, n, DIM)) for n in lengths}
        times = [one.median for one in compare(calls, repeats=repeats, threads=threads)]
        slope = exponent(lengths, times).slope
        yield Row(f"S4D, {form}: exponent of time, {span}", slope, at_most=1.25)
        elements = [count(layer, torch.randn(1, n, DIM)).largest_tensor.elements for n in lengths]
        yield Row(
            f"S4D, {form}: exponent of largest tensor, {span}",
            exponent(lengths, elements).slope,
            at_most=1.05,
        )


@torch.no_grad()
def _infer(layer: S4D, x: Tensor) -> object:
    return layer(x)
