"""Scaling: what one budget buys in models of several shapes, and a law that is asked to predict.

Nothing is compared but sizes. All models are the same causal transformer (full attention, rotary
positions, heads of width 16 or a little more) that predicts the next byte of the Python
documentation from up to 64 before it, in batches of 16 windows. Each training is a whole one, whose
learning rate rises and falls within its own number of steps; a training that is cut short would
have a loss that a law must not be fitted to.

    budget, 2 x 48   shapes at one budget, layers × width: as many FLOPs as two layers of width 48
                     need for 400 steps. Small models take more steps of it, large ones fewer
    width 32, 200    for the law: two layers of a width, and the steps. Five widths, three durations
    width 128, 400   what the law is to predict: four times as many parameters as the largest of
                     the five

The rate is 0.04 / √width for all: a search of three rates with a fourth seed, on widths 16, 48 and
128, found the best near 0.01, 0.003 to 0.01 and 0.003. What is measured is the loss on 32,768
unseen bytes, in nats per byte, and the processor's time for a step of the budget's models, in
milliseconds. Lesson 72 draws what

    python -m attnlab.experiments scaling --threads 1 --json \\
        attnlab/experiments/assets/72_scaling.json

has written.

Geiping, Goldstein. Cramming: Training a Language Model on a Single GPU in One Day. ICML 2023,
arXiv:2212.14034. Kaplan and others. Scaling Laws for Neural Language Models. 2020,
arXiv:2001.08361. Hoffmann and others. Training Compute-Optimal Large Language Models. NeurIPS 2022,
arXiv:2203.15556.
"""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from torch import nn

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit
from attnlab.tasks.documentation import Documentation
from attnlab.train import History, evaluate

LENGTH, BATCH, BYTES = 64, 16, 256
TOKENS = LENGTH * BATCH
"""Tokens of one step."""

WIDTHS, LONG_AWAY, LAYERS = (16, 24, 32, 48, 64), 128, 2
STEPS = (100, 200, 400)
LATER = (200, 400)
"""Steps of the size that is predicted."""

SHAPES = ((1, 32), (1, 64), (2, 48), (4, 32), (8, 32), (2, 96))
"""Layers and width of the models at one budget."""

UNSEEN = (16, 32)
"""Batches, and windows of each, on which a model is scored."""


def parameters_of(layers: int, width: int) -> int:
    """N: the numbers in the matrices of all layers, 12 width² each. The table of bytes is left out,
    as Kaplan and others do: at these sizes it would be up to two fifths of all."""
    return 12 * layers * width**2


def flops_a_token(layers: int, width: int) -> int:
    """FLOPs of forward and backward pass: six for each parameter of the layers and of the output
    matrix, and for the products of queries, keys and values of all pairs."""
    return 6 * (parameters_of(layers, width) + BYTES * width + 2 * layers * LENGTH * width)


BUDGET = flops_a_token(2, 48) * TOKENS * 400
"""FLOPs that each shape may spend."""


def steps_of(layers: int, width: int) -> int:
    """The steps that the budget pays for."""
    return round(BUDGET / (flops_a_token(layers, width) * TOKENS))


@lru_cache(maxsize=1)
def text() -> Documentation:
    """The text, read once."""
    return Documentation("bytes", length=LENGTH)


class Timed(NamedTuple):
    """A training, and the seconds of the processor that it took."""

    history: History
    seconds: float


def _timed(model: nn.Module, task: Documentation, steps: int, **options: Any) -> Timed:
    begin = time.process_time()
    history = by_fit(model, task, steps, **options)
    return Timed(history, time.process_time() - begin)


def _arm(layers: int, width: int, steps: int) -> Arm:
    model = {"layers": layers, "dim": width, "heads": max(1, width // 16)}
    return Arm(text, model, {"learning_rate": 0.04 * width**-0.5}, steps=steps)


ARMS: Mapping[str, Arm] = {
    **{f"budget, {one[0]} x {one[1]}": _arm(*one, steps_of(*one)) for one in SHAPES},
    **{f"width {width}, {n}": _arm(LAYERS, width, n) for width in WIDTHS for n in STEPS},
    **{f"width {LONG_AWAY}, {n}": _arm(LAYERS, LONG_AWAY, n) for n in LATER},
}


def _scores(trained: Trained) -> Scores:
    batches, size = UNSEEN
    found = evaluate(
        trained.model, text(), batches=1 if trained.quick else batches, batch_size=size
    )
    scores: dict[str, Any] = {"loss": (round(found.loss, 4), "nats per byte")}
    if trained.name.startswith("budget"):
        each = trained.history.seconds / len(trained.history.history.rows)
        scores["a step"] = (round(1000 * each, 2), "ms")
    return scores


GRID = Grid(
    arms=ARMS,
    score=_scores,
    model={"positions": "rope"},
    training={"batch_size": BATCH},
    loop=_timed,
)
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
