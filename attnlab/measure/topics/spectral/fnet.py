"""FNet beside Hugging Face's and beside full attention."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from attnlab.measure.comparison import ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare
from attnlab.mechanisms.convolution.fnet import FNet
from attnlab.mechanisms.dense.full import FullAttention

DIM, HEADS, REPEATS = 256, 4, 11


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256; inference and training of one mixing layer."""
    n, repeats = (256, 2) if quick else (4096, REPEATS)
    yield from _beside_peer(n, repeats, threads)
    layers: dict[str, nn.Module] = {"full attention": FullAttention(DIM, HEADS), "FNet": FNet(DIM)}
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        timed = _compared(layers, n, run, repeats, threads)
        figure = f"full attention (SDPA) / FNet, n = {n:,}, {name}"
        work = f"{n:,} keys of a query seen and computed by full attention; FNet has none"
        yield ratio(figure, *timed, work=work)
    yield from _growth((256, 512) if quick else (1024, 2048, 4096, 8192), repeats, threads)


def _beside_peer(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Its transform makes the input complex first; it takes no padding."""
    figure = f"Hugging Face / FNet, n = {n:,}"
    if not find_spec("transformers"):
        yield Row(figure, None, note="transformers is not installed: pip install 'attnlab[peers]'")
        return
    from transformers import FNetConfig
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    package = _First(FNetBasicFourierTransform(FNetConfig(hidden_size=DIM)))
    layers: dict[str, nn.Module] = {"Hugging Face": package, "FNet": FNet(DIM)}
    work = "one transform of all positions in both, which is the whole layer: no keys"
    for name, run in (("forward", _infer), ("forward and backward", _train)):
        timed = _compared(layers, n, run, repeats, threads)
        yield ratio(f"{figure}, {name}", *timed, work=work, at_least=1)


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
) -> list[Timing]:
    x = _sequence(n)
    calls = {name: partial(run, layer, x) for name, layer in layers.items()}
    return compare(calls, repeats=repeats, threads=threads)


def _sequence(n: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, n, DIM, generator=generator, requires_grad=True)


@torch.no_grad()
def _infer(layer: nn.Module, x: Tensor) -> object:
    return layer(x)


def _train(layer: nn.Module, x: Tensor) -> object:
    return torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
