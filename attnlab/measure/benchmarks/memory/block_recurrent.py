"""Block-Recurrent Transformer: what decoding keeps, and what a token costs far into a text."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.memory.block_recurrent import (
    BlockRecurrent,
    BlockRecurrentOptions,
    BlockState,
)

DIM, HEADS, REPEATS = 256, 4, 15


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, one layer, inference."""
    block, near, far, repeats = (8, 16, 64, 2) if quick else (64, 128, 4096, REPEATS)
    layer = BlockRecurrent(DIM, HEADS, options=BlockRecurrentOptions(block=block, states=block))
    x = torch.randn(1, far + 1, DIM, generator=torch.Generator().manual_seed(0))
    states = {n: _after(layer, x[:, :n]) for n in (near, far)}
    kept = {n: sum(part.nbytes for part in state) for n, state in states.items()}
    span = f"after {far:,} tokens / after {near:,}"
    yield Row(f"Block-Recurrent: bytes of the state, {span}", kept[far] / kept[near], at_most=1)
    calls = {f"{n}": partial(_step, layer, x[:, -1:], state) for n, state in states.items()}
    timings = compare(calls, baseline=f"{near}", repeats=repeats, threads=threads)
    later = next(each for each in timings if each.name == f"{far}")
    yield Row(
        f"Block-Recurrent: time of a token, {span}", later.ratio, quartiles=later.ratio_quartiles
    )


@torch.no_grad()
def _after(layer: BlockRecurrent, x: Tensor) -> BlockState:
    return layer.step(x)[1]


@torch.no_grad()
def _step(layer: BlockRecurrent, x: Tensor, state: BlockState) -> object:
    return layer.step(x, state)
