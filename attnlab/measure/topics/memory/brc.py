"""Recurrent cells: their fast forms beside the loop by the equation, and beside PyTorch's GRU."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

DIM, REPEATS = 128, 5
CELLS = "brc", "nbrc", "gru", "lstm"


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 8, dim 128."""
    n, repeats = (64, 2) if quick else (512, REPEATS)
    x = torch.randn(8, n, DIM, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        own = nn.GRU(DIM, DIM, batch_first=True)
        calls: dict[str, Callable[[], object]] = {"PyTorch's GRU": partial(run, own, x)}
        for cell in CELLS:
            for form in ("naive", "fused"):
                layer = catalog.build(cell, dim=DIM, causal=True, form=form)
                calls[f"{cell} {form}"] = partial(run, layer, x)
        timings = compare(calls, repeats=repeats, warmup=1, threads=threads)
        found = {each.name: each.median for each in timings}
        ratios = {each.name: each for each in timings}
        for cell in CELLS:
            loop = found[f"{cell} naive"] / found[f"{cell} fused"]
            yield Row(f"{cell}: token by token / fused, n = {n}, {name}", loop, "×")
        for cell in ("gru", "nbrc", "brc"):
            one = ratios[f"{cell} fused"]
            yield Row(f"{cell}: fused / PyTorch's GRU, n = {n}, {name}", one.ratio, "×",
                      quartiles=one.ratio_quartiles)  # fmt: skip


@torch.no_grad()
def _infer(layer: nn.Module, x: Tensor) -> object:
    return layer(x)


def _train(layer: nn.Module, x: Tensor) -> object:
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    return torch.autograd.grad(out.sum(), [x, *layer.parameters()])
