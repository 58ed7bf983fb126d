"""Heads and hidden units that are removed: the time beside the FLOPs; and masks of single weights.

A removed half should make a model faster by nearly what it saves of the products. A mask of single
weights saves nothing: the dense product multiplies zeros like other numbers.
"""

import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.compression.head_importance import importance
from attnlab.compression.magnitude_pruning import MagnitudePruning
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.measure.comparison import ratio, taken
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare, quartiles
from attnlab.models.tiny import TinyTransformer

DIM, HEADS, LAYERS = 256, 8, 4
BATCH, LENGTH = 8, 128
KEPT, OF_WEIGHTS = 0.5, 0.1
"""The share of heads or hidden units that is left, and of single weights."""
LEAST, EXAMPLES, SECONDS = 0.8, 400, 5.0


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, dim 256, 8 heads, 4 layers, hidden 1,024; 8 texts of 128 tokens, no gradients."""
    b, n, repeats = (1, 16, 2) if quick else (BATCH, LENGTH, 15)
    x = torch.zeros(b, n, dtype=torch.int64)
    made = models()
    calls = {name: partial(_without_gradients, each, x) for name, each in made.items()}
    whole, *others = compare(calls, repeats=repeats, warmup=2, threads=threads)
    for timing in others:
        if timing.name == "masked":
            figure = f"{1 - OF_WEIGHTS:.0%} of the weights zero: time / the whole model's"
            yield ratio(figure, timing, whole, work="the same products; zeros are multiplied, too")
        else:
            fewer = _flops(made["whole"], x) / _flops(made[timing.name], x)
            yield _beside_flops(timing, whole, fewer, None if quick else LEAST)
    yield _importance(quick, threads)


def models() -> Mapping[str, nn.Module]:
    """The whole model, without half of its heads, its hidden units and both, and with zeros."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = TinyTransformer(
            vocab=32, classes=10, kind="classifier", dim=DIM, heads=HEADS, layers=LAYERS,
            hidden=4 * DIM, max_len=LENGTH,
        ).eval()  # fmt: skip
    removed: dict[str, nn.Module] = {"whole": whole}
    units: Any
    for units in ("heads", "hidden", "both"):
        prune = StructuredPruning(KEPT, units=units)
        removed[units] = prune.remove(prune(whole))
    mask = MagnitudePruning(OF_WEIGHTS, "global")
    return {**removed, "masked": mask.remove(mask(whole))}


WORDS = {"heads": "heads", "hidden": "hidden units", "both": "heads and hidden units"}


def _beside_flops(own: Timing, whole: Timing, fewer: float, at_least: float | None) -> Row:
    """How many times as fast, over how many times fewer FLOPs."""
    faster = [w / o for o, w in zip(own.seconds, whole.seconds, strict=True)]
    shares = [each / fewer for each in faster]
    note = (
        f"{taken(whole)}; {taken(own)}; {statistics.median(faster):.2f} times as fast, "
        f"{fewer:.2f} times fewer FLOPs, counted"
    )
    figure = f"half of the {WORDS[own.name]} removed: speed-up / ratio of FLOPs"
    return Row(
        figure, statistics.median(shares), "", at_least=at_least, quartiles=quartiles(shares),
        note=note,
    )  # fmt: skip


def _flops(model: nn.Module, x: Tensor) -> int:
    return count(partial(_without_gradients, model, x)).flops


@torch.no_grad()
def _without_gradients(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model(x)
    return found


def _importance(quick: bool, threads: int) -> Row:
    """On a model as large as the shipped ``digits``; the time does not depend on the images."""
    from attnlab.tasks import Batch

    b, n = 20 if quick else EXAMPLES, 64
    model = TinyTransformer(
        features=1, classes=10, kind="classifier", dim=64, layers=3, heads=4, hidden=64, max_len=n
    ).eval()
    batch = Batch(torch.rand(b, n, 1), torch.arange(b) % 10)
    asks = catalog.build("next_token")
    (timing,) = compare(
        {"importance": lambda: importance(model, [batch], asks)},
        repeats=1 if quick else 5, warmup=0 if quick else 1, threads=threads,
    )  # fmt: skip
    return Row(
        f"importance of all heads of digits, {b} examples", timing.median, "s",
        at_most=None if quick else SECONDS, quartiles=timing.quartiles, note=taken(timing),
    )  # fmt: skip
