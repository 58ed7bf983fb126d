"""Dialects: what models lose that write all words of a sentence at once.

Not a figure of speed: every model has one encoder layer and one decoder layer of width 32, and
two heads. All arms reach the lowest loss that is possible (``least_loss``), to 0.02; their learning
rate is 0.01, and 0.003 of ``cmlm``, of which one of two models stayed far above it with 0.01. The
task is ``two_dialects``: six words are translated into one of two dialects, by a coin. The arms, of
400 updates where no other number stands:

    left to right   an ordinary decoder
    plain           nat: six masks are answered at once
    one dialect     nat, distilled from a teacher that writes every sentence in dialect A
    cmlm            a number of masks, from one to six; asked in 1, 2, 3 and 6 passes (1,500)
    by the source   plain, where the first word of the source decides the dialect: the control; if a
                    plain model mixed dialects here, too, the coin would not be the reason (1,500)
    by the word     plain, where a coin is tossed for each word: C is 0 here as well

Of each it is scored how many of its likeliest sentences, and of those drawn from its probabilities,
are a translation; the loss of each word as it is trained; and how many nats its probabilities of
sentences are from those of the data, which is at least C(Y | X) for a model that writes all at once
(exact: each source has two translations, or one). Lesson 66 draws what

    python -m attnlab.experiments dialects --json attnlab/experiments/assets/66_dialects.json

has written with one thread; rows that the file holds are not trained again.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.modes import mode
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit, percent
from attnlab.models.generate import generate
from attnlab.models.parallel_decoding import mask_predict
from attnlab.objectives.nat import conditional_total_correlation
from attnlab.tasks import Batch
from attnlab.tasks.two_dialects import TwoDialects
from attnlab.train import evaluate

WORDS, UPDATES, LONGER, UNSEEN = 6, 400, 1500, 512
PASSES = (1, 2, 3, 6)


def objective(name: str, task: TwoDialects) -> Any:
    """The objective of that name for this task; ``one dialect`` is ``distilled``, with a teacher
    that is no model, then ``nat``."""
    if name == "one dialect":
        then = catalog.build("nat", vocab=task.vocab)
        return catalog.build("distilled", teacher=OneDialect(task), then=then)
    own: dict[str, Any] = {} if name == "next_token" else {"vocab": task.vocab}
    return catalog.build(name, **own)


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


def _loop(model: Any, task: Any, steps: int, **options: Any) -> Any:
    asked = objective(options.pop("objective"), task)
    return by_fit(model, task, steps, objective=asked, **options)


@torch.no_grad()
def sentences(
    model: Any, name: str, task: TwoDialects, source: Tensor, *, passes: int = 1,
    temperature: float = 0.0, generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """What a model that was trained by that objective writes (b, n)."""
    given: dict[str, Any] = {"temperature": temperature, "generator": generator}
    b, n = source.shape
    if name == "next_token":
        start = torch.full((b, 1), task.start)
        return generate(model, start, n, source=source, **given)[:, 1:]
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
    asked = objective("nat" if name in ("one dialect", "cmlm") else name, task)
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
    target in N, and 2 / (N + 1) of all masks.
    """
    coin = math.log(2)
    return {
        "left to right": coin / WORDS,
        "plain": coin,
        "one dialect": 0.0,
        "cmlm": 2 * coin / (WORDS + 1),
        "by the source": 0.0,
        "by the word": coin,
    }[arm]


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
    asked = objective(name, task)
    loss = evaluate(trained.model, task, objective=asked, batches=2 if trained.quick else 16).loss
    found["loss of a word"] = (round(loss, 4), "nats")
    lost = nats_lost(trained.model, name, task, source[: size // 4])
    found["lost"] = (round(lost, 4), "nats")
    return found


def _arm(name: str, coin: str = "sentence", steps: int = UPDATES, rate: float = 1e-2) -> Arm:
    task = TwoDialects(words=WORDS, coin=coin)  # type: ignore[arg-type]
    specials = 0 if name == "next_token" else 1
    return Arm(
        task,
        model={"vocab": task.vocab + specials},
        training={"objective": name, "learning_rate": rate},
        steps=steps,
    )


GRID = Grid(
    arms={
        "left to right": _arm("next_token"),
        "plain": _arm("nat"),
        "one dialect": _arm("one dialect"),
        "cmlm": _arm("cmlm", steps=LONGER, rate=3e-3),
        "by the source": _arm("nat", "source", steps=LONGER),
        "by the word": _arm("nat", "word"),
    },
    score=_scores,
    model={"dim": 32, "heads": 2, "layers": 1},
    training={"batch_size": 64},
    loop=_loop,
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
