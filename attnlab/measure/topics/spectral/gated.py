"""H3, GSS and retention: chunks beside their other forms, growth in n, and decoding."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.comparison import ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.decoding import decoding
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

DIM, REPEATS = 256, 5
HEADS = {"h3": 32, "gss": 4, "retention": 4}  # of H3 as narrow as in its paper
WORDS = {
    "fft": "Fourier transforms",
    "naive": "all weights at once",
    "recurrent": "token by token",
}
BESIDE: Mapping[str, Mapping[str, float | None]] = {
    "h3": {"fft": None},
    "gss": {"fft": None},
    "retention": {"naive": 1, "recurrent": 1},
}
"""The forms that the chunked one is timed beside, and how many times as long each should take."""
ABSENT = {
    "h3": "its authors' code is no package",
    "gss": "the package gated-state-spaces-pytorch is not installed by attnlab[peers]",
    "retention": "the package flash-linear-attention is not installed by attnlab[peers]",
}


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256; inference of one layer, and training at a shorter length."""
    repeats = 2 if quick else REPEATS
    for name in BESIDE:
        yield from _forms(name, 256 if quick else 4096, "forward", repeats, threads)
        both = "forward and backward"
        yield from _forms(name, 128 if quick else 1024, both, 2 if quick else 3, threads)
        yield Row(f"{_title(name)}: another package / chunked", None, note=ABSENT[name])
        lengths = (256, 512) if quick else (2048, 4096, 8192, 16384)
        yield from _growth(name, lengths, repeats, threads)
        after = (64, 256) if quick else (1024, 4096, 16384)
        yield from decoding(
            _title(name), _layer(name), DIM, after, repeats=3 * repeats, threads=threads
        )


def _title(name: str) -> str:
    return catalog.card(name).title.split(":")[0]


def _layer(name: str, form: str = "chunked") -> Any:
    return catalog.build(name, dim=DIM, heads=HEADS[name], causal=True, form=form)


def _forms(name: str, n: int, passes: str, repeats: int, threads: int) -> Iterator[Row]:
    run, x = _infer if passes == "forward" else _train, torch.randn(1, n, DIM)
    calls = {form: partial(run, _layer(name, form), x) for form in ("chunked", *BESIDE[name])}
    chunked, *others = compare(calls, repeats=repeats, warmup=1, threads=threads)
    for other in others:
        figure = f"{_title(name)}: {WORDS[other.name]} / chunked, n = {n:,}, {passes}"
        work, wanted = "the same map of all tokens in both", BESIDE[name][other.name]
        yield ratio(figure, other, chunked, work=work, at_least=wanted)


def _growth(name: str, lengths: tuple[int, ...], repeats: int, threads: int) -> Iterator[Row]:
    layer, span = _layer(name), f"n = {lengths[0]:,} … {lengths[-1]:,}"
    inputs = {f"{n}": torch.randn(1, n, DIM) for n in lengths}
    calls = {n: partial(_infer, layer, x) for n, x in inputs.items()}
    times = [found.median for found in compare(calls, repeats=repeats, threads=threads)]
    slope = exponent(lengths, times).slope
    note = "1 ± 0.1 expected"
    yield Row(f"{_title(name)}: exponent of time, {span}", slope, at_most=1.1, note=note)
    largest = [count(layer, x).largest_tensor.elements for x in inputs.values()]
    slope = exponent(lengths, largest).slope
    yield Row(f"{_title(name)}: exponent of largest tensor, {span}", slope, at_most=1.05)


@torch.no_grad()
def _infer(layer: nn.Module, x: Tensor) -> object:
    return layer(x)


def _train(layer: nn.Module, x: Tensor) -> object:
    return torch.autograd.grad(layer(x).sum(), [*layer.parameters()])
