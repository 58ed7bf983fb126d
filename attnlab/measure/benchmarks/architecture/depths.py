"""Ways through twelve layers beside the plain one: time, peak of memory, and parameters."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from attnlab.measure.comparison import ratio
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.models.tiny import TinyTransformer

DIM, HEADS, LAYERS, FEW, LONG = 256, 4, 12, 3, 1024
WAYS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "checkpointed": {"depth": "checkpointed"},
    "reversible": {"depth": "reversible"},
    "shared": {"depth": "shared"},
    "universal": {"depth": "universal"},
    "layer_drop": {"depth": "layer_drop", "depth_options": {"p": 0.2}},
}
WORK = {
    "checkpointed": "each layer is computed twice in the forward direction",
    "reversible": "each layer is computed twice in the forward direction, and halves are undone",
    "shared": "the same products; twelve gradients are added into one",
    "universal": "the same products, and the signal of position and step",
    "layer_drop": "one layer in five is left out",
}
LONGEST = {"checkpointed": 1.6, "reversible": 1.7, "shared": 1.1, "universal": 1.2}
MOST = {"checkpointed": 0.3, "reversible": 0.3}
"""At most this share of the plain way's peak."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, a feed-forward layer of 1,024, both passes in training."""
    n, repeats = (16, 1) if quick else (LONG, 11)
    made = {name: model(n, LAYERS, **way) for name, way in WAYS.items()}
    calls: dict[str, Callable[[], object]] = {
        name: partial(_passes, each, _tokens(n)) for name, each in made.items()
    }
    plain, *others = compare(calls, repeats=repeats, warmup=1, threads=threads)
    for timing in others:
        figure = f"{timing.name}: time / plain's, {LAYERS} layers, n = {n:,}"
        longest = None if quick else LONGEST.get(timing.name)
        yield ratio(figure, timing, plain, work=WORK[timing.name], at_most=longest)
    for name in ("checkpointed", "reversible", "shared"):
        yield _memory(name)
    for name in ("plain", "reversible"):
        yield _growth(name)
    for name in ("shared", "universal"):
        own, all_layers = (_parameters(made[each]) for each in (name, "plain"))
        yield Row(f"{name}: parameters / plain's, {LAYERS} layers", own / all_layers, "×")


def model(n: int, layers: int, **way: Any) -> TinyTransformer:
    """A language model of that many layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = TinyTransformer(
            vocab=32, dim=DIM, heads=HEADS, layers=layers, max_len=n, positions="none", **way
        )
    return made.train()


@cache
def peak(name: str, layers: int) -> tuple[int, int]:
    """The most bytes of both passes, counted, and those of them that gradients of parameters are
    in the end."""
    with torch.device("meta"):
        one = model(LONG, layers, **WAYS[name])
    gradients = sum(p.numel() * p.element_size() for p in one.parameters())
    return count(one, _tokens(LONG).to("meta"), backward=True).peak_bytes, gradients


def _memory(name: str) -> Row:
    (own, _), (plain, _) = (peak(each, LAYERS) for each in (name, "plain"))
    note = f"{own / 2**20:,.1f} MiB beside {plain / 2**20:,.1f} MiB, gradients included, counted"
    figure = f"{name}: peak memory / plain's, {LAYERS} layers, n = {LONG:,}"
    return Row(figure, own / plain, "×", at_most=MOST.get(name), note=note)


def _growth(name: str) -> Row:
    many, few = (held - gradients for held, gradients in (peak(name, k) for k in (LAYERS, FEW)))
    figure = f"{name}: peak memory of {LAYERS} layers / of {FEW}, n = {LONG:,}"
    note = "without the gradients of parameters, counted"
    most = 1.1 if name == "reversible" else None
    return Row(figure, many / few, "×", at_most=most, note=note)


def _parameters(model: TinyTransformer) -> int:
    stack: Any = model.decoder
    return sum(p.numel() for p in stack.blocks.parameters())


def _tokens(n: int) -> Tensor:
    return torch.arange(n)[None] % 32


def _passes(model: TinyTransformer, tokens: Tensor) -> object:
    return torch.autograd.grad(
        model(tokens).square().mean(), list(model.parameters()), allow_unused=True
    )
