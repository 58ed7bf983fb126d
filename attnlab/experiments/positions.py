"""Positions: small causal models trained on short sequences, asked about longer ones.

Nothing is timed: each row is one length of one training of a tiny model from scratch. All schemes
have the same steps, batches, width and learning rate. Three tasks, each trained on lengths that
vary from batch to batch and are 32 at most, and scored at lengths up to 512 on sequences that were
not trained on: the share of right tokens of the answers, and in the note that of answers that are
right as a whole.

    copying    a list of letters is written again; a longer sequence is a longer list
    recall     the key that stands somewhere in the first half of a text is asked for, also at its
               end (`attnlab.tasks.needle`); a longer sequence is a longer text
    addition   of two numbers, written with the least significant digit first; a longer sequence has
               more digits

``none`` is NoPE. ``learned`` has a table of 512 positions, of which training reaches the first 32.
Lesson 40 draws what

    python -m attnlab.experiments positions --threads 1 --json notebooks/assets/40_positions.json

has written.

Kazemnejad, Padhi, Natesan Ramamurthy, Das, Reddy, The Impact of Positional Encoding on Length
Generalization in Transformers, NeurIPS 2023, arXiv:2305.19466, ask the same of larger models.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task
from attnlab.tasks.addition import Addition
from attnlab.tasks.copying import Copying
from attnlab.tasks.needle import Needle
from attnlab.train import fit

SCHEMES = ("none", "t5_bias", "alibi", "rope", "learned")
SEEDS = (0, 1, 2)
LONGEST = 512
MODEL: Mapping[str, Any] = {"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "max_len": LONGEST}
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Plan:
    """How a task is trained and scored: the task of each size, and which sizes."""

    of_size: Callable[[int], Task]
    trained: range
    scored: tuple[int, ...]
    steps: int
    batch_size: int


PLANS: Mapping[str, Plan] = {
    "copying": Plan(
        lambda items: Copying(items, symbols=64), range(3, 17), (16, 32, 64, 128, 256), 2000, 32
    ),
    "recall": Plan(Needle, range(16, 33), (32, 64, 128, 256, 512), 400, 32),
    "addition": Plan(
        lambda digits: Addition(digits, reverse=True), range(2, 5), (4, 5, 6, 10, 20), 2000, 64
    ),
}


@dataclass(frozen=True)
class Varied:
    """The task with one size for each batch, drawn from the sizes that are trained."""

    name: str
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Any:
        plan = PLANS[self.name]
        chosen = np.random.default_rng(seed).integers(len(plan.trained))
        return plan.of_size(plan.trained[int(chosen)]).batch(split, size, seed)


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row for each length of each training, in per cent of right tokens."""
    with thread_count(threads):
        for name, plan in PLANS.items():
            for scheme in SCHEMES:
                for seed in (0,) if quick else SEEDS:
                    model, _ = train(name, scheme, seed, steps=2 if quick else None)
                    for size in plan.scored[:2] if quick else plan.scored:
                        task = plan.of_size(size)
                        tokens, whole = score(model, task)
                        figure = f"{name}, {scheme}, length {task.length}, seed {seed}"
                        yield Row(figure, tokens, "%", note=f"{whole} % of whole answers")


def build(name: str, scheme: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    plan = PLANS[name]
    options = {**plan.of_size(plan.trained[0]).model_options(), **MODEL}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**options, positions=scheme)


def train(
    name: str, scheme: str, seed: int, *, steps: int | None = None
) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training."""
    model, plan = build(name, scheme, seed), PLANS[name]
    history = fit(
        model,
        Varied(name),
        plan.steps if steps is None else steps,
        seed=seed,
        progress=False,
        device="cpu",
        batch_size=plan.batch_size,
        learning_rate=LEARNING_RATE,
    )
    return model.eval(), history


@torch.no_grad()
def score(model: nn.Module, task: Task, sequences: int = 128) -> tuple[float, float]:
    """Per cent of right tokens among the answers, and of answers that are right as a whole."""
    batch = task.batch("validation", sequences, seed=0)
    asked = batch.targets >= 0
    right = model(batch.inputs).argmax(-1) == batch.targets
    return _percent(right[asked]), _percent((right | ~asked).all(1))


def _percent(truths: torch.Tensor) -> float:
    return round(100 * truths.double().mean().item(), 2)
