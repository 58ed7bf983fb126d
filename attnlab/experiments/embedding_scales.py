"""Embedding scales: three ways of adding sinusoids to tokens, each at its own best rate.

The models, the commands and the scores are those of ``none``, ``up`` and ``down`` in
`attnlab.experiments.length_split`, where 600 updates at one learning rate leave most models
without the known lengths. Here every scale has the same learning rates:

    tried       three rates, 500 updates, one seed that is scored nowhere else. The highest has the
                greatest loss for `up` and `down`, and is not the best for `none`
    compared    the other two rates, 900 updates, three seeds; of each scale the rate with the
                least loss on new commands of known lengths, in the mean over seeds, is its own.
                That of `down` is the lowest: rates below it were not tried, nor longer trainings

Lesson 73 shows what

    python -m attnlab.experiments embedding_scales --threads 1 --json \\
        attnlab/experiments/assets/73_embedding_scales.json

has written; rows that the file holds are not trained again.

Csordás, Irie, Schmidhuber. The Devil is in the Detail: Simple Tricks Improve Systematic
Generalization of Transformers. EMNLP 2021, arXiv:2108.12284.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn import functional as F

from attnlab.experiments import length_split
from attnlab.experiments.grid import SEEDS, Arm, Grids, Measured, Trained
from attnlab.experiments.length_split import ASKED, SCALES, TASK
from attnlab.tasks import UNSCORED

RATES = (1e-3, 3e-3, 6e-3)
COMPARED = RATES[:2]
TRIED, STEPS = 500, 900


@torch.no_grad()
def _loss(trained: Trained) -> dict[str, Measured]:
    batch = length_split.questions("known lengths", 16 if trained.quick else ASKED)
    logits = trained.model(
        batch.inputs, batch.padding, source=batch.source, source_padding=batch.source_padding
    )
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets, ignore_index=UNSCORED)
    return {"known lengths, loss": (round(loss.item(), 4), "nats")}


def _arms(rates: Sequence[float]) -> dict[str, Arm]:
    return {
        arm(scale, rate): Arm(TASK, {"scale": scale}, {"learning_rate": rate})
        for scale in SCALES
        for rate in rates
    }


def arm(scale: str, rate: float) -> str:
    """The name of a scale with a rate."""
    return f"{scale}, rate {rate}"


def own_rate(rows: Mapping[str, float], scale: str) -> float:
    """The rate of a scale whose models have the least loss, in the mean over seeds."""
    loss = "known lengths, loss"
    return min(
        COMPARED,
        key=lambda rate: sum(rows[f"{arm(scale, rate)}; {loss}; seed {seed}"] for seed in SEEDS),
    )


TRIALS = replace(
    length_split.GRID,
    arms=_arms(RATES),
    score=_loss,
    steps=TRIED,
    seeds=(3,),
    figure="{arm}; {what}; tried",
)
TUNED = replace(
    length_split.GRID,
    arms=_arms(COMPARED),
    score=lambda trained: {**_loss(trained), **length_split.GRID.score(trained)},
    steps=STEPS,
)
GRID = Grids((TRIALS, TUNED))
rows, batches = GRID.rows, GRID.batches
