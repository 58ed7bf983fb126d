"""Shared work: what do heads attend to when half of the channels convolve?

Nothing is timed. Two layers of one mechanism in the same `TinyTransformer` (width 32, 4 heads,
learned positions) learn the next byte of the Python documentation, all with the same number of
steps and one learning rate, nothing tuned for any mechanism.

    full                       all four heads attend
    lite_transformer           two heads attend, two convolve 7 bytes (long-short range attention)
    lightweight_convolution    four heads convolve 7 bytes, with the same weights everywhere
    dynamic_convolution        four heads convolve 7 bytes, with weights that each byte computes
    convolutional_attention    four heads attend; queries and keys are made of 3 bytes each

Of each training, on the same unseen windows of 64 bytes:

    bits per byte      of the prediction
    near share         the mean share of attention, in the heads that attend, on the newest 7 bytes
                       (the byte itself among them), in the second half of a window, in per cent;
                       equal weights would have 15 % there

The paper (Wu and others, ICLR 2020, arXiv:2004.11886) says that heads beside a convolution attend
to what is far. Lesson 38 draws what

    python -m attnlab.experiments shared_work --threads 1 --json \\
        attnlab/experiments/assets/38_shared.json

has written; rows that the file holds are not trained again.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.lens.watch import watch
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from attnlab.train import evaluate, fit

LENGTH, NEAR = 64, 7
ARMS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "lite_transformer": {"kernel": NEAR},
    "lightweight_convolution": {"kernel": NEAR},
    "dynamic_convolution": {"kernel": NEAR},
    "convolutional_attention": {"kernel": 3},
}
ATTEND = ("full", "lite_transformer", "convolutional_attention")
STEPS, SEEDS, UNSEEN = 400, (0, 1, 2), 64
MODEL: Mapping[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "hidden": 64, "tie": False}
TRAINING: Mapping[str, Any] = {"batch_size": 16, "learning_rate": 5e-3}
BITS, SHARE = "bits per byte", "near share"


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each training and number."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows, the whole grid of one seed after the other."""
    return [
        f"{arm}, {what}, seed {seed}"
        for seed in SEEDS[: 1 if quick else None]
        for arm in ARMS
        for what in ((BITS, SHARE) if arm in ATTEND else (BITS,))
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure."""
    arm, what, seed = figure.split(", ")
    with thread_count(threads):
        model = _trained(arm, int(seed.removeprefix("seed ")), 2 if quick else STEPS)
        if what == BITS:
            return Row(figure, bits(model), BITS)
        share = torch.stack([near_share(each) for each in maps(model)])
        return Row(figure, round(100 * share.mean().item(), 2), "%")


def build(arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""

    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        return catalog.build(arm, dim=dim, heads=heads, causal=causal, **ARMS[arm])

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = Documentation(length=LENGTH).model_options()
        return TinyTransformer(**options, **MODEL, attention=layer)


def train(arm: str, seed: int, *, steps: int = STEPS, progress: bool = False) -> TinyTransformer:
    """The trained model."""
    model, task = build(arm, seed), Documentation(length=LENGTH)
    fit(model, task, steps, seed=seed, progress=progress, device="cpu", **TRAINING)
    return model.eval()


_trained = lru_cache(maxsize=1)(lambda arm, seed, steps: train(arm, seed, steps=steps))


def bits(model: TinyTransformer) -> float:
    """Bits per byte on unseen text."""
    found = evaluate(model, Documentation(length=LENGTH), batches=8, batch_size=32)
    return round(found.loss / math.log(2), 4)


@torch.no_grad()
def maps(model: TinyTransformer) -> list[Tensor]:
    """The weights (b, h, n, n) of the heads that attend, of each layer, on unseen text."""
    batch = Documentation(length=LENGTH).batch("validation", UNSEEN, seed=0)
    with watch(model) as seen:
        model(batch.inputs)
    return [record.weights for record in seen]


def near_share(weights: Tensor) -> Tensor:
    """The share of each head (h,) on the newest 7 bytes, in the second half of the windows."""
    n = weights.shape[-1]
    i = torch.arange(n)
    distance = i[:, None] - i
    near = (distance >= 0) & (distance < NEAR)
    return (weights * near).sum(-1)[..., n // 2 :].mean(dim=(0, 2))


def even_share() -> float:
    """The near share of equal weights, in per cent."""
    i = torch.arange(LENGTH)
    even = torch.ones(LENGTH, LENGTH).tril() / (i[:, None] + 1)
    return 100 * near_share(even[None, None]).item()
