"""Dialects: what models lose that write all words of a sentence at once.

Every model has one encoder layer and one decoder layer of width 32, and two heads. The task is
``two_dialects``: six words are translated into one of two dialects, by a coin. These are the arms;
they have 400 updates and a learning rate of 0.01 where no other numbers stand in brackets:

    left to right   an ordinary decoder
    plain           nat: six masks are answered at once
    one dialect     nat, distilled from a table: a teacher that writes every sentence in dialect A
    distilled       nat, distilled from the model *left to right* of the same seed (1,500; 0.003)
    cmlm            a number of masks, from one to six; asked in 1, 2, 3 and 6 passes (1,500; 0.003)
    ctc             words and blanks at twelve places (1,500; 0.003)
    by the source   plain, where the first word of the source decides the dialect: the control; if a
                    plain model mixed dialects here, too, the coin would not be the reason (1,500)
    by the word     plain, where a coin is tossed for each word: C is 0 here as well

The scores of an arm are the shares of its likeliest sentences, and of sentences drawn from its
probabilities, that are translations; the loss of a word by its own objective; and the distance in
nats between its probabilities of sentences and those of the data. This distance is exact, since a
source has few translations, and is at least C(Y | X) for a model that writes all words at once.

Five arms are also trained with the other two of the learning rates 0.01, 0.003 and 0.001 (of these
trainings only the loss of a word is kept). Lesson 66 draws what

    python -m attnlab.experiments dialects --json attnlab/experiments/assets/66_dialects.json

has written with one thread; rows that the file holds are not trained again.
"""

import functools
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core.modes import mode
from attnlab.experiments.grid import QUICK, Arm, Grid, Grids, Scores, Trained, by_fit, percent
from attnlab.models.generate import generate
from attnlab.models.parallel_decoding import ctc_decode, mask_predict
from attnlab.objectives.nat import conditional_total_correlation
from attnlab.tasks import Batch
from attnlab.tasks.two_dialects import TwoDialects
from attnlab.train import evaluate

WORDS, UPDATES, LONGER, UNSEEN = 6, 400, 1500, 512
PASSES = (1, 2, 3, 6)
RATES = (1e-2, 3e-3, 1e-3)


def objective(name: str, task: TwoDialects, seed: int = 0, teaching: int = UPDATES) -> Any:
    """The objective of that name for this task.

    ``one dialect`` and ``distilled`` are the objective ``distilled``, then ``nat``: the teacher of
    the first is a table, that of the second the model *left to right* of this seed, trained anew
    for so many updates.
    """
    if name in ("one dialect", "distilled"):
        teacher = OneDialect(task) if name == "one dialect" else trained_teacher(seed, teaching)
        then = catalog.build("nat", vocab=task.vocab)
        return catalog.build("distilled", teacher=teacher, then=then)
    own: dict[str, Any] = {} if name == "next_token" else {"vocab": task.vocab}
    return catalog.build(name, **own)


@functools.cache
def trained_teacher(seed: int, steps: int = UPDATES) -> nn.Module:
    """The model *left to right* of this seed; it is trained in the first call only."""
    teacher: nn.Module = ARMS.train("left to right", seed, steps=steps)[0]
    return teacher.requires_grad_(False)


class OneDialect(nn.Module):
    """A teacher that writes every sentence in dialect A, by a table."""

    def __init__(self, task: TwoDialects) -> None:
        super().__init__()
        names = torch.eye(task.vocab)[task.symbols : 2 * task.symbols]
        self.names = nn.Embedding.from_pretrained(names)

    def forward(self, tokens: Tensor, *, source: Tensor, source_padding: Any = None) -> Tensor:
        """The words so far (b, t) → scores of the word after each, (b, t, vocab)."""
        named: Tensor = self.names(source[:, : tokens.shape[1]])
        return named


def _loop(model: Any, task: Any, steps: int, *, seed: int, **options: Any) -> Any:
    asked = objective(options.pop("objective"), task, seed, min(steps, UPDATES))
    return by_fit(model, task, steps, objective=asked, seed=seed, **options)


