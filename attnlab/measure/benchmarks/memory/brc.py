"""Recurrent cells: their fast forms beside the loop by the equation, and beside PyTorch's GRU."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

DIM, REPEATS = 128, 5
CELLS = "brc", "nbrc", "gru", "lstm"
GRU = "PyTorch's GRU"
WORK = "a cell reads every token in both, which is the whole layer: no keys"


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 8, dim 128."""
    n, repeats = (64, 2) if quick else (512, REPEATS)
    x = torch.randn(8, n, DIM, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        own = nn.GRU(DIM, DIM, batch_first=True)
        calls: dict[str, Callable[[], object]] = {GRU: partial(run, own, x)}
        for cell in CELLS:
            for form in ("naive", "fused"):
                layer = catalog.build(cell, dim=DIM, causal=True, form=form)
                calls[f"{cell} {form}"] = partial(run, layer, x)
        found = {t.name: t for t in compare(calls, repeats=repeats, warmup=1, threads=threads)}
        for cell in CELLS:
            figure = f"{cell}: token by token / fused, n = {n}, {name}"
            yield ratio(figure, found[f"{cell} naive"], found[f"{cell} fused"], work=WORK)
        for cell in ("gru", "nbrc", "brc"):
            figure = f"{cell}: fused / PyTorch's GRU, n = {n}, {name}"
            yield ratio(figure, found[f"{cell} fused"], found[GRU], work=WORK)


@torch.no_grad()
def _infer(layer: nn.Module, x: Tensor) -> object:
    return layer(x)


def _train(layer: nn.Module, x: Tensor) -> object:
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    return torch.autograd.grad(out.sum(), [x, *layer.parameters()])
