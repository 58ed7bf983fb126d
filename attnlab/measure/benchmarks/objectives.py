"""Objectives: what preparing a batch costs, alone and beside a step of training.

The shipped sizes are those of the lessons: 32 texts of 64 tokens, a model of 4 layers of width 128.
Larger batches are prepared as well, 64 texts of 512 tokens; spans of T5 are to take under 5 ms.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from attnlab import catalog
from attnlab.measure.report import Row
from attnlab.measure.timing import quartiles, thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED

VOCAB, SHARE = 256, 0.1
SHIPPED, LARGE = (32, 64), (64, 512)
SPANS = 5e-3


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """Processor time: a busy machine changes it less than that of a clock."""
    from attnlab.tasks import Batch

    repeats = 2 if quick else 15
    with thread_count(threads):
        for name, card in catalog.with_role("objective").items():
            own: dict[str, Any] = {"vocab": VOCAB} if "vocab" in card.option_names() else {}
            objective: Any = catalog.build(name, **own)
            times: dict[tuple[int, int], list[float]] = {}
            for b, n in (SHIPPED, LARGE):
                n += -n % card.claims.texts  # type: ignore[union-attr]
                tokens = torch.randint(
                    VOCAB, (b, n + 1), generator=torch.Generator().manual_seed(0)
                )
                real = torch.ones(b, n, dtype=torch.bool)
                tree = None if card.structure is None else card.structure.example(real)
                batch = Batch(tokens[:, :-1], tokens[:, 1:], real, structure=tree)
                times[b, n] = taken(partial(objective.prepare, batch), repeats)
                if b == LARGE[0]:
                    yield _row(f"{name}: prepare {b} x {n}", times[b, n], bound_of(name))
                    continue
                step = taken(stepping(objective, batch), max(2, repeats // 3))
                share = statistics.median(times[b, n]) / statistics.median(step)
                figure = f"{name}: prepare {b} x {n}, beside a step"
                yield Row(
                    figure, share, "of a step", at_most=SHARE if name != "next_token" else None
                )


def bound_of(name: str) -> float | None:
    return SPANS if name == "span_corruption" else None


def _row(figure: str, seconds: list[float], at_most: float | None) -> Row:
    return Row(
        figure, statistics.median(seconds), "s", at_most=at_most, quartiles=quartiles(seconds)
    )


def taken(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of the processor for each of so many calls, after one that is not counted."""
    call()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return found


def stepping(objective: Any, batch: Any) -> Callable[[], None]:
    """Forward and backward of a model that the objective trains, on a prepared batch."""
    kind = objective.models[0]
    vocab = VOCAB + objective.specials
    classes = {"classes": objective.classes or vocab} if "classifier" in kind else {}
    sizes = {"dim": 128, "layers": 4, "heads": 4, "max_len": 4 * batch.inputs.shape[1]}
    options = {**sizes, **classes, **getattr(objective, "needs", {})}
    model = TinyTransformer(vocab, kind=kind, **options)
    objective.fitted(model)
    asked = objective.prepare(batch)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        objective.loss(objective.answers(model, asked), asked).backward()

    assert (asked.targets != UNSCORED).any()
    return step