@torch.no_grad()
def sentences(
    model: Any, name: str, task: TwoDialects, source: Tensor, *, passes: int = 1,
    temperature: float = 0.0, generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """What a model that was trained by that objective writes (b, n).

    A model of ``ctc`` can write more or fewer than n words; such a row is all -1.
    """
    given: dict[str, Any] = {"temperature": temperature, "generator": generator}
    b, n = source.shape
    if name == "next_token":
        start = torch.full((b, 1), task.start)
        return generate(model, start, n, source=source, **given)[:, 1:]
    if name == "ctc":
        written = ctc_decode(model, source, **given)
        whole = written.real.sum(-1, keepdim=True) == n
        return F.pad(written.tokens, (0, n))[:, :n].masked_fill(~whole, -1)
    return mask_predict(model, source, torch.full((b,), n), passes=passes, **given).tokens


@torch.no_grad()
def nats_lost(model: Any, name: str, task: TwoDialects, source: Tensor) -> float:
    """KL(data | model) in nats a sentence, in the mean over the sources: the cross-entropy of all
    translations less their entropy."""
    every, p = task.translations(source)
    k = every.shape[1]
    flat, wide = every.flatten(0, 1), source.repeat_interleave(k, 0)
    before = flat.roll(1, 1)
    before[:, 0] = task.start
    batch = Batch(before, flat, source=wide)
    asked = objective(name if name in ("next_token", "ctc") else "nat", task)
    with mode(model, training=False):
        prepared = asked.prepare(batch)
        answers = asked.answers(model, prepared)
        losses = torch.stack(
            [asked.loss(answers[i : i + 1], prepared[i : i + 1]) for i in range(len(flat))]
        )
    cross = (losses.view(len(source), k).double() * p).sum(1)
    return float(cross.mean()) - task.entropy()


def lost_at_least(task: TwoDialects) -> float:
    """C(Y | X) in nats a sentence, of a product of words: exact, from one source."""
    source = task.batch("validation", 1, seed=0).source
    assert source is not None
    every, p = task.translations(source)
    return conditional_total_correlation(every[0], p[0])


def least_loss(arm: str) -> float:
    """The lowest loss of a word that a model of the arm can reach, in nats.

    Of ``cmlm`` it is that of targets without a word in view, of whose words each costs ln 2: one
    target in N, and 2 / (N + 1) of all masks. That of ``ctc`` was found by optimising free
    probabilities of the symbols at all places (a test repeats it), not by a proof.
    """
    coin = math.log(2)
    return {
        "left to right": coin / WORDS,
        "plain": coin,
        "one dialect": 0.0,
        "distilled": 0.0,
        "cmlm": 2 * coin / (WORDS + 1),
        "ctc": coin,
        "by the source": 0.0,
        "by the word": coin,
    }[arm]


def at_rate(arm: str, rate: float) -> str:
    """The name of an arm in rows of that learning rate: its own, or one of the others."""
    own = ARMS.arms[arm].training["learning_rate"]
    return arm if rate == own else f"{arm} at {rate:g}"


def _loss(trained: Trained) -> Scores:
    """As it is trained, but on what is held out."""
    task, name = trained.arm.problem, str(trained.arm.training["objective"])
    asked = objective(name, task, trained.seed, QUICK if trained.quick else UPDATES)
    loss = evaluate(trained.model, task, objective=asked, batches=2 if trained.quick else 16).loss
    return {"loss of a word": (round(loss, 4), "nats")}


def _scores(trained: Trained) -> Scores:
    task, name = trained.arm.problem, str(trained.arm.training["objective"])
    size = 8 if trained.quick else UNSEEN
    source = task.batch("validation", size, seed=0).source
    assert source is not None
    found: dict[str, Any] = {}
    for passes in PASSES if name == "cmlm" else (1,):
        end = f", {passes} passes" if name == "cmlm" else ""
        for how, temperature in (("likeliest", 0.0), ("drawn", 1.0)):
            draws = torch.Generator().manual_seed(0)
            said = sentences(
                trained.model, name, task, source,
                passes=passes, temperature=temperature, generator=draws,
            )  # fmt: skip
            found[f"translations, {how}{end}"] = percent(task.right(source, said))
    found.update(_loss(trained))
    lost = nats_lost(trained.model, name, task, source[: size // 4])
    found["lost"] = (round(lost, 4), "nats")
    return found


def _arm(name: str, coin: str = "sentence", steps: int = UPDATES, rate: float = 1e-2) -> Arm:
    task = TwoDialects(words=WORDS, coin=coin)  # type: ignore[arg-type]
    model = {"vocab": task.vocab + (name != "next_token")}
    if name == "ctc":
        model["max_len"] = 2 * WORDS
    return Arm(
        task,
        model=model,
        training={"objective": name, "learning_rate": rate},
        steps=steps,
    )


ARMS = Grid(
    arms={
        "left to right": _arm("next_token"),
        "plain": _arm("nat"),
        "one dialect": _arm("one dialect"),
        "distilled": _arm("distilled", steps=LONGER, rate=3e-3),
        "cmlm": _arm("cmlm", steps=LONGER, rate=3e-3),
        "ctc": _arm("ctc", steps=LONGER, rate=3e-3),
        "by the source": _arm("nat", "source", steps=LONGER),
        "by the word": _arm("nat", "word"),
    },
    score=_scores,
    model={"dim": 32, "heads": 2, "layers": 1},
    training={"batch_size": 64},
    loop=_loop,
    figure="{arm}; {what}; seed {seed}",
)
TUNED = ("plain", "one dialect", "distilled", "cmlm", "ctc")
OTHERS = replace(
    ARMS,
    arms={
        at_rate(arm, rate): replace(
            ARMS.arms[arm], training={**ARMS.arms[arm].training, "learning_rate": rate}
        )
        for arm in TUNED
        for rate in RATES
        if rate != ARMS.arms[arm].training["learning_rate"]
    },
    score=_loss,
)
GRID = Grids((ARMS, OTHERS))
SEEDS = ARMS.seeds
build, train, rows, batches = ARMS.build, ARMS.train, GRID.rows, GRID.batches
