"""Experts: what a router's choices, their balance and their capacity are worth.

Nothing is timed: each row is a number measured on a model of two layers with two heads, at one step
of its training on bytes of the Python documentation. All else is equal (rotary positions, 1,000
steps, the same batches), but for the learning rate. Of four rates ``switch``, ``random router``,
``narrow`` and ``wide`` have each the best, by the loss on other unseen text of one training with a
seed of its own ("tuning"); the variants of ``switch`` have its rate. The feed-forward layers are:

    switch                eight experts of width 64; each byte is sent to one
    no balance            the same without the balance loss
    much balance          the same with a hundred times its weight
    no limit              without a capacity, so that no byte is dropped
    no limit, no balance  with neither
    random router         the router stays what it was before training
    cosine router         X-MoE's router, of cosines in 16 dimensions
    narrow                one layer of width 64: the work of one expert
    wide                  one layer of width 512: the parameters of eight experts

What is measured: the loss on unseen text (nats per byte) and of each layer the balance E Σ f P (1
if the experts are used alike, 8 if one has all bytes), how many bytes the fullest expert is chosen
by, how many are dropped in evaluation, and how much of the choice the byte alone tells: the
mutual information of byte and expert beside the entropy of the expert. "Alike" says how near the
vectors are that one expert is chosen by: the share of the variance of what the router reads that
is variance between the experts' means; 100 % if the vectors of one expert are all the same, which
Chi et al. (2022) call representation collapse. The lesson about experts
draws what

    python -m attnlab.experiments experts --threads 1 --json \\
        attnlab/experiments/assets/08_experts.json

has written.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
STEPS: tuple[int, ...] = (0, 100, 1000)
TRIED: tuple[float, ...] = (2e-3, 4e-3, 8e-3, 16e-3)
TUNED_BY = 3
"""The seed of the trainings that choose the learning rates."""
FREE: Mapping[str, Any] = {"capacity": None, "evaluation_capacity": None}
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "switch": {},
    "no balance": {"balance": 0.0},
    "much balance": {"balance": 1.0},
    "no limit": FREE,
    "no limit, no balance": {**FREE, "balance": 0.0},
    "random router": {"frozen": True},
    "cosine router": {"router": "cosine"},
}
DENSE: Mapping[str, int] = {"narrow": HIDDEN, "wide": EXPERTS * HIDDEN}
RATES: Mapping[str, float] = dict.fromkeys(("switch", "random router", *DENSE), 4e-3)
"""Of those tried, for each arm that is tuned the one with the least loss."""


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
def _loss(model: nn.Module, windows: int, seed: int) -> tuple[float, Tensor]:
    """The loss on unseen text, and the text."""
    batch = text().batch("validation", windows, seed=seed)
    logits = model(batch.inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    return round(loss.item(), 4), batch.inputs


@torch.no_grad()
def measured(model: nn.Module, windows: int = 64) -> Iterator[tuple[str, float, str]]:
    """(what, value, unit) of one model on unseen text."""
    with record() as notes, _read(model) as vectors:
        loss, read = _loss(model, windows, seed=0)
    yield "loss", loss, "nats"
    for layer in range(LAYERS if "chosen" in notes else 0):
        chosen, router = notes["chosen"][layer], notes["router"][layer]
        fullest = F.one_hot(chosen, EXPERTS).float().mean((0, 1, 2)).max()
        told = _told(read.flatten(), chosen.flatten())
        yield f"balance of layer {layer}", round(balance(router, chosen).item(), 3), ""
        yield f"fullest of layer {layer}", _percent(fullest), "%"
        yield f"dropped of layer {layer}", _percent(notes["dropped"][layer].float().mean()), "%"
        yield f"told by the byte of layer {layer}", _percent(told), "%"
        yield f"alike in layer {layer}", _percent(alike(vectors[layer], chosen)), "%"


@contextmanager
def _read(model: Any) -> Iterator[list[Tensor]]:
    """What the feed-forward layers read inside the block, one layer after the other."""
    found: list[Tensor] = []
    handles = [
        block.feed_forward.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        for block in model.decoder.blocks
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def alike(x: Tensor, chosen: Tensor) -> Tensor:
    """The share of the variance of x that is variance between the means of the experts."""
    x, chosen = x.flatten(0, -2).double(), chosen.flatten()
    means = torch.stack(
        [x[chosen == e].mean(0) if (chosen == e).any() else 0 * x[0] for e in range(EXPERTS)]
    )
    return (means[chosen] - x.mean(0)).square().sum() / (x - x.mean(0)).square().sum()


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


def _tuned(trained: Trained) -> Scores:
    """The loss on unseen text that no other row is measured on."""
    return {"loss": (_loss(trained.model, windows=4 if trained.quick else 64, seed=1)[0], "nats")}


ARMS: Mapping[str, Mapping[str, Any]] = {
    **{
        arm: {"feed": "switch", "hidden": HIDDEN, "feed_options": {"experts": EXPERTS, **options}}
        for arm, options in SWITCHES.items()
    },
    **{arm: {"hidden": hidden} for arm, hidden in DENSE.items()},
}
_SAME: Mapping[str, Any] = {
    "make": _make,
    "model": {"dim": 64, "layers": LAYERS, "heads": 2, "positions": "rope"},
    "training": {"batch_size": 16},
}
TUNING = Grid(
    arms={
        f"{arm}, rate {rate:g}": Arm(text, options, {"learning_rate": rate})
        for arm, options in ARMS.items()
        if arm in RATES
        for rate in TRIED
    },
    score=_tuned,
    steps=STEPS[-1],
    seeds=(TUNED_BY,),
    figure="tuning, {arm}, {what}",
    **_SAME,
)
FILMED = Grid(
    arms={
        arm: Arm(text, options, {"learning_rate": RATES.get(arm, RATES["switch"])}, frames=STEPS)
        for arm, options in ARMS.items()
    },
    score=_scores,
    figure="{arm}, step {step}, {what}, seed {seed}",
    **_SAME,
)
GRID = Grids((TUNING, FILMED))
SEEDS = FILMED.seeds
build, film, rows, batches = FILMED.build, FILMED.film, GRID.rows, GRID.batches
