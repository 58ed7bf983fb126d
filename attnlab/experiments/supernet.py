"""Supernet: do inherited weights rank sub-networks as training each of them does?

Nothing is timed. One supernet of 516 sub-networks is trained on handwritten digits, in each step
as another sub-network at random; then every sub-network is scored with the weights that it inherits
(Wang et al. 2020, `attnlab.models.supernet`). Eight of them, chosen by their sizes before any was
scored, are also trained from scratch, for as many steps. Scores are per cent of right answers for
the 359 images of the validation split. The result is the rank correlation (Spearman) of inherited
with retrained scores, beside that of counted FLOPs with retrained scores: larger networks are
better, and a supernet that knew no more than this would not be needed.

    python -m attnlab.experiments supernet --threads 1 --json \\
        attnlab/experiments/assets/09_supernet.json

The budget is 600 steps for everything, which leaves all of them short of their best; a supernet
shares its steps among all its networks, so that inherited scores are lower. Eight networks are few:
without any relation one correlation in twenty is above 0.64.
"""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import torch

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.models.counts import count
from attnlab.models.latency import rank_correlation
from attnlab.models.supernet import Sizes, Space, Supernet, network
from attnlab.tasks.digits import Digits

SPACE = Space(dim=(16, 32), hidden=(16, 32, 64), heads=(2, 4), layers=(1, 2, 3))
CHOSEN: tuple[Sizes, ...] = (
    Sizes(16, (16,), (2,)),
    Sizes(16, (64,), (4,)),
    Sizes(32, (64,), (2,)),
    Sizes(16, (16, 16, 16), (4, 4, 4)),
    Sizes(32, (32, 32), (4, 2)),
    Sizes(16, (64, 64, 64), (2, 4, 2)),
    Sizes(32, (16, 16, 16), (2, 2, 2)),
    SPACE.largest,
)
TASK = Digits(unit="patches")
IMAGES = 359


def named(sizes: Sizes) -> str:
    """Width, then hidden × heads of each layer: "32: 64×4, 16×2"."""
    layers = zip(sizes.hidden, sizes.heads, strict=True)
    return f"{sizes.dim}: " + ", ".join(f"{hidden}×{heads}" for hidden, heads in layers)


def flops(sizes: Sizes) -> int:
    """The counted FLOPs of one image."""
    return count(network(SPACE, sizes, **TASK.model_options()), TASK.length)[-1].flops


@torch.no_grad()
def right(model: Any, **given: Any) -> float:
    """Per cent of right answers."""
    batch = TASK.batch("validation", IMAGES, seed=0)
    return percent(model(batch.inputs, **given).argmax(-1) == batch.targets)


def correlations(rows: Mapping[str, float], seed: int) -> dict[str, float]:
    """Rank correlations of a seed's eight retrained scores: with the inherited ones, with FLOPs."""
    retrained = [rows[f"{named(sizes)}, retrained, seed {seed}"] for sizes in CHOSEN]
    inherited = [rows[f"supernet, {named(sizes)}, seed {seed}"] for sizes in CHOSEN]
    return {
        "inherited": rank_correlation(inherited, retrained),
        "flops": rank_correlation([flops(sizes) for sizes in CHOSEN], retrained),
    }


def _score(trained: Trained) -> Scores:
    if not isinstance(trained.model, Supernet):
        return {"retrained": right(trained.model)}
    inherited = {named(sizes): right(trained.model, sizes=sizes) for sizes in CHOSEN}
    every = [
        right(trained.model, sizes=sizes) for sizes in islice(SPACE, 4 if trained.quick else None)
    ]
    return inherited | {
        "worst of all": (min(every), "%", f"of {len(SPACE)} networks"),
        "best of all": (max(every), "%", f"of {len(SPACE)} networks"),
    }


def _arm(sizes: Sizes) -> Arm:
    return Arm(TASK, {"sizes": sizes})


def _made(sizes: Sizes | None = None, **options: Any) -> Any:
    make = Supernet if sizes is None else partial(network, sizes=sizes)
    return make(SPACE, **options)


GRID = Grid(
    arms={"supernet": Arm(TASK)} | {named(sizes): _arm(sizes) for sizes in CHOSEN},
    score=_score,
    steps=600,
    make=_made,
    training={"batch_size": 32, "learning_rate": 3e-3},
)
SEEDS = GRID.seeds
train, rows, batches = GRID.train, GRID.rows, GRID.batches
