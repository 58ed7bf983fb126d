"""Length split: SCAN's long commands, and what decides whether a small model carries them out.

Every model is an encoder-decoder of 2 + 2 layers of width 64, four heads, pre-norm, the output
matrix apart from the embedding. It is trained on seven eighths of SCAN's commands of at most 26
actions and is asked for the others of those lengths (``known lengths``) and for longer ones, of 27
to 48 actions (``longer``). All arms have the same 600 updates of 16 commands:

    none        sinusoids are added to token vectors of N(0, 1), as they are
    up          token vectors of Xavier's variance are multiplied by √d, then sinusoids are added
    down        token vectors of Kaiming's variance; sinusoids are divided by √d
    relative    Transformer-XL's terms for distances in both stacks; nothing is added

The scores are the shares of whole answers that are right, in per cent: as the model writes them;
and with the end mark forced (``end forced``), where the mark is never chosen before the last action
and always after it. A greedy answer is right exactly if every next token is the likeliest after a
right beginning, so that one pass with the right beginnings tells it. ``ends early`` is the share of
answers whose first mistake is the end mark.

Lesson 73 draws what

    python -m attnlab.experiments length_split --threads 1 --json \\
        attnlab/experiments/assets/73_length_split.json

has written; rows that the file holds are not trained again.

Csordás, Irie, Schmidhuber. The Devil is in the Detail: Simple Tricks Improve Systematic
Generalization of Transformers. EMNLP 2021, arXiv:2108.12284. Newman, Hewitt, Liang, Manning. The
EOS Decision and Length Extrapolation. BlackboxNLP 2020, arXiv:2010.07174, force the end mark.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.core.suggest import check_choice
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.scan import END, Scan, actions

CUTOFF, STEPS, ASKED = 26, 600, 512
SCALES = ("none", "up", "down")
ARMS = (*SCALES, "relative")
TASK = Scan(split_by="both", cutoff=CUTOFF)


def scaled(model: TinyTransformer, scale: str) -> TinyTransformer:
    """The model itself, its token vectors drawn anew and scaled beside its sinusoids."""
    check_choice("scale", scale, SCALES)
    vectors, d = model.embedding.weight, model.dim
    if scale == "up":
        nn.init.xavier_uniform_(vectors)
        model.embedding.register_forward_hook(lambda _, __, x: x * d**0.5)
    elif scale == "down":
        nn.init.kaiming_normal_(vectors)
        model.positions.register_forward_hook(  # type: ignore[union-attr]
            lambda _, given, x: given[0] + (x - given[0]) * d**-0.5
        )
    else:
        nn.init.normal_(vectors)
    return model


@torch.no_grad()
def ratio(model: TinyTransformer) -> float:
    """The root mean square of what tokens add to the first layer, over that of the sinusoids."""
    tokens = torch.arange(TASK.vocab)[None]
    x = model.embedding(tokens)
    placed = model.positions(x, tokens)  # type: ignore[misc]
    return float(x.square().mean().sqrt() / (placed - x).square().mean().sqrt())


def _model(scale: str, **sizes: Any) -> TinyTransformer:
    if scale == "relative":
        return TinyTransformer(attention="relative", positions="none", **sizes)
    return scaled(TinyTransformer(positions="sinusoidal", **sizes), scale)


class Answers(NamedTuple):
    """For each command: is the answer right, is it with the end mark forced, and does it end too
    early, all before any other mistake? Each is a tensor of booleans (b,)."""

    right: torch.Tensor
    forced: torch.Tensor
    early: torch.Tensor


@torch.no_grad()
def answers(model: nn.Module, batch: Batch) -> Answers:
    """What a model answers to the commands of a batch, greedily."""
    logits = model(
        batch.inputs, batch.padding, source=batch.source, source_padding=batch.source_padding
    )
    said, wanted = logits.argmax(-1), batch.targets
    asked = wanted != UNSCORED
    right = (said == wanted) | ~asked
    without = logits.clone()
    without[..., END] = -torch.inf
    forced = (without.argmax(-1) == wanted) | ~asked | (wanted == END)
    before = right.long().cumprod(1).roll(1, 1)
    before[:, 0] = 1  # no mistake so far
    early = (before.bool() & asked & (said == END) & (wanted != END)).any(1)
    return Answers(right.all(1), forced.all(1), early)


def shares(model: nn.Module, batch: Batch) -> dict[str, float]:
    """What is scored of the answers to a batch, in per cent."""
    said = answers(model, batch)
    return {
        "right": percent(said.right),
        "right, end forced": percent(said.forced),
        "ends early": percent(said.early),
    }


@cache
def questions(lengths: str, size: int = ASKED) -> Batch:
    """Commands that were not trained on, of ``"known lengths"`` or ``"longer"``."""
    check_choice("lengths", lengths, ("known lengths", "longer"))
    if lengths == "longer":
        found: Sequence[str] = TASK.commands("validation")
    else:
        found = [each for each in Scan().commands("validation") if len(actions(each)) <= CUTOFF]
    step = max(1, len(found) // size)
    return TASK.of(found[::step][:size])


def _scores(trained: Trained) -> Scores:
    found: dict[str, float] = {}
    for lengths in ("known lengths", "longer"):
        batch = questions(lengths, 16 if trained.quick else ASKED)
        for name, share in shares(trained.model, batch).items():
            found[f"{lengths}, {name}"] = share
    return found


GRID = Grid(
    arms={name: Arm(TASK, {"scale": name}) for name in ARMS},
    score=_scores,
    steps=STEPS,
    make=_model,
    model={"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "tie": False},
    training={"batch_size": 16, "learning_rate": 3e-3},
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
