"""Objectives: what preparing a batch costs, alone and beside a step of training.

The shipped sizes are those of the lessons: 32 texts of 64 tokens, a model of 4 layers of width 128.
Larger batches are prepared as well, 64 texts of 512 tokens; spans of T5 are to take under 5 ms.
"""

import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch

from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.claims import Objective as Claims
from attnlab.measure.report import Row
from attnlab.measure.timing import quartiles, thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED

VOCAB, SHARE = 256, 0.1
SHIPPED, LARGE = (32, 64), (64, 512)
QUICK = (4, 32), (8, 64)
SPANS = 5e-3


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Processor time: a busy machine changes it less than that of a clock."""
    with thread_count(threads):
        for name, card in catalog.with_role("objective").items():
            written = "teacher" in inspect.signature(card.build).parameters
            if name == card.name and not written:  # a teacher's targets take as long as a teacher
                yield from _rows_of(card, quick)


def _rows_of(card: Card, quick: bool) -> Iterator[Row]:
    name, claims = card.name, cast(Claims, card.claims)
    own: dict[str, Any] = {"vocab": VOCAB} if "vocab" in card.option_names() else {}
    objective: Any = catalog.build(name, **own)
    repeats, layers = (1, 1) if quick else (15, 4)
    shipped, large = QUICK if quick else (SHIPPED, LARGE)
    for b, n in (shipped, large):
        n += -n % claims.texts
        batch = _batch(b, n, with_source=claims.source, structure=card.structure)
        times = taken(partial(objective.prepare, batch), repeats)
        figure, median = f"{name}: prepare {b} x {n}", statistics.median(times)
        if b == large[0]:
            most = SPANS if name == "span_corruption" else None
            yield Row(figure, median, "s", at_most=most, quartiles=quartiles(times))
        else:
            step = taken(stepping(objective, batch, layers), max(1, repeats // 3))
            most = None if name == "next_token" else SHARE
            share = median / statistics.median(step)
            yield Row(f"{figure}, beside a step", share, "of a step", at_most=most)


def _batch(b: int, n: int, *, with_source: bool, structure: Any) -> Any:
    """Random texts, perhaps as examples of trees; or targets, with other random texts as their
    sources."""
    from attnlab.tasks import Batch

    tokens = torch.randint(VOCAB, (b, 2 * n + 1), generator=torch.Generator().manual_seed(0))
    inputs, targets, source = tokens[:, :n], tokens[:, 1 : n + 1], tokens[:, n + 1 :]
    real = torch.ones(b, n, dtype=torch.bool)
    connected = None if structure is None else structure.example(real)
    if with_source:
        return Batch(inputs, targets, real, source, real)
    return Batch(inputs, targets, real, structure=connected)


def taken(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of the processor for each of so many calls, after one that is not counted."""
    call()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return found


def stepping(objective: Any, batch: Any, layers: int) -> Callable[[], None]:
    """Forward and backward of a model that the objective trains, on a prepared batch."""
    kind = objective.models[0]
    vocab = VOCAB + objective.specials
    classes = {"classes": objective.classes or vocab} if "classifier" in kind else {}
    sizes = {"dim": 128, "layers": layers, "heads": 4, "max_len": 4 * batch.inputs.shape[1]}
    options = {**sizes, **classes, **getattr(objective, "needs", {})}
    model = TinyTransformer(vocab, kind=kind, **options)
    objective.fitted(model)
    asked = objective.prepare(batch)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        objective.loss(objective.answers(model, asked), asked).backward()

    assert (asked.targets != UNSCORED).any()
    return step
