"""Positions: small causal models trained on short sequences, asked about longer ones.

Nothing is timed: each row is one length of one training of a tiny model from scratch. All schemes
have the same steps, batches, width and learning rate. Three tasks, each trained on sizes that vary
from batch to batch, and scored at up to sixteen times the longest length of training on sequences
that were not trained on: the share of right tokens of the answers, and in the note that of answers
that are right as a whole. The first length that is scored is the longest of training, so that it
says whether the task was learned at all.

    copying    a list of letters is written again; a longer sequence is a longer list
    lookup     the values of some keys are asked for, which a text has given among random words
               (`attnlab.tasks.lookup`); a longer sequence is a longer text with more pairs
    addition   of two numbers, written with the least significant digit first; a longer sequence has
               more digits

Lookup is associative recall with a key and its value in one token. With two tokens, as in
`attnlab.tasks.recall`, 8 pairs of 128 keys and 16 values, a model with RoPE was right for 25 % of
the values after 250 steps of 64 sequences and for 27 % after 2,500: that task is not in this grid.

``none`` is NoPE. ``learned`` has a table of 513 positions, of which training reaches the first 33.
``sinusoidal`` is added to token vectors times √dim, as in section 3.4 of Vaswani et al.
(arXiv:1706.03762); without the factor the vectors of positions are much longer than the tokens'.
Every sequence begins with a token of its own, which is not counted in the lengths of copying and
addition: a model without positions needs it to count.
Lesson 40 draws what

    python -m attnlab.experiments positions --threads 1 --json \\
        attnlab/experiments/assets/40_positions.json

has written (the rows of ``sinusoidal`` in a run of their own, after the factor √dim had come in).

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
from attnlab.tasks import UNSCORED, Batch, Task
from attnlab.tasks.addition import Addition
from attnlab.tasks.copying import Copying
from attnlab.tasks.lookup import Lookup
from attnlab.train import fit

SCHEMES = ("none", "t5_bias", "alibi", "rope", "learned", "sinusoidal")
SEEDS = (0, 1, 2)
LONGEST = 512
MODEL: Mapping[str, Any] = {
    **{"dim": 64, "layers": 3, "heads": 4, "hidden": 128, "tie": False},
    "max_len": LONGEST + 1,
}
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Begun:
    """The task with one token more, which stands at the beginning of every sequence."""

    task: Task
    kind: str = field(default="language_model", init=False)

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def vocab(self) -> int:
        assert self.task.vocab is not None
        return self.task.vocab + 1

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        found = self.task.batch(split, size, seed)
        inputs = nn.functional.pad(found.inputs, (1, 0), value=self.vocab - 1)
        return Batch(inputs, nn.functional.pad(found.targets, (1, 0), value=UNSCORED))


@dataclass(frozen=True)
class Plan:
    """How a task is trained and scored: the task of each size, and which sizes."""

    of_size: Callable[[int], Begun | Lookup]
    trained: range
    scored: tuple[int, ...]
    steps: int
    batch_size: int


PLANS: Mapping[str, Plan] = {
    "copying": Plan(
        lambda items: Begun(Copying(items)), range(3, 17), (16, 32, 64, 128, 256), 1300, 32
    ),
    "lookup": Plan(Lookup, range(16, 33), (32, 64, 128, 256, 512), 400, 32),
    "addition": Plan(
        lambda digits: Begun(Addition(digits, reverse=True)),
        *(range(2, 4), (3, 7, 14, 29, 58)),
        *(1000, 64),
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TinyTransformer(plan.of_size(plan.trained[0]).vocab, **MODEL, positions=scheme)
    if scheme == "sinusoidal":
        model.embedding.register_forward_hook(lambda _, __, vectors: vectors * model.dim**0.5)
    return model


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
def score(model: nn.Module, task: Begun | Lookup, sequences: int = 128) -> tuple[float, float]:
    """Per cent of right tokens among the answers, and of answers that are right as a whole."""
    batch = task.batch("validation", sequences, seed=0)
    asked = batch.targets >= 0
    right = model(batch.inputs).argmax(-1) == batch.targets
    return _percent(right[asked]), _percent((right | ~asked).all(1))


def _percent(truths: torch.Tensor) -> float:
    return round(100 * truths.double().mean().item(), 2)
