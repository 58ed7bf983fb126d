"""FNet beside Hugging Face's and beside full attention."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from attnlab.measure.comparison import ratio
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
