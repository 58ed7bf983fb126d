"""Transformer-XL: reading a segment with its memory, beside computing its context again."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.memory.transformer_xl import (
    SegmentState,
    TransformerXL,
    TransformerXLOptions,
)

DIM, HEADS, REPEATS = 256, 4, 7


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, one layer, inference."""
    memory, segment, repeats = (32, 8, 2) if quick else (512, 64, REPEATS)
    layer = TransformerXL(DIM, HEADS, options=TransformerXLOptions(segment=segment, memory=memory))
    whole = TransformerXL(
        DIM, HEADS, options=TransformerXLOptions(segment=memory + segment, memory=0)
    )
    x = torch.randn(1, memory + segment, DIM, generator=torch.Generator().manual_seed(0))
    calls = {"memory": partial(_read_on, layer, x, memory), "again": partial(_again, whole, x)}
    timings = compare(calls, baseline="memory", repeats=repeats, threads=threads)
    again = next(each for each in timings if each.name == "again")
    low, high = again.ratio_quartiles
    sizes = f"M = {memory}, c = {segment}"
    yield Row(
        f"the context of each token again / read on from the memory, {sizes}, per token",
        again.ratio * segment,
        "×",
        at_least=5,
        quartiles=(low * segment, high * segment),
        note="again: M + c tokens for one",
    )
    yield Row(
        f"the context of each segment again / read on from the memory, {sizes}, per token",
        again.ratio,
        "×",
        quartiles=(low, high),
        note="again: M + c tokens for c, of which the first have a shorter context",
    )


@torch.no_grad()
def _read_on(layer: TransformerXL, x: Tensor, memory: int) -> object:
    """The last segment, from the state before it."""
    seen = torch.ones(1, memory, dtype=torch.bool)
    return layer.step(x[:, memory:], SegmentState(x[:, :memory], x[:, :0], seen))


@torch.no_grad()
def _again(layer: TransformerXL, x: Tensor) -> object:
    return layer(x)
