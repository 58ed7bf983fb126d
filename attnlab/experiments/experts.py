"""Experts: what a router's choices, their balance and their capacity are worth.

Nothing is timed: each row is a number measured on a model of two layers with two heads, at one step
of its training on bytes of the Python documentation. All else is equal (rotary positions, the same
steps and batches). The feed-forward layers are:

    switch                eight experts of width 64; each byte is sent to one
    no balance            the same without the balance loss
    much balance          the same with a hundred times its weight
    no limit              without a capacity, so that no byte is dropped
    no limit, no balance  with neither
    random router         the router stays what it was before training
    narrow                one layer of width 64: the work of one expert
    wide                  one layer of width 512: the parameters of eight experts

What is measured: the loss on unseen text (nats per byte) and of each layer the balance E Σ f P (1
if the experts are used alike, 8 if one has all bytes), how many bytes the fullest expert is chosen
by, how many are dropped in evaluation, and how much of the choice the byte alone tells: the
mutual information of byte and expert beside the entropy of the expert.

All of these have 400 updates and one learning rate. The control has 1,000 updates, and each of four
arms is trained with two rates: a layer that looks worse may only have had the wrong one. The lesson
about experts draws what

    python -m attnlab.experiments experts --threads 1 --json \\
        attnlab/experiments/assets/08_experts.json

has written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.experts import balance
from attnlab.core.probe import record
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation

EXPERTS, LAYERS, LENGTH, HIDDEN = 8, 2, 64, 64
STEPS: tuple[int, ...] = (0, 100, 400)
FREE: Mapping[str, Any] = {"capacity": None, "evaluation_capacity": None}
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "switch": {},
    "no balance": {"balance": 0.0},
    "much balance": {"balance": 1.0},
    "no limit": FREE,
    "no limit, no balance": {**FREE, "balance": 0.0},
    "random router": {"frozen": True},
}
DENSE: Mapping[str, int] = {"narrow": HIDDEN, "wide": EXPERTS * HIDDEN}


@lru_cache(maxsize=1)
def text() -> Documentation:
    """The text."""
    return Documentation("bytes", length=LENGTH)


def _make(**options: Any) -> TinyTransformer:
    """A model; with ``frozen`` among the options of its experts, their routers learn nothing."""
    given = dict(options.pop("feed_options", {}))
    frozen = given.pop("frozen", False)
    model = TinyTransformer(**options, feed_options=given)
    for name, weight in model.named_parameters():
        weight.requires_grad_(not (frozen and ".router." in name))
    return model


@torch.no_grad()
def measured(model: nn.Module, windows: int = 64) -> Iterator[tuple[str, float, str]]:
    """(what, value, unit) of one model on unseen text."""
    batch = text().batch("validation", windows, seed=0)
    with record() as notes:
        logits = model(batch.inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    yield "loss", round(loss.item(), 4), "nats"
    for layer in range(LAYERS if "chosen" in notes else 0):
        chosen, router = notes["chosen"][layer], notes["router"][layer]
        fullest = F.one_hot(chosen, EXPERTS).float().mean((0, 1, 2)).max()
        told = _told(batch.inputs.flatten(), chosen.flatten())
        yield f"balance of layer {layer}", round(balance(router, chosen).item(), 3), ""
        yield f"fullest of layer {layer}", _percent(fullest), "%"
        yield f"dropped of layer {layer}", _percent(notes["dropped"][layer].float().mean()), "%"
        yield f"told by the byte of layer {layer}", _percent(told), "%"


def _percent(share: Tensor) -> float:
    return round(100 * share.item(), 2)


def _told(tokens: Tensor, experts: Tensor) -> Tensor:
    """I(token; expert) / H(expert), from their counts; 1 where only one expert is chosen."""
    together = torch.zeros(256, EXPERTS).index_put_(
        (tokens, experts), torch.ones(len(tokens)), accumulate=True
    )
    p = together / together.sum()
    of_experts, of_tokens = _entropy(p.sum(0)), _entropy(p.sum(1))
    if of_experts == 0:
        return torch.ones(())
    return (of_experts + of_tokens - _entropy(p)) / of_experts


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum()


def _scores(trained: Trained) -> Scores:
    found = measured(trained.model, windows=4 if trained.quick else 64)
    return {what: (value, unit) for what, value, unit in found}


ARMS: Mapping[str, Mapping[str, Any]] = {
    **{
        arm: {"feed": "switch", "hidden": HIDDEN, "feed_options": {"experts": EXPERTS, **options}}
        for arm, options in SWITCHES.items()
    },
    **{arm: {"hidden": hidden} for arm, hidden in DENSE.items()},
}
ALL = Grid(
    arms={arm: Arm(text, options, frames=STEPS) for arm, options in ARMS.items()},
    score=_scores,
    make=_make,
    model={"dim": 64, "layers": LAYERS, "heads": 2, "positions": "rope"},
    training={"batch_size": 16, "learning_rate": 4e-3},
    figure="{arm}, step {step}, {what}, seed {seed}",
)
LONGER, RATES, UPDATES = ("switch", "random router", "narrow", "wide"), (2e-3, 4e-3), 1000
CONTROL = replace(
    ALL,
    arms={
        f"{arm} at {rate:g}": Arm(text, ARMS[arm], {"learning_rate": rate})
        for arm in LONGER
        for rate in RATES
    },
    score=lambda trained: {"loss": _scores(trained)["loss"]},
    steps=UPDATES,
    figure="{arm}, " + f"{UPDATES} updates, " + "{what}, seed {seed}",
)
GRID = Grids((ALL, CONTROL))
SEEDS = ALL.seeds
build, film, rows, batches = ALL.build, ALL.film, GRID.rows, GRID.batches
