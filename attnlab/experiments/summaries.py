"""Summaries: distant tokens attended one by one, as summaries, or not at all, on one task.

Nothing is timed: each row is one training of a tiny model from scratch, the same steps, width
and learning rate for all. The task (`attnlab.tasks.gist`) has two kinds of questions about the same
distant stretch: which symbol is in the majority, and which symbol is at one place. Lesson 13 draws
what

    python -m attnlab.experiments summaries --threads 1 --json \\
        attnlab/experiments/assets/13_summaries.json

has written. ``conv s`` is memory-compressed attention with kernel and stride s after a local layer,
``mean s`` the same with its kernels held at the mean of their window, ``global c`` LongT5's
transient global attention with blocks of c. What is ``long`` is trained for three times the steps.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.fixed.long_t5 import LongT5Attention, LongT5Options
from attnlab.mechanisms.fixed.longformer import LongformerAttention, LongformerOptions
from attnlab.mechanisms.fixed.memory_compressed import (
    LocalAttention,
    MemoryCompressedAttention,
    MemoryCompressedOptions,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.gist import Gist

STEPS, LONGER = 1000, 3
TASK: Mapping[str, int] = {"length": 48, "stretch": 15, "questions": 16}
RADIUS = 8  # two layers of it reach 16 positions; the nearest question is 17 from the stretch
NAMES = (
    *("all", "window", "conv 2", "conv 4", "conv 8", "mean 4"),
    *("global 4", "global 8", "global 16", "conv 4 long", "mean 4 long"),
)


def problem(**changes: int) -> Any:
    """The task, with small sizes."""
    return Gist(**{**TASK, **changes})


def layers(arm: str) -> list[Any]:
    """Two layers, each made by (dim, heads)."""
    kind, size, *_ = [*arm.split(), ""]
    if kind == "all":
        return [FullAttention] * 2
    if kind == "window":
        window = LongformerOptions(window=2 * RADIUS)
        return [partial(LongformerAttention, options=window, form="naive")] * 2
    if kind == "global":
        blocks = LongT5Options(radius=RADIUS, block=int(size))
        return [partial(LongT5Attention, options=blocks, form="naive")] * 2
    local = partial(LocalAttention, block=2 * RADIUS, form="naive")
    return [local, partial(_compressed, size=int(size), learned=kind == "conv")]


def _compressed(dim: int, heads: int, *, size: int, learned: bool) -> MemoryCompressedAttention:
    layer = MemoryCompressedAttention(
        dim, heads, options=MemoryCompressedOptions(kernel=size, stride=size)
    )
    return layer if learned else averaging(layer)


def averaging(layer: MemoryCompressedAttention) -> MemoryCompressedAttention:
    """The layer with its kernels fixed to the mean of their window."""
    for kernel in (layer.key_kernel, layer.value_kernel):
        kernel.requires_grad_(False)
        kernel.copy_(torch.eye(kernel.shape[-1], dtype=kernel.dtype).expand_as(kernel))
        kernel.div_(layer.options.kernel)
    return layer


def _two_sided(build_layer: Any, dim: int, heads: int, causal: bool) -> nn.Module:
    """The answers are not among the inputs, so no causal mask is needed."""
    layer: nn.Module = build_layer(dim, heads)
    return layer


def _model(arm: str, **sizes: Any) -> TinyTransformer:
    return TinyTransformer(**sizes, attention=[partial(_two_sided, each) for each in layers(arm)])


@torch.no_grad()
def score(model: nn.Module, task: Any, texts: int = 512) -> dict[str, float]:
    """Per cent of right answers about the whole stretch, and about its places."""
    batch = task.batch("validation", texts, seed=0)
    right = (model(batch.inputs).argmax(-1) == batch.targets)[:, -task.questions :]
    return {"gist": percent(right[:, 0]), "places": percent(right[:, 1:])}


def _score(trained: Trained) -> Scores:
    return score(trained.model, trained.arm.task)


GRID = Grid(
    arms={
        name: Arm(problem(), {"arm": name}, steps=STEPS * (LONGER if "long" in name else 1))
        for name in NAMES
    },
    score=_score,
    make=_model,
    model={"dim": 32, "hidden": 64, "heads": 4, "layers": 2},
    training={"batch_size": 32, "learning_rate": 5e-3},
)
ARMS, SEEDS = GRID.arms, GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
