"""Recall: which layers find what followed a token, in a list of pairs and in a repeated run?

The synthetic tasks of H3 (Fu and others, ICLR 2023, arXiv:2212.14052, section 3) at toy size. Two
layers of one mechanism in the same `TinyTransformer` (width 32, 2 heads, learned positions), the
same number of steps and one learning rate for all, nothing tuned for any mechanism.

    recall       six pairs of a key and a value, then four of the keys; 20 tokens. Guessing one of
                 the four values is right in 25 % of the answers. (`attnlab.tasks.recall`)
    induction    different symbols in a run that is repeated; 30 tokens, of 20 symbols. Guessing is
                 right in 5 %. (`attnlab.tasks.induction`)

Lengths and chances are those of the authors' code. Its induction task marks what is asked for by a
token of its own; here any symbol of the run may be asked for. Scores are per cent of right answers
on unseen sequences. The shift is taken from H3 in one arm (a shift of one tap: a key meets only its
own value), and given to attention in another (its queries and keys are made of 3 tokens each). Full
attention and H3 have three more rows each, of 1,000 steps on recall, and full attention three of
1,500 steps with a fifth of the learning rate. Lesson 37 draws what

    python -m attnlab.experiments recall --threads 1 --json \\
        attnlab/experiments/assets/37_recall.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from attnlab import catalog
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
from attnlab.tasks.induction import Induction
from attnlab.tasks.recall import Recall
from attnlab.train import evaluate

TASKS: Mapping[str, Task] = {
    "recall": Recall(pairs=6, queries=4, keys=8, values=4),
    "induction": Induction(length=30, symbols=20),
}
CHANCE: Mapping[str, float] = {"recall": 25, "induction": 5}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "full": ("full", {}),
    "full with shift": ("convolutional_attention", {"kernel": 3}),
    "h3": ("h3", {"state": 16, "shift": 4, "form": "naive"}),
    "h3 without shift": ("h3", {"state": 16, "shift": 1, "form": "naive"}),
    "hyena": ("hyena", {"max_len": 32, "form": "naive"}),
    "gss": ("gss", {"state": 16, "form": "naive"}),
    "s4d": ("s4d", {"state": 16, "form": "naive"}),
}
STEPS, LONG = 400, 1000
LONGER = ("full", "h3")
SLOW, SLOW_RATE = 1500, 1e-3  # of full attention
UNSEEN: Mapping[str, Any] = {"batches": 4, "batch_size": 256}


def _model(mechanism: str, options: Mapping[str, Any], **sizes: Any) -> TinyTransformer:
    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        return catalog.build(mechanism, dim=dim, heads=heads, causal=causal, **options)

    return TinyTransformer(**sizes, attention=layer)


def right(model: TinyTransformer, task: str) -> float:
    """Per cent of right answers on unseen sequences."""
    return round(100 * evaluate(model, TASKS[task], **UNSEEN).accuracy, 2)


def _score(trained: Trained) -> Scores:
    return {"": right(trained.model, trained.arm.task.name)}


def _arm(task: str, arm: str, **own: Any) -> Arm:
    mechanism, options = ARMS[arm]
    return Arm(TASKS[task], {"mechanism": mechanism, "options": options}, **own)


def _longer(arm: str, steps: int, how: str = "", **training: float) -> dict[str, Arm]:
    figure = f"recall, {arm}, seed {{seed}}, {steps} steps{how}"
    one = _arm("recall", arm, steps=steps, training=training, figure=figure)
    return {f"recall, {arm}, {steps} steps": one}


GRID = Grid(
    arms={
        **{f"{task}, {arm}": _arm(task, arm) for task in TASKS for arm in ARMS},
        **{name: one for arm in LONGER for name, one in _longer(arm, LONG).items()},
        **_longer("full", SLOW, " slowly", learning_rate=SLOW_RATE),
    },
    score=_score,
    steps=STEPS,
    make=_model,
    model={"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "tie": False},
    training={"batch_size": 32, "learning_rate": 5e-3},
    figure="{arm}, seed {seed}",
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def build(task: str, arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    model: TinyTransformer = GRID.build(f"{task}, {arm}", seed)
    return model


def train(task: str, arm: str, seed: int, **options: Any) -> TinyTransformer:
    """The trained model."""
    model: TinyTransformer = GRID.train(f"{task}, {arm}", seed, **options)[0]
    return model
