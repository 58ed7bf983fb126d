"""How deep: which joins train a model of 96 layers, and is it the learning rate alone?

Nothing is timed: each training is one tiny language model (dim 32, 2 heads) that learns to copy 8
letters out of 8; guessing is right for 12.5 %. 150 updates of 16 sequences; the loss of six parts
of the training is stored, and the share of letters that are right afterwards. Four joins:

    post_norm           as in its paper
    post_norm, shrunk   the same with the last matrix of each sublayer divided by √192
    deep_norm           post-norm with the constants of its paper
    pre_norm            as in its paper, the baseline

All matrices of the layers begin with Glorot's variance, as in the paper of DeepNorm; then each join
changes them as it asks for. Post-norm, DeepNorm and pre-norm are tuned alike: the rates 3e-4, 1e-3
and 3e-3 after a warm-up over the first 30 updates, and 1e-3 without one. The same joins in 6 layers
say whether the task can be learned with these updates, and post-norm with smaller last matrices is
a control: what its sublayers add begins small, as with β of DeepNorm, and its stream has no α.
Lesson 07 draws what

    python -m attnlab.experiments how_deep --threads 1 --json \\
        attnlab/experiments/assets/07_how_deep.json

has written.
"""

from typing import Any

import torch
from torch import nn

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit, percent
from attnlab.models.layers import initialise_branches
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.copying import Copying

DEEP, SHALLOW = 96, 6
STEPS, WARMUP, PARTS = 150, 30, 6
RATES = (3e-4, 1e-3, 3e-3)
MIDDLE = RATES[1]
JOINS: dict[str, dict[str, Any]] = {
    "post_norm": {"join": "post_norm", "join_options": {"shrink": False}},
    "post_norm, shrunk": {"join": "post_norm", "join_options": {"shrink": True}},
    "deep_norm": {"join": "deep_norm"},
    "pre_norm": {"join": "pre_norm", "join_options": {"shrink": False}},
}
TASK = Copying(8, 8)


def _model(**options: Any) -> TinyTransformer:
    """Every matrix of the layers with Glorot's variance, and then as the joins change it."""
    model = TinyTransformer(**options)
    for part in model.decoder.blocks.modules():  # type: ignore[union-attr]
        if isinstance(part, nn.Linear):
            nn.init.xavier_normal_(part.weight)
    initialise_branches(model, keep=())
    return model


def _fit(model: nn.Module, task: Any, steps: int, *, warmup: int, **options: Any) -> Any:
    """``attnlab.train.fit``; a run of fewer steps has a shorter warm-up."""
    return by_fit(model, task, steps, warmup=min(warmup, steps - 1), **options)


@torch.no_grad()
def _right(model: nn.Module, sequences: int) -> float:
    batch = TASK.batch("validation", sequences, seed=0)
    asked = batch.targets >= 0
    return percent((model(batch.inputs).argmax(-1) == batch.targets)[asked])


def _scores(trained: Trained) -> Scores:
    losses = trained.history.column("loss")
    found: dict[str, Any] = {}
    for part in range(PARTS):
        own = losses[len(losses) * part // PARTS :][: max(1, len(losses) // PARTS)]
        found[f"loss in part {part + 1} of {PARTS}"] = (round(sum(own) / len(own), 3), "nats")
    return {**found, "right": _right(trained.model, 16 if trained.quick else 256)}


def _arms() -> dict[str, Arm]:
    def arm(join: str, layers: int, rate: float, warmup: int = WARMUP) -> Arm:
        training = {"learning_rate": rate, "warmup": warmup}
        return Arm(TASK, {**JOINS[join], "layers": layers}, training)

    found = {
        f"{join}, {layers} layers, rate {MIDDLE:g}": arm(join, layers, MIDDLE)
        for layers in (DEEP, SHALLOW)
        for join in ("post_norm", "deep_norm", "pre_norm")
    }
    for join in ("post_norm", "deep_norm", "pre_norm"):
        found[f"{join}, {DEEP} layers, rate {RATES[2]:g}"] = arm(join, DEEP, RATES[2])
        name = f"{join}, {DEEP} layers, rate {MIDDLE:g}, no warm-up"
        found[name] = arm(join, DEEP, MIDDLE, 0)
    name = f"post_norm, shrunk, {DEEP} layers, rate {MIDDLE:g}"
    found[name] = arm("post_norm, shrunk", DEEP, MIDDLE)
    for join in ("post_norm", "deep_norm", "pre_norm"):
        found[f"{join}, {DEEP} layers, rate {RATES[0]:g}"] = arm(join, DEEP, RATES[0])
    return found


GRID = Grid(
    arms=_arms(),
    score=_scores,
    steps=STEPS,
    make=_model,
    loop=_fit,
    model={"dim": 32, "heads": 2, "hidden": 64, "tie": False},
    training={"batch_size": 16},
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
