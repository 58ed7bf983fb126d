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
``open_forgetting`` is ``forgetting`` with gates that begin near 1; those of the usual layer begin
near 1/2, as in the released code, and a key ten tokens back counts a thousandth then.
Every sequence begins with a token of its own, which is not counted in the lengths of copying and
addition: a model without positions needs it to count.
Lesson 40 draws what

    python -m attnlab.experiments positions --threads 1 --json \\
        attnlab/experiments/assets/40_positions.json

has written (the rows of ``sinusoidal`` in a run of their own, after the factor √dim had come in,
and those of schemes by contents in later ones).

Kazemnejad, Padhi, Natesan Ramamurthy, Das, Reddy, The Impact of Positional Encoding on Length
Generalization in Transformers, NeurIPS 2023, arXiv:2305.19466, ask the same of larger models.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.mechanisms.dense.forgetting import ForgettingHeads
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.addition import Addition
from attnlab.tasks.begun import Begun
from attnlab.tasks.copying import Copying
from attnlab.tasks.lookup import Lookup
from attnlab.tasks.varied import Varied

SCHEMES = (
    "none", "t5_bias", "alibi", "rope", "learned", "sinusoidal",
    "forgetting", "open_forgetting", "cope", "path",
)  # fmt: skip
"""Where tokens stand, or, the last four, what tells it by what they hold."""
ATTENTIONS = {"forgetting": "forgetting", "open_forgetting": "forgetting", "path": "path"}
"""Schemes that are an attention of their own, in the place of full attention."""
OPEN = 5.0
"""The bias of a forget gate that begins near 1: σ(5) is 0.993."""
LONGEST = 512


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


def problem(name: str) -> Varied:
    """The task that models are trained on."""
    return Varied(name, PLANS[name].of_size, PLANS[name].trained)


def _model(positions: str, **sizes: Any) -> TinyTransformer:
    if positions in ATTENTIONS:
        model = TinyTransformer(positions="none", attention=ATTENTIONS[positions], **sizes)
    else:
        model = TinyTransformer(positions=positions, **sizes)
    if positions == "sinusoidal":
        model.embedding.register_forward_hook(lambda _, __, vectors: vectors * model.dim**0.5)
    if positions == "open_forgetting":
        for each in model.modules():
            if isinstance(each, ForgettingHeads):
                nn.init.constant_(each.gate.bias, OPEN)
    return model


@torch.no_grad()
def score(model: nn.Module, task: Begun | Lookup, sequences: int = 128) -> tuple[float, float]:
    """Per cent of right tokens among the answers, and of answers that are right as a whole."""
    batch = task.batch("validation", sequences, seed=0)
    asked = batch.targets >= 0
    right = model(batch.inputs).argmax(-1) == batch.targets
    return percent(right[asked]), percent((right | ~asked).all(1))


def _scores(trained: Trained) -> Scores:
    plan, found = PLANS[trained.arm.task.name], {}
    for size in plan.scored[: 2 if trained.quick else None]:
        task = plan.of_size(size)
        tokens, whole = score(trained.model, task)
        found[f"length {task.length}"] = (tokens, "%", f"{whole} % of whole answers")
    return found


def _arm(name: str, scheme: str) -> Arm:
    plan = PLANS[name]
    model = {"vocab": plan.of_size(plan.trained[0]).vocab, "positions": scheme}
    return Arm(problem(name), model, {"batch_size": plan.batch_size}, plan.steps)


GRID = Grid(
    arms={f"{name}, {scheme}": _arm(name, scheme) for name in PLANS for scheme in SCHEMES},
    score=_scores,
    make=_model,
    model={
        **{"dim": 64, "layers": 3, "heads": 4, "hidden": 128, "tie": False},
        "max_len": LONGEST + 1,
    },
    training={"learning_rate": 3e-3},
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
