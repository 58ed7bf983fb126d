"""Spans read apart: what an encoder of spans brings to the text that a language model writes.

Nothing is timed. Each training is a language model (dim 48, 2 layers, 4 heads) on windows of 96
bytes of the Python documentation: 400 updates of 16 windows at 3e-3, which is not tuned. Of each
window up to four spans are drawn, and only bytes outside of spans are asked
(``attnlab.objectives.semi_causal``): the same windows, spans and asked bytes for all arms of a
seed, so that all have as many updates and predict as many bytes. What differs is who reads a span:

    causal       the language model, from the left, like all other text
    both sides   the language model itself, each span from both sides (``SemiCausal``)
    encoder      an encoder of 2 more layers, from both sides: MetaLM

A score is in bits per byte of 512 windows of unseen topics with spans of their own: of all asked
bytes, of the first 8 after a span, of those further on, and of those before any span (``part_of``);
and of all bytes of windows without spans. "Swapped" are scores of the first 8 whose spans hold the
bytes of another window: what that costs a trained model tells how much of its spans it uses.

Neither brings anything to this text. In the mean over three seeds the first 8 bytes after a span
cost MetaLM 0.124 ± 0.010 bits each more than the causal model, and all other bytes about the same;
reading spans from both sides in one stack changes nothing (0.006 ± 0.018). Both use their spans,
MetaLM less: swapped ones cost it 0.27 bits a byte, the causal model 0.53. Why was not measured.

What this does not decide: 400 updates at one rate, which leave all arms at 3.2 bits a byte, are a
beginning; the encoder begins untrained, where the paper's is pretrained; and its layers come on
top, so that the arms have unlike numbers of weights. Not trained were a causal model of four
layers, an encoder that reads from the left or is not told the order of a span, a model whose spans
nobody reads, and any arm on swapped spans. So what part of the encoder does what is open.

    python -m attnlab.experiments spans_read_apart --threads 1 --json \\
        attnlab/experiments/assets/91_spans_read_apart.json
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED, summed_loss
from attnlab.objectives.next_token import NextToken
from attnlab.objectives.semi_causal import SemiCausal
from attnlab.systems.metalm import KeepsSpans, MetaLM, ReadApart
from attnlab.tasks.documentation import Documentation

LENGTH, NEAR, UNSEEN = 96, 8, 512
SIZES: dict[str, Any] = {"dim": 48, "layers": 2, "heads": 4, "max_len": LENGTH}
PLACES = ("after a span", "further on", "before any span")


@cache
def text() -> Documentation:
    """The windows that are learned from."""
    return Documentation("bytes", LENGTH)


# ---- who reads the spans


OBJECTIVES: Mapping[str, type[SemiCausal]] = {
    "causal": KeepsSpans,  # spans, too, are read from the left
    "both sides": SemiCausal,
    "encoder": ReadApart,
}


def make(*, encoder: bool = False, **options: Any) -> nn.Module:
    """A language model, perhaps with an encoder for spans."""
    language_model = TinyTransformer(**{**SIZES, **options})
    if not encoder:
        return language_model
    given = {**SIZES, **options, "kind": "token_classifier", "classes": 2}
    return MetaLM(TinyTransformer(**given), language_model)


def loop(model: nn.Module, task: Any, steps: int, *, objective: str, **options: Any) -> Any:
    """As `fit`, with the objective of that arm."""
    return by_fit(model, task, steps, objective=OBJECTIVES[objective](), **options)


# ---- scores


@cache
def unseen(objective: str, *, swapped: bool = False) -> Any:
    """Windows of unseen topics, whose spans are the same for all arms, as an arm reads them; or
    ``swapped``, whose bytes in spans are those of the window before, at the same places."""
    batch: Any = text().batch("validation", UNSEEN, seed=0)
    if swapped:
        spans = unseen("causal").kept["spans"]
        inputs = torch.where(spans > 0, batch.inputs.roll(1, 0), batch.inputs)
        batch = replace(batch, inputs=inputs)
    return OBJECTIVES[objective]().prepare(batch, torch.Generator().manual_seed(0))


def part_of(spans: Int[Tensor, "b n"]) -> dict[str, Bool[Tensor, "b n"]]:
    """Where the target of each place stands, by name: among the first ``NEAR`` bytes after a span,
    further on than these, or before any span."""
    n = spans.shape[1]
    place = torch.arange(n).expand_as(spans)
    last = place.masked_fill(spans == 0, -n).cummax(-1).values  # the last byte in a span so far
    behind = place - last
    return {
        "after a span": behind < NEAR,
        "further on": (behind >= NEAR) & (last >= 0),
        "before any span": last < 0,
    }


@torch.no_grad()
def bits(objective: str, model: nn.Module, asked: Any, where: Tensor | None = None) -> float:
    """Bits per asked byte of those windows, or of the targets at some of the places alone."""
    answers = OBJECTIVES.get(objective, NextToken)().answers(model, asked)
    targets = asked.targets if where is None else asked.targets.masked_fill(~where, UNSCORED)
    scored = int((targets != UNSCORED).sum())
    return round(float(summed_loss(answers, targets)) / scored / math.log(2), 4)


@torch.no_grad()
def score(trained: Trained) -> Scores:
    """Bits per byte by place, with spans of other windows, and without spans."""
    arm: Any = trained.arm
    objective, model = arm.training["objective"], trained.model
    parts = part_of(unseen("causal").kept["spans"])
    near, strange = parts["after a span"], unseen(objective, swapped=True)
    plain = text().batch("validation", UNSEEN, seed=0)
    return {
        "all": bits(objective, model, unseen(objective)),
        **{name: bits(objective, model, unseen(objective), parts[name]) for name in PLACES},
        "after a span, swapped": bits(objective, model, strange, near),
        "without spans": bits("next_token", model, plain),
    }


READERS: dict[str, dict[str, Any]] = {
    "causal": {},
    "both sides": {},
    "encoder": {"encoder": True},
}
GRID = Grid(
    arms={arm: Arm(text, options, {"objective": arm}) for arm, options in READERS.items()},
    score=score,
    steps=400,
    training={"batch_size": 16, "learning_rate": 3e-3},
    make=make,
    loop=loop,
    unit="bits",
)
rows, batches = GRID.rows, GRID.batches
