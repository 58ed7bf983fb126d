"""Look back: each token says how far back the answer stands, and a layer must go there.

Nothing is timed: each row is one training of a model with a single layer, the same steps, width and
learning rate for all. A token is a letter and a distance, ``c5``, and asks for the letter that
stands so many tokens before it. So the distance to attend to is part of the content of the query. A
layer can do it whose scores know distances *by* query; a bias by distance, the same for all
queries, cannot. Scores are per cent of right answers on unseen texts, of the length of training and
eight times as long, the mean over the distances of a group. One answer in eight is right by
chance. Lesson 42 draws what

    python -m attnlab.experiments look_back --threads 1 --json \\
        attnlab/experiments/assets/42_look_back.json

has written.
"""

from collections.abc import Mapping

import torch

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import UNSCORED
from attnlab.tasks.look_back import FARTHEST, LENGTH, LETTERS, LONGER, LookBack, distance_of

__all__ = ["FARTHEST", "LENGTH", "LETTERS", "LONGER", "LookBack", "distance_of"]

TEXTS = 256
GROUPS: Mapping[str, tuple[int, int]] = {
    "1 to 7 back": (1, 7),
    "8 to 15 back": (8, 15),
    "16 back": (16, 16),
}


@torch.no_grad()
def score(model: TinyTransformer, length: int = LENGTH, texts: int = TEXTS) -> list[float]:
    """Per cent of right answers for each distance asked for, 1 … 16."""
    batch = LookBack(length).batch("validation", texts * LENGTH // length, seed=0)
    right, asked = model(batch.inputs).argmax(-1) == batch.targets, batch.targets != UNSCORED
    distance = distance_of(batch.inputs)
    return [percent(right[asked & (distance == each)]) for each in range(1, FARTHEST + 1)]


def _score(trained: Trained) -> Scores:
    found = {}
    for length in (LENGTH, LONGER):
        shares = score(trained.model, length)
        for group, (first, last) in GROUPS.items():
            mean = sum(shares[first - 1 : last]) / (last - first + 1)
            found[f"{length}; {group}"] = round(mean, 2)
    return found


def _arm(positions: str, **options: int) -> Arm:
    return Arm(LookBack(), {"positions": positions, "position_options": options})


GRID = Grid(
    arms={
        "Transformer-XL": _arm("relative"),
        "Shaw, k = 16": _arm("shaw", clip=16),
        "Shaw, k = 8": _arm("shaw", clip=8),
        "T5's biases": _arm("t5_bias"),
        "learned positions": _arm("learned"),
    },
    score=_score,
    steps=400,
    model={"dim": 64, "hidden": 64, "heads": 2, "layers": 1},
    training={"batch_size": 64, "learning_rate": 3e-3},
    figure="{arm}; {what}; seed {seed}",
)
ARMS, SEEDS = GRID.arms, GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
