"""Induction heads while they form, step by step, on symbols and on real text.

Nothing is timed: each row is a number measured on a small model at one step of its training. All
models have two layers of two heads each. Four kinds of training data:

    symbols                     random symbols, then the same ones again (`attnlab.tasks.induction`)
    text                        windows of 64 BPE tokens of the Python documentation
    text, passages repeated     half of the windows begin with a passage of 16 to 32 tokens, and
                                repeat it to the end
    text, random tokens repeated    in half of the windows, random tokens stand for the passage

What is measured at each step, on sequences that are the same for all:

    loss             nats per token; of "symbols" on repeats that were not trained on, of the others
                     on unseen text
    in-context score    the loss on unseen text at positions 48 to 63 less that at positions 8 to
                     15: how much more context helps (Olsson et al. 2022, arXiv:2209.11895)
    repeats right    per cent of right answers on random tokens that repeat
    induction, previous    the largest such share of all heads (`attnlab.lens.head_kinds`) there;
                     of "symbols" also "previous, both heads", the sum over layer 0
    induction in text    the largest share of all heads on unseen text

Lesson 61 draws what

    python -m attnlab.experiments induction_formation --threads 1 --json \\
        attnlab/experiments/assets/61_induction_formation.json

has written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.experiments import grid
from attnlab.experiments.grid import Grid, Scores, Trained
from attnlab.lens.head_kinds import find_heads
from attnlab.lens.head_kinds.kinds import Heads
from attnlab.lens.watch import watch
from attnlab.tasks import Batch, repeats
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.induction import Induction
from attnlab.tasks.repeats import Repeats

LENGTH, TOKENS, UNSEEN = 64, 512, 128
Text = Repeats
MODEL: Mapping[str, Any] = {"dim": 64, "layers": 2, "heads": 2}
EARLY, LATE = slice(8, 16), slice(48, 64)


def documentation() -> Documentation:
    """The text."""
    return repeats.documentation(LENGTH, TOKENS)


@dataclass(frozen=True)
class Arm:
    """A kind of training data, with the options of training, and the steps that are measured."""

    task: Any
    training: Mapping[str, Any]
    steps: tuple[int, ...]
    hidden: int
    vocab: int = TOKENS

    @property
    def reads_text(self) -> bool:
        return isinstance(self.task, Repeats)


ON_TEXT: Mapping[str, Any] = {
    "training": {"batch_size": 32, "learning_rate": 3e-3},
    "steps": (0, 50, 100, 200, 300, 400, 500, 600, 700, 800, 1000),
    "hidden": 64,
}
ARMS: Mapping[str, Arm] = {
    "symbols": Arm(
        Induction(LENGTH),
        {"batch_size": 32, "learning_rate": 2e-3},
        (0, 10, 20, 40, 60, 80, 100, 125, 150, 200, 300),
        hidden=256,
        vocab=64,
    ),
    "text": Arm(Repeats(), **ON_TEXT),
    "text, passages repeated": Arm(Repeats("passages"), **ON_TEXT),
    "text, random tokens repeated": Arm(Repeats("random tokens"), **ON_TEXT),
}
UNITS = {"repeats right": "%", "loss": "nats", "in-context score": "nats"}


@torch.no_grad()
def measured(model: nn.Module, name: str) -> dict[str, float]:
    """What the rows hold, of one model."""
    arm = ARMS[name]
    batch = repeated(arm.vocab)
    logits, heads = look(model, batch)
    asked = batch.targets >= 0
    right = (logits.argmax(-1) == batch.targets)[asked].double().mean().item()
    found = {
        "repeats right": round(100 * right, 2),
        "induction": largest(heads, "induction"),
        "previous": largest(heads, "previous"),
    }
    if not arm.reads_text:
        loss = round(F.cross_entropy(logits.mT, batch.targets).item(), 4)
        both = round(sum(head.shares["previous"] for head in heads if head.layer == 0), 4)
        return {"loss": loss, **found, "previous, both heads": both}
    text = documentation().batch("validation", UNSEEN, seed=0)
    logits, heads = look(model, text)
    losses = F.cross_entropy(logits.mT, text.targets, reduction="none").mean(0)
    return {
        "loss": round(losses.mean().item(), 4),
        "in-context score": round((losses[LATE].mean() - losses[EARLY].mean()).item(), 4),
        **found,
        "induction in text": largest(heads, "induction"),
    }


@lru_cache(maxsize=4)
def repeated(vocab: int) -> Batch:
    """Unseen sequences of random tokens that repeat after 16 to 32 places."""
    return Induction(LENGTH, vocab).batch("validation", UNSEEN, seed=0)


def look(model: nn.Module, batch: Batch) -> tuple[Tensor, Heads]:
    """The logits of a model, and what its heads do."""
    with watch(model) as seen:
        logits = model(batch.inputs)
    return logits, find_heads(seen, batch.inputs)


def largest(heads: Heads, share: str) -> float:
    """The largest such share of all heads."""
    return round(max(head.shares[share] for head in heads), 4)


def _scores(trained: Trained) -> Scores:
    found = measured(trained.model, trained.name)
    return {what: (value, UNITS.get(what, "share")) for what, value in found.items()}


def _arm(arm: Arm) -> grid.Arm:
    sizes = {"vocab": arm.vocab, "hidden": arm.hidden, "max_len": LENGTH}
    return grid.Arm(arm.task, sizes, arm.training, frames=arm.steps)


GRID = Grid(
    arms={name: _arm(arm) for name, arm in ARMS.items()},
    score=_scores,
    model=MODEL,
    figure="{arm}, step {step}, {what}, seed {seed}",
)
SEEDS = GRID.seeds
build, film, rows, batches = GRID.build, GRID.film, GRID.rows, GRID.batches
