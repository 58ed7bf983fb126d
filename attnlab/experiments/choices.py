"""Choices: the spans and the α that heads of small models learn, layer by layer.

Nothing is timed: each row is a number measured on a model of four layers with four heads, at one
step of its training on bytes of the Python documentation. All else is equal (rotary positions, the
same steps and batches):

    full            causal full attention, for its loss alone
    spans           each head learns its span, from 16 tokens on; the loss grows by PRICE for each
                    token of the mean span of a layer
    spans from 0    the same from 0 tokens on
    alphas          each head learns the α of its entmax, from 1.5 on

What is measured: the loss on unseen text (nats per byte), each head's span (tokens) or α, and for
each α also how many of a hundred permitted keys have a weight above zero, over the second half of
the positions. Lesson 16 draws what

    python -m attnlab.experiments choices --threads 1 --json \\
        attnlab/experiments/assets/16_choices.json

has written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.probe import Notes, record
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.experiments.loop import descend, rise_and_fall
from attnlab.mechanisms.learned.adaptive_span import penalty
from attnlab.tasks import Batch
from attnlab.tasks.documentation import Documentation

LENGTH, LAYERS, HEADS = 64, 4, 4
STEPS: tuple[int, ...] = (0, 100, 200, 300)
PRICE = 1e-4
SPAN: Mapping[str, Any] = {"max_span": LENGTH, "ramp": 8}
BATCH, RATE = 8, 3e-3
FASTER = 20  # times as fast learn the numbers behind α: 300 steps are few
MODEL: Mapping[str, Any] = {"dim": 64, "hidden": 128, "layers": LAYERS, "heads": HEADS}
ARMS: Mapping[str, Mapping[str, Any]] = {
    "full": {"attention": "full"},
    "spans": {"attention": "adaptive_span", "attention_options": {**SPAN, "start": 16.0}},
    "spans from 0": {"attention": "adaptive_span", "attention_options": SPAN},
    "alphas": {"attention": "entmax", "attention_options": {"learn_alpha": True}},
}


def _train(
    model: nn.Module,
    task: Documentation,
    steps: int,
    *,
    seed: int,
    price: float = PRICE,
    callbacks: Sequence[Callable[[Any], None]] = (),
) -> None:
    """The same training for all kinds of attention; spans cost ``price`` for each token."""

    def loss(step: int) -> Tensor:
        batch = task.batch("train", BATCH, seed=1000 * seed + step)
        with record() as notes:
            found = loss_of(model, batch)
        return found + price * penalty(notes) if "span" in notes else found

    def after(step: int) -> None:
        for call in callbacks:
            call(SimpleNamespace(step=step, model=model))

    groups = [
        {"params": [p], "lr": RATE * (FASTER if name.endswith(".a") else 1)}
        for name, p in model.named_parameters()
    ]
    optimizer = torch.optim.AdamW(groups)
    schedule = rise_and_fall(optimizer, steps + 1)
    descend(optimizer, loss, steps, schedule=schedule, clip=1.0, after=after)


@lru_cache(maxsize=1)
def text() -> Documentation:
    """The text."""
    return Documentation("bytes", length=LENGTH)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The mean loss, in nats per byte."""
    logits: Tensor = model(batch.inputs)
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())


@torch.no_grad()
def measured(model: nn.Module) -> Iterator[tuple[str, float, str]]:
    """(what, value, unit) of one model on unseen text."""
    batch = text().batch("validation", 64, seed=0)
    with record() as notes:
        loss = loss_of(model, batch)
    yield "loss", round(loss.item(), 4), "nats"
    for layer in range(LAYERS):
        for what, values, unit in _of_layer(notes, layer):
            for head, value in enumerate(values.tolist()):
                yield f"{what} of layer {layer} head {head}", round(value, 3), unit


def _of_layer(notes: Notes, layer: int) -> Iterator[tuple[str, Tensor, str]]:
    if "span" in notes:
        yield "span", notes["span"][layer], "tokens"
    if "alpha" in notes:
        yield "alpha", notes["alpha"][layer], ""
        late = torch.arange(LENGTH // 2, LENGTH)
        share = notes["support"][layer][:, :, late] / (late + 1)
        yield "support", 100 * share.mean((0, 2)), "%"


def _scores(trained: Trained) -> Scores:
    return {what: (value, unit) for what, value, unit in measured(trained.model)}


GRID = Grid(
    arms={arm: Arm(text, options, frames=STEPS) for arm, options in ARMS.items()},
    score=_scores,
    model={"positions": "rope", **MODEL},
    loop=_train,
    figure="{arm}, step {step}, {what}, seed {seed}",
)
SEEDS = GRID.seeds
build, rows, batches = GRID.build, GRID.rows, GRID.batches


def film(
    arm: str, seed: int, steps: tuple[int, ...] = STEPS, price: float = PRICE
) -> Iterator[tuple[int, nn.Module]]:
    """(step, the model at that step), of one training."""
    yield from GRID.film(arm, seed, steps=steps, price=price).items()
