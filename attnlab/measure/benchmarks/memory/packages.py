"""Memories of other packages beside ours: one segment read with full memories, and latents."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from attnlab.measure.comparison import ratio
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.latents.perceiver_io import PerceiverIO, PerceiverIOOptions
from attnlab.mechanisms.memory.compressive_transformer import (
    CompressiveOptions,
    CompressiveTransformer,
)
from attnlab.mechanisms.memory.transformer_xl import TransformerXL, TransformerXLOptions

DIM, HEADS, REPEATS = 256, 4, 15

Made = tuple[Callable[[], object], Callable[[], object], str]
"""The package's call, ours, and what the package leaves out or adds."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, one layer; inference, and training for the latents."""
    memory, segment, n = (32, 8, 64) if quick else (512, 128, 8192)
    for package, named, make in (
        ("x_transformers", "x-transformers / Transformer-XL, one segment",
         partial(transformer_xl, memory, segment)),
        ("compressive_transformer_pytorch", "package / Compressive Transformer, one segment",
         partial(compressive, memory, segment)),
        ("perceiver_pytorch", f"perceiver-pytorch / Perceiver IO, n = {n:,}, forward",
         partial(perceiver, n, False)),
        ("perceiver_pytorch", f"perceiver-pytorch / Perceiver IO, n = {n:,}, both passes",
         partial(perceiver, n, True)),
    ):  # fmt: skip
        if not find_spec(package):
            note = f"{package} is not installed: pip install 'attnlab[peers]'"
            yield Row(named, None, note=note)
            continue
        with warnings.catch_warnings():  # packages compile parts of themselves by torch.jit
            warnings.simplefilter("ignore", DeprecationWarning)
            theirs, ours, note = make()
        calls, repeats = {"package": theirs, "ours": ours}, 2 if quick else REPEATS
        over, under = compare(calls, repeats=repeats, threads=threads)
        flops = " beside ".join(f"{count(call).flops / 1e9:.3g} GFLOP" for call in calls.values())
        yield ratio(named, over, under, work=f"{flops}; {note}")


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def transformer_xl(memory: int, segment: int) -> Made:
    from x_transformers.x_transformers import Attention

    package = Attention(DIM, dim_head=DIM // HEADS, heads=HEADS, causal=True, flash=True).eval()
    layer = TransformerXL(
        DIM, HEADS, options=TransformerXLOptions(segment=segment, memory=memory)
    ).eval()
    past, x = drawn(1, memory, DIM), drawn(1, segment, DIM)
    _, state = layer.step(past)
    theirs = torch.no_grad()(lambda: package(x, mem=past))
    return (
        theirs,
        torch.no_grad()(lambda: layer.step(x, state)),
        "the package's scores have no relative positions",
    )


@torch.no_grad()
def compressive(memory: int, segment: int) -> Made:
    from compressive_transformer_pytorch.compressive_transformer_pytorch import SelfAttention

    rate, kept = 4, memory
    options = CompressiveOptions(
        segment=segment, memory=memory, compressed=kept, rate=rate, compression="convolution"
    )
    layer = CompressiveTransformer(DIM, HEADS, options=options).eval()
    package = SelfAttention(DIM, segment, memory, kept, cmem_ratio=rate, heads=HEADS).eval()
    _, state = layer.step(drawn(1, memory + rate * kept, DIM))
    memories, x = (drawn(1, memory, DIM), drawn(1, kept, DIM)), drawn(1, segment, DIM)
    places = drawn(HEADS, kept + memory + segment, DIM // HEADS)
    theirs = torch.no_grad()(lambda: package(x, memories=memories, pos_emb=places))
    return (
        theirs,
        torch.no_grad()(lambda: layer.step(x, state)),
        f"{kept} + {memory} + {segment} columns; the package is given its distances projected",
    )


def perceiver(n: int, backward: bool) -> Made:
    from perceiver_pytorch import PerceiverIO as Package

    package = Package(
        depth=2, dim=DIM, queries_dim=DIM, num_latents=32, latent_dim=DIM, cross_heads=HEADS,
        latent_heads=HEADS, cross_dim_head=DIM // HEADS, latent_dim_head=DIM // HEADS,
        decoder_ff=True,
    )  # fmt: skip
    layer = PerceiverIO(DIM, HEADS, options=PerceiverIOOptions(latents=32, depth=2, widening=4))
    x = drawn(1, n, DIM).requires_grad_(backward)

    def call(module: nn.Module, run: Callable[[], Tensor]) -> Callable[[], object]:
        if not backward:
            return torch.no_grad()(run)
        leaves = [x, *module.parameters()]
        return lambda: torch.autograd.grad(run().sum(), leaves, allow_unused=True)

    theirs = partial(package, x, queries=x)
    ours = partial(layer, x)
    return call(package, theirs), call(layer, ours), "the package's feed-forward layers are gated"
