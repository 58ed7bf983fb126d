"""Mixtures: one model for four tasks, and whether restored text helps it.

Nothing is timed: each training is one tiny encoder-decoder (dim 64, 4 heads, 1 + 1 layers) that
reads and writes words. Four tasks are told apart by their names: numbers in words, lists backwards,
lists sorted, and the letters among points. Beside them spans of English sentences are restored
(``text_to_text``), R rows of text for each row of a task. All trainings have 1,200 steps:

    … alone           one of the four tasks, 8 rows a step, in a model of its own
    R = 0             all four, 32 rows a step, so 8 of each
    R = 1             32 rows a step, half of them text: 4 of each task
    R = 2, R = 4      32 rows a step, two or four rows of text for each row of a task
    R = 1 more        64 rows a step, half of them text: 8 of each task, as R = 0 has
    R = ∞             32 rows a step of text alone
    untrained         the baseline

Then each model is tuned on 512 rows of a fifth task that it has not met, for 200 steps of 32:
copying lists, whose letters the tasks know, and agreement, "is the hidden verb singular or
plural?", whose words the text knows. Each is scored as the share of unseen questions whose whole
answer is right; guessing is right for 50 % of agreement.

The rates were chosen with a seed that no score has, from three for the training and two for the
tuning, by R = 0 and R = 1: 3e-3 is the best for both, of the training and of the tuning. All arms
have it; R = 2, 4 and ∞, the untrained model and the models of one task were not tuned by
themselves.

Lesson 65 draws what

    python -m attnlab.experiments mixtures --threads 1 --json \\
        attnlab/experiments/assets/65_mixtures.json

has written; rows that the file holds are not trained again.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.modes import mode
from attnlab.experiments.grid import (
    SEEDS,
    Arm,
    Grid,
    Grids,
    Scores,
    Trained,
    by_fit,
    percent,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch, task
from attnlab.tasks.mixture import Mixture
from attnlab.tasks.sentences import Sentences
from attnlab.tasks.sequences import SEPARATOR
from attnlab.train import evaluate, fit, model_options

STEPS, TUNED, LABELLED, UNSEEN = 1200, 200, 512, 256
AFTER = (0, 25, 50, 100, 200)
TRIED, TRIED_TUNING, TRIED_SEED = (1.5e-3, 3e-3, 6e-3), (1e-3, 3e-3), 3
RATE, TUNING = 3e-3, 3e-3
TEXT = Sentences(words=16)
TASKS = (
    task("number_words", digits=3),
    task("reversing", items=5, symbols=8),
    task("sorting", items=5, symbols=8),
    task("selective_copying", items=4, symbols=8, places=10),
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


@lru_cache(maxsize=32)
def _rows(problem: Any, split: str, size: int, seed: int) -> Batch:
    found: Batch = problem.batch(split, size, seed)
    return found


def words_of(ids: Tensor) -> str:
    """The words of tokens; sentinels are ⟨0⟩, ⟨1⟩, …"""
    beyond = [f"⟨{i}⟩" for i in range(OBJECTIVE.options.sentinels)] + ["end", "start"]
    return " ".join((*WORDS, *beyond)[i] for i in ids.tolist() if i >= 0)


# ---- answers


@torch.no_grad()
def whole_answers(model: nn.Module, batch: Batch) -> Tensor:
    """Tell of each of these questions whether the whole answer is right, (b,).

    Each word is asked after the right words before it. Where all of them are the likeliest, the
    model writes this answer itself.
    """
    asked = OBJECTIVE.prepare(batch, torch.Generator())
    with mode(model, training=False):
        answers = OBJECTIVE.answers(model, asked).argmax(-1)
    return ((answers == asked.targets) | (asked.targets == UNSCORED)).all(-1)


def unseen(problem: Any, seed: int = 0, size: int = UNSEEN) -> Batch:
    """Questions that no training has."""
    return _rows(mixture(problem), "validation", size, seed)


def asked(name: str, lists: Tensor, answers: Tensor) -> Batch:
    """Questions of lists (b, n) of words, under the name of a task, and their answers (b, m)."""
    b, bar = len(lists), WORDS.index(SEPARATOR)
    heads, bars = (torch.full((b, 1), word) for word in (WORDS.index(f"{name}:"), bar))
    text = torch.cat([heads, lists, bars, answers], dim=1)
    targets = text[:, 1:].clone()
    targets[:, : lists.shape[1] + 1] = UNSCORED
    return Batch(text[:, :-1], targets, torch.ones_like(targets, dtype=torch.bool))


def of_words(words: str, seed: int = 0, size: int = UNSEEN, items: int = 5) -> Tensor:
    """Random lists (b, n) of such words."""
    generator = torch.Generator().manual_seed(seed)
    known = torch.tensor([WORDS.index(word) for word in words])
    return known[torch.randint(len(known), (size, items), generator=generator)]


def renamed(problem: Any, name: str) -> Batch:
    """The unseen questions of a task under the name of another, and the answers of the task."""
    given = unseen(problem)
    inputs = given.inputs.clone()
    inputs[:, 0] = WORDS.index(f"{name}:")
    return Batch(inputs, given.targets, given.padding)


def wrong_names() -> dict[str, Batch]:
    """Questions under a name that has never stood before them, and the answers that are counted."""
    digits, numbers = of_words("0123456789"), TASKS[0]
    return {
        "digits, backwards": asked("reversing", digits, digits.flip(1)),
        "digits, sorted": asked("sorting", digits, digits.sort(1).values),
        "number under reversing, in words": renamed(numbers, "reversing"),
        "list under number_words, backwards": renamed(TASKS[1], "number_words"),
    }


# ---- trainings


def make(**options: Any) -> TinyTransformer:
    """An encoder-decoder that knows the words of all tasks, as many positions as they need."""
    sizes = model_options(mixture(*TASKS), OBJECTIVE) | {"max_len": 48}
    return TinyTransformer(**{**options, **sizes})


def _loop(
    model: nn.Module, problem: Any, steps: int, *, trained: bool = True, **options: Any
) -> Any:
    return by_fit(model, problem, steps, objective=OBJECTIVE, **options) if trained else None


def tuned(
    model: nn.Module, other: Any, steps: int, seed: int, rate: float, asked: int = 0
) -> dict[int, Tensor]:
    """Steps of tuning on another task → which of its unseen questions are right."""
    own, problem = copy.deepcopy(model), mixture(other)
    found = {0: whole_answers(own, unseen(other, asked))}

    def look(state: Any) -> None:
        if state.step in AFTER or state.step == steps:
            found[state.step] = whole_answers(own, unseen(other, asked))

    fit(
        own, Labelled(problem), steps, objective=OBJECTIVE, batch_size=32, learning_rate=rate,
        seed=seed, callbacks=[look], progress=False, device="cpu",
    )  # fmt: skip
    return found


# ---- arms


def _named(ratio: float) -> str:
    return "R = ∞" if math.isinf(ratio) else f"R = {ratio:g}"


def _mixed(ratio: float, rows: int = 32, **training: Any) -> Arm:
    return Arm(mixture(*TASKS, ratio=ratio), training={"batch_size": rows, **training})


MIXED = {_named(ratio): _mixed(ratio) for ratio in (0.0, 1.0, 2.0, 4.0, math.inf)}
MORE = {"R = 1 more": _mixed(1.0, 64), "untrained": _mixed(0.0, trained=False)}


ALONE = {f"{each.name} alone": Arm(mixture(each), training={"batch_size": 8}) for each in TASKS}


def _at(arm: Arm, rate: float) -> Arm:
    return replace(arm, training={**arm.training, "learning_rate": rate})


def _right(trained: Trained, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{each.name} right": percent(whole_answers(trained.model, unseen(each, seed)))
        for each in TASKS
    }
    text = evaluate(trained.model, mixture(*TASKS, ratio=math.inf), objective=OBJECTIVE)
    return {**found, "loss of restored text": (round(text.loss, 3), "nats")}


def _choosing(trained: Trained) -> Scores:
    """What the rates are chosen by, on unseen questions that are not those of the scores."""
    steps, found = 2 if trained.quick else TUNED, _right(trained, seed=1)
    for other in OTHERS:
        for rate in TRIED_TUNING:
            after = tuned(trained.model, other, steps, trained.seed, rate, asked=1)
            found[f"{other.name} right after tuning at {rate:g}"] = percent(after[steps])
    return found


def _own(trained: Trained) -> Scores:
    """The task that a model has to itself."""
    (own,) = (each for each in TASKS if trained.name == f"{each.name} alone")
    return {f"{own.name} right": percent(whole_answers(trained.model, unseen(own)))}


def _scores(trained: Trained) -> Scores:
    steps, found = 2 if trained.quick else TUNED, _right(trained, seed=0)
    for what, batch in wrong_names().items():
        found[f"{what} right"] = percent(whole_answers(trained.model, batch))
    for other in OTHERS:
        for step, right in tuned(trained.model, other, steps, trained.seed, TUNING).items():
            found[f"{other.name} right, step {step}"] = percent(right)
    return found


def _grid(
    arms: Mapping[str, Arm], score: Any, seeds: Sequence[int] = SEEDS, last: str = "seed {seed}"
) -> Grid:
    sizes = {"dim": 64, "heads": 4, "layers": 1, "hidden": 128}
    return Grid(
        arms=arms, score=score, steps=STEPS, make=make, loop=_loop, model=sizes, seeds=seeds,
        figure=f"{{arm}}; {{what}}; {last}",
    )  # fmt: skip


TOGETHER = _grid({name: _at(arm, RATE) for name, arm in {**MIXED, **MORE}.items()}, _scores)
CHOOSING = _grid(
    {
        f"{name}, rate {rate:g}": _at(arm, rate)
        for name, arm in MIXED.items()
        if name in ("R = 0", "R = 1")
        for rate in TRIED
    },
    _choosing,
    (TRIED_SEED,),
    "to choose",
)
APART = _grid({name: _at(arm, RATE) for name, arm in ALONE.items()}, _own)
GRID = Grids((TOGETHER, CHOOSING, APART))
build, train = TOGETHER.build, TOGETHER.train
rows, batches = GRID.rows, GRID.batches
