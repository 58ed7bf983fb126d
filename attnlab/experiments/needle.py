"""Needle: four sparse patterns of equal cost, on a task that measures only the receptive field.

Nothing is timed: each row is one training of a tiny model from scratch, the same steps, width
and learning rate for all, and about eight keys for each position in every pattern. It is scored on
texts that it has not seen, apart for the questions that the pattern connects with the key (over all
layers) and for those that it does not: the latter can only be guessed. Positions have no embedding,
so that what was trained may be asked about longer texts. The window is trained once more for three
times as long: does patience replace a path? Lesson 11 draws what

    python -m attnlab.experiments needle --threads 1 --json \\
        attnlab/experiments/assets/11_needle.json

has written.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.patterns import Pattern, receptive_field
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.needle import Needle
from attnlab.train import fit

LAYERS, STEPS, SEEDS = 3, 100, (0, 1, 2)
TASK: Mapping[str, int] = {"length": 64, "keys": 8, "words": 8, "every": 4}
MODEL: Mapping[str, Any] = {"dim": 64, "hidden": 64, "heads": 2, "positions": "none"}
TRAINING: Mapping[str, Any] = {"batch_size": 64, "learning_rate": 2e-3}
_BLOCKS: Mapping[str, int] = {"block": 2, "window": 3, "random": 1, "global_blocks": 0}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "window": ("longformer", {"window": 8}),
    "window + global": ("longformer", {"window": 6, "global_positions": (0,)}),
    "window + random": ("bigbird", _BLOCKS),
    "BigBird": ("bigbird", {**_BLOCKS, "window": 1, "global_blocks": 2}),
}
RUNS: Mapping[str, tuple[str, int]] = {
    **{arm: (arm, STEPS) for arm in ARMS},
    f"window for {3 * STEPS} steps": ("window", 3 * STEPS),
}


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Four rows per training, in per cent."""
    with thread_count(threads):
        for name, (arm, steps) in RUNS.items():
            for seed in (0,) if quick else SEEDS:
                model, _ = train(arm, seed, steps=2 if quick else steps)
                for what, share in score(model, problem()).items():
                    yield Row(f"{name}, {what}, seed {seed}", share, "%")


def problem(**changes: int) -> Any:
    """The task, with small sizes."""
    return Needle(**{**TASK, **changes})


def build(arm: str, seed: int, *, form: str = "naive") -> TinyTransformer:
    """The untrained model: every layer draws random blocks of its own."""
    mechanism, options = ARMS[arm]
    layers = [
        {**options, "form": form, **({"seed": layer} if "random" in options else {})}
        for layer in range(LAYERS)
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(
            **{**problem().model_options(), **MODEL, "max_len": 8192},
            layers=LAYERS,
            attention=[partial(_two_sided, mechanism, layer) for layer in layers],
        )


def _two_sided(
    mechanism: str, options: Mapping[str, Any], dim: int, heads: int, causal: bool
) -> nn.Module:
    """No token after a question gives its answer away, so no causal mask is needed."""
    return catalog.build(mechanism, dim=dim, heads=heads, **options)


def train(arm: str, seed: int, *, steps: int = STEPS, **more: Any) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training."""
    model = build(arm, seed)
    history = fit(
        model, problem(), steps, seed=seed, progress=False, device="cpu", **TRAINING, **more
    )
    return model, history


def patterns_of(model: nn.Module) -> list[Pattern]:
    """The pattern of each layer."""
    return [block.attention.pattern for block in model.decoder.blocks]  # type: ignore[union-attr]


@torch.no_grad()
def score(model: nn.Module, task: Any, texts: int = 512) -> dict[str, float]:
    """Per cent of right answers: over all, where the key is connected, where not; and how many are.

    A kind of question that does not occur is left out.
    """
    batch = task.batch("validation", texts, seed=0)
    right, asked = model(batch.inputs).argmax(-1) == batch.targets, batch.targets != -100
    linked = connected(patterns_of(model), batch.inputs, task)
    kinds = {"right": asked, "connected": asked & linked, "not connected": asked & ~linked}
    found = {name: _percent(right[where]) for name, where in kinds.items() if where.any()}
    return {**found, "share connected": _percent(linked[asked])}


def connected(patterns: list[Pattern], inputs: Tensor, task: Any) -> Tensor:
    """(b, n): can the key of this text influence this position?"""
    place = (inputs < task.keys).int().argmax(1)
    return receptive_field(patterns, task.length, len(patterns)).after[-1].T[place]


def _percent(truths: Tensor) -> float:
    return round(100 * truths.double().mean().item(), 2)
