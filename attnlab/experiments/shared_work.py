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
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from attnlab.train import evaluate

LENGTH, NEAR = 64, 7
ARMS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "lite_transformer": {"kernel": NEAR},
    "lightweight_convolution": {"kernel": NEAR},
    "dynamic_convolution": {"kernel": NEAR},
    "convolutional_attention": {"kernel": 3},
}
ATTEND = ("full", "lite_transformer", "convolutional_attention")
UNSEEN = 64
BITS, SHARE = "bits per byte", "near share"
_TEXT = Documentation(length=LENGTH)


def _model(mechanism: str, **sizes: Any) -> TinyTransformer:
    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        return catalog.build(mechanism, dim=dim, heads=heads, causal=causal, **ARMS[mechanism])

    return TinyTransformer(**sizes, attention=layer)


def bits(model: TinyTransformer) -> float:
    """Bits per byte on unseen text."""
    found = evaluate(model, _TEXT, batches=8, batch_size=32)
    return round(found.loss / math.log(2), 4)


@torch.no_grad()
def maps(model: TinyTransformer) -> list[Tensor]:
    """The weights (b, h, n, n) of the heads that attend, of each layer, on unseen text."""
    batch = _TEXT.batch("validation", UNSEEN, seed=0)
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


def _scores(trained: Trained) -> Scores:
    found: dict[str, Any] = {BITS: (bits(trained.model), BITS)}
    if trained.name in ATTEND:
        shares = torch.stack([near_share(each) for each in maps(trained.model)])
        found[SHARE] = round(100 * shares.mean().item(), 2)
    return found


GRID = Grid(
    arms={arm: Arm(_TEXT, {"mechanism": arm}) for arm in ARMS},
    score=_scores,
    steps=400,
    make=_model,
    model={"dim": 32, "layers": 2, "heads": 4, "hidden": 64, "tie": False},
    training={"batch_size": 16, "learning_rate": 5e-3},
)
SEEDS = GRID.seeds
build, rows, batches = GRID.build, GRID.rows, GRID.batches


def train(arm: str, seed: int, **options: Any) -> TinyTransformer:
    """The trained model."""
    model: TinyTransformer = GRID.train(arm, seed, **options)[0]
    return model
