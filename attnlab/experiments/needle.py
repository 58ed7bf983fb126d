"""Needle: four sparse patterns of equal cost, on a task that measures only the receptive field.

Nothing is timed: each row is one training of a tiny model from scratch, the same steps, width
and learning rate for all, and about eight keys for each position in every pattern. It is scored on
texts that it has not seen, apart for the questions that the pattern connects with the key (over all
layers) and for those that it does not: the latter can only be guessed. Positions have no embedding,
so that what was trained may be asked about longer texts. The window is trained once more for three
times as long: does patience replace a path? Lesson 11 draws what

    python -m attnlab.experiments needle --threads 1 --json \\
        attnlab/experiments/assets/11_needle.json

has written.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.patterns import Pattern, receptive_field
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.needle import Needle

LAYERS, STEPS = 3, 100
TASK: Mapping[str, int] = {"length": 64, "keys": 8, "words": 8, "every": 4}
_BLOCKS: Mapping[str, int] = {"block": 2, "window": 3, "random": 1, "global_blocks": 0}


def problem(**changes: int) -> Any:
    """The task, with small sizes."""
    return Needle(**{**TASK, **changes})


def _model(mechanism: str, options: Mapping[str, Any], form: str, **sizes: Any) -> TinyTransformer:
    """Every layer draws random blocks of its own."""
    layers = [
        {**options, "form": form, **({"seed": layer} if "random" in options else {})}
        for layer in range(LAYERS)
    ]
    attention = [partial(_two_sided, mechanism, layer) for layer in layers]
    return TinyTransformer(**sizes, layers=LAYERS, attention=attention)


def _two_sided(
    mechanism: str, options: Mapping[str, Any], dim: int, heads: int, causal: bool
) -> nn.Module:
    """No token after a question gives its answer away, so no causal mask is needed."""
    return catalog.build(mechanism, dim=dim, heads=heads, **options)


def patterns_of(model: nn.Module) -> list[Pattern]:
    """The pattern of each layer."""
    return [block.attention.pattern for block in model.decoder.blocks]  # type: ignore[union-attr]


@torch.no_grad()
def score(model: nn.Module, task: Any, texts: int = 512) -> dict[str, float]:
    """Per cent of right answers: over all, where the key is connected, where not; and how many are.

    A kind of question that does not occur is left out.
    """
    batch = task.batch("validation", texts, seed=0)
    right, asked = model(batch.inputs).argmax(-1) == batch.targets, batch.targets != -100
    linked = connected(patterns_of(model), batch.inputs, task)
    kinds = {"right": asked, "connected": asked & linked, "not connected": asked & ~linked}
    found = {name: percent(right[where]) for name, where in kinds.items() if where.any()}
    return {**found, "share connected": percent(linked[asked])}


def connected(patterns: list[Pattern], inputs: Tensor, task: Any) -> Tensor:
    """(b, n): can the key of this text influence this position?"""
    place = (inputs < task.keys).int().argmax(1)
    return receptive_field(patterns, task.length, len(patterns)).after[-1].T[place]


def _score(trained: Trained) -> Scores:
    return score(trained.model, trained.arm.task)


def _arm(mechanism: str, steps: int = STEPS, **options: Any) -> Arm:
    return Arm(problem(), {"mechanism": mechanism, "options": options}, steps=steps)


ARMS: Mapping[str, Arm] = {
    "window": _arm("longformer", window=8),
    "window + global": _arm("longformer", window=6, global_positions=(0,)),
    "window + random": _arm("bigbird", **_BLOCKS),
    "BigBird": _arm("bigbird", **{**_BLOCKS, "window": 1, "global_blocks": 2}),
}
GRID = Grid(
    arms={**ARMS, f"window for {3 * STEPS} steps": _arm("longformer", 3 * STEPS, window=8)},
    score=_score,
    make=_model,
    model={
        **{"dim": 64, "hidden": 64, "heads": 2, "positions": "none"},
        **{"max_len": 8192, "form": "naive"},
    },
    training={"batch_size": 64, "learning_rate": 2e-3},
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
