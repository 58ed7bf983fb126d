"""FNet beside Hugging Face's and beside full attention."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.spectral.fnet import FNet

DIM, HEADS, REPEATS = 256, 4, 11


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256; inference and training of one mixing layer."""
    n, repeats = (256, 2) if quick else (4096, REPEATS)
    yield from _beside_peer(n, repeats, threads)
    layers = {"full": FullAttention(DIM, HEADS), "fnet": FNet(DIM)}
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        found = _compared(layers, n, run, repeats, threads)
        yield _ratio(f"full attention (SDPA) / FNet, n = {n:,}, {name}", found["full"])
    yield from _growth((256, 512) if quick else (1024, 2048, 4096, 8192), repeats, threads)


def _beside_peer(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Its transform makes the input complex first; it takes no padding."""
    figure = f"Hugging Face / FNet, n = {n:,}"
    if not find_spec("transformers"):
        yield Row(figure, None, note="transformers is not installed: pip install 'attnlab[peers]'")
        return
    from transformers import FNetConfig
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    layers: dict[str, nn.Module] = {
        "peer": _First(FNetBasicFourierTransform(FNetConfig(hidden_size=DIM)))
    }
    layers |= {"fnet": FNet(DIM)}
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        found = _compared(layers, n, run, repeats, threads)
        yield _ratio(f"{figure}, {name}", found["peer"], at_least=1)


class _First(nn.Module):
    """The first of what a module returns."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x)[0]
        return out


def _growth(lengths: tuple[int, ...], repeats: int, threads: int) -> Iterator[Row]:
    layer = FNet(DIM)
    calls = {f"{n}": partial(_infer, layer, _sequence(n)) for n in lengths}
    times = [found.median for found in compare(calls, repeats=repeats, threads=threads)]
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}"
    slope = exponent(lengths, times).slope
    yield Row(f"FNet: exponent of time, {span}", slope, at_most=1.25, note="n log n: 1.09 counted")
    counted = [count(layer, _sequence(n)) for n in lengths]
    largest = exponent(lengths, [one.largest_tensor.elements for one in counted]).slope
    yield Row(f"FNet: exponent of largest tensor, {span}", largest, at_most=1.01)
    flops = exponent(lengths, [one.flops for one in counted]).slope
    yield Row(f"FNet: exponent of counted FLOPs, {span}", flops, at_most=1.15)


def _compared(
    layers: Mapping[str, nn.Module], n: int, run: Callable[..., object], repeats: int, threads: int
) -> dict[str, Timing]:
    x = _sequence(n)
    calls = {name: partial(run, layer, x) for name, layer in layers.items()}
    found = compare(calls, baseline="fnet", repeats=repeats, threads=threads)
    return {one.name: one for one in found}


def _ratio(figure: str, timing: Timing, at_least: float | None = None) -> Row:
    return Row(figure, timing.ratio, "×", at_least=at_least, quartiles=timing.ratio_quartiles)


def _sequence(n: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, n, DIM, generator=generator, requires_grad=True)


@torch.no_grad()
def _infer(layer: nn.Module, x: Tensor) -> object:
    return layer(x)


def _train(layer: nn.Module, x: Tensor) -> object:
    return torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
