"""Mixtures: does learning tasks together with restored text help to learn another task?

Nothing is timed, and nothing is tuned: each training is one tiny encoder-decoder (dim 64, 4 heads,
1 + 1 layers) that reads and writes words. Four tasks are told apart by their names: numbers in
words, lists backwards, lists sorted, and sums. Beside them the spans of English sentences are
restored (``text_to_text``), R rows of text for each row of a task: R = 0 is the tasks alone, R = ∞
the text alone. All arms have the same 400 steps of 32 rows, so a larger R has fewer rows of the
tasks. One arm begins untrained, as the baseline.

Then each model is tuned on 512 rows of a fifth task that it has not met, at the same rate and for
the same 100 steps: copying lists, whose letters the tasks know, and agreement, "is the hidden verb
singular or plural?", whose words the text knows. Each is scored as the share of unseen questions
whose whole answer is right; guessing is right for 50 % of agreement. Lesson 65 draws what

    python -m attnlab.experiments mixtures --threads 1 --json \\
        attnlab/experiments/assets/65_mixtures.json

has written; rows that the file holds are not trained again.
"""

import copy
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.modes import mode
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.tasks.mixture import Mixture
from attnlab.tasks.sentences import Sentences
from attnlab.train import evaluate, fit, model_options

RATIOS = (0.0, 1.0, 2.0, 4.0, math.inf)
STEPS, TUNED, LABELLED, UNSEEN = 400, 100, 512, 256
AFTER = (0, 10, 25, 50, 100)
TEXT = Sentences(words=16)
TASKS = (
    task("number_words", digits=3),
    task("reversing", items=5, symbols=8),
    task("sorting", items=5, symbols=8),
    task("addition", digits=2, reverse=True),
)
OTHERS = (
    task("copying", items=5, symbols=8),
    task("agreement", form="words", words=20, most=1),
)
WORDS = Mixture((*TASKS, *OTHERS), text=TEXT, ratio=1.0).words
OBJECTIVE: Any = catalog.build("text_to_text", vocab=len(WORDS), sentinels=8)


def mixture(*tasks: Any, ratio: float = 0.0) -> Mixture:
    """Those tasks in words that all models know, with R rows of text for each of theirs."""
    return Mixture(tasks, text=TEXT if ratio else None, ratio=ratio, vocabulary=WORDS)


@dataclass(frozen=True)
class Labelled:
    """A task of which only so many rows are there to learn from."""

    task: Any
    rows: int = LABELLED
    kind: str = field(default="language_model", init=False)

    @property
    def name(self) -> str:
        return str(self.task.name)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows that are drawn from these; of the other split as many as are wanted."""
        if split != "train":
            return _rows(self.task, split, size, seed)
        generator = torch.Generator().manual_seed(seed)
        own = torch.randint(self.rows, (size,), generator=generator)
        known = _rows(self.task, split, self.rows, 0)
        assert known.padding is not None
        return Batch(known.inputs[own], known.targets[own], known.padding[own])


@lru_cache(maxsize=16)
def _rows(problem: Any, split: str, size: int, seed: int) -> Batch:
    found: Batch = problem.batch(split, size, seed)
    return found


@torch.no_grad()
def whole_answers(model: nn.Module, problem: Any, size: int = UNSEEN) -> Tensor:
    """Whether the whole answer to each of so many unseen questions is right, (b,).

    Each word is asked after the right words before it. Where all of them are the likeliest, the
    model writes this answer itself.
    """
    asked = OBJECTIVE.prepare(_rows(problem, "validation", size, 0))
    with mode(model, training=False):
        answers = OBJECTIVE.answers(model, asked).argmax(-1)
    return ((answers == asked.targets) | (asked.targets == UNSCORED)).all(-1)


def make(**options: Any) -> TinyTransformer:
    """An encoder-decoder that knows the words of all tasks, as many positions as they need."""
    sizes = model_options(mixture(*TASKS), OBJECTIVE) | {"max_len": 48}
    return TinyTransformer(**{**options, **sizes})


def _loop(
    model: nn.Module, problem: Any, steps: int, *, trained: bool = True, **options: Any
) -> Any:
    return by_fit(model, problem, steps, objective=OBJECTIVE, **options) if trained else None


def tuned(model: nn.Module, other: Any, steps: int, seed: int) -> dict[int, Tensor]:
    """Steps of tuning on another task → which of its unseen questions are right."""
    own, problem = copy.deepcopy(model), mixture(other)
    found = {0: whole_answers(own, problem)}

    def look(state: Any) -> None:
        if state.step in AFTER or state.step == steps:
            found[state.step] = whole_answers(own, problem)

    fit(
        own, Labelled(problem), steps, objective=OBJECTIVE, batch_size=32, learning_rate=3e-3,
        seed=seed, callbacks=[look], progress=False, device="cpu",
    )  # fmt: skip
    return found


def _scores(trained: Trained) -> Scores:
    steps = 2 if trained.quick else TUNED
    found: dict[str, Any] = {
        f"{each.name} right": percent(whole_answers(trained.model, mixture(each))) for each in TASKS
    }
    text = evaluate(trained.model, mixture(*TASKS, ratio=math.inf), objective=OBJECTIVE)
    found["loss of restored text"] = (round(text.loss, 3), "nats")
    for other in OTHERS:
        for step, right in tuned(trained.model, other, steps, trained.seed).items():
            found[f"{other.name} right after {step} steps"] = percent(right)
    return found


def _named(ratio: float) -> str:
    return "R = ∞" if math.isinf(ratio) else f"R = {ratio:g}"


GRID = Grid(
    arms={_named(ratio): Arm(mixture(*TASKS, ratio=ratio)) for ratio in RATIOS}
    | {"untrained": Arm(mixture(*TASKS), training={"trained": False})},
    score=_scores,
    steps=STEPS,
    make=make,
    loop=_loop,
    model={"dim": 64, "heads": 4, "layers": 1, "hidden": 128},
    training={"batch_size": 32, "learning_rate": 5e-3},
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
