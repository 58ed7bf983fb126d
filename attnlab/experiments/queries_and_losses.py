"""Queries and losses: what a Q-Former learns by each of its three losses, and what it is good for.

An image encoder (2 layers of width 48) reads a scene of 8 × 16 pixels (``attnlab.tasks.scenes``) as
32 patches. It learns to name, at each patch, the digit of the half in which the patch lies, and is
frozen: what it knows of a scene stands at every patch, left or right. A Q-Former (4 layers of width
48, 4 heads, 4 queries, which attend to the image in layers 0 and 2) reads these 32 vectors and
captions such as "a three left of a seven".

    the encoder names both digits    by the mean over the patches of each half

First stage (``FIRST``): all three losses, each of them left out, and no training at all (control).
Scores are of unseen scenes.

    retrieved    of all 100 captions, the nearest in the contrastive space is that of the scene
    retrieved by matching    likewise, by the logits of matching; of the first 200 scenes
    matched      the caption matches better than that of the digits exchanged, which differ
    written      greedy captions: both digits are right, the other words being given
    busiest      how often the query that is nearest to the caption most often is the nearest
    left, query i            the share of its attention, in layer 2, on the left half
    left digit, query i      a linear probe of this query alone names the left digit
    right digit, query i     likewise the right one
    one-sided, queries       how far a query prefers one half of a scene, in layer 2: the mean of
                             |2 · left − 1|, 0 where both halves have the same weight, 100 where one
                             has all; the mean over the heads is taken first
    one-sided, heads         likewise of each head of each query
    one-sided, layer 0, …    both in layer 0

Second stage (``SECOND``): the queries stand in front of the words of a language model (2 layers of
width 48) that is frozen. It has learned the captions as text, each behind four words that say its
numbers: the four queries stand in their place. Score: ``written``.

    the language model, in words    behind the four words themselves
    after stage one              the Q-Former of all three losses, 300 updates
    without stage one            one from nothing, 300 updates
    without, as long in all      one from nothing, 700 updates, as many as both stages have
    black images                 after stage one, and every image is black

All trainings have 32 scenes in an update, a learning rate of 0.003 and three seeds; the encoder 800
updates, the first stage 400, the language model 400. No other rate was tried, for no arm.

    python -m attnlab.experiments queries_and_losses --threads 1 --json \\
        attnlab/experiments/assets/91_queries_and_losses.json
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.experiments.grid import (
    QUICK,
    SEEDS,
    Arm,
    Grid,
    Grids,
    Scores,
    Trained,
    by_fit,
    percent,
    seeded,
)
from attnlab.lens.probes import linear_probe
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.blip2 import LOSSES, FirstStage, Losses, ThreeLosses
from attnlab.systems.blip2_second import SecondStage
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.captions import Captions
from attnlab.tasks.digits import SIDE
from attnlab.tasks.scenes import Scenes
from attnlab.train import fit


@dataclass(frozen=True)
class Halves(Scenes):
    """Scenes, each of whose patches is to name the digit of its own half."""

    kind: ClassVar[str] = "token_classifier"
    classes: ClassVar[int] = 10

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        batch = super()._draw(split, size, generator)
        assert isinstance(batch.targets, Tensor)
        digits = torch.stack([batch.targets // 10, batch.targets % 10], 1)
        side = SIDE // self.patch
        return Batch(batch.inputs, digits.repeat_interleave(side, 1).repeat(1, side))


QUERIES = 4
FIRST_DIGIT, SECOND_DIGIT = 2, 6  # their places in a caption


@dataclass(frozen=True)
class Words(Captions):
    """The captions without their scenes, for a language model: before each stand four words, its
    two numbers, each said twice, where the queries will stand. They are not scored."""

    kind: ClassVar[str] = "language_model"
    length: ClassVar[int] = QUERIES + Captions.length

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        batch = super()._draw(split, size, generator)
        said = batch.inputs[:, [FIRST_DIGIT, SECOND_DIGIT]].repeat_interleave(QUERIES // 2, 1)
        assert isinstance(batch.targets, Tensor)
        unscored = torch.full_like(said, UNSCORED)
        return Batch(torch.cat([said, batch.inputs], 1), torch.cat([unscored, batch.targets], 1))


@dataclass(frozen=True)
class Black(Captions):
    """The captions of scenes that are not shown: every image is black."""

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        batch = super()._draw(split, size, generator)
        assert batch.source is not None
        black = torch.zeros_like(batch.source)
        return Batch(batch.inputs, batch.targets, source=black, source_padding=batch.source_padding)


SCENES, TASK = Halves(), Captions()
CROSSES = (0, 2)  # layers in which queries attend to the image
SIZES = QFormerOptions(
    dim=48, layers=4, heads=4, hidden=96, queries=QUERIES, image_dim=48,
    vocab=TASK.vocab + 1, max_len=TASK.length,
)  # fmt: skip
SEEING, SPEAKING, STEPS, SECOND_STEPS = 800, 400, 400, 300
UNSEEN, LEARNED, RANKED = 500, 1000, 200
TRAINING: dict[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
CAPTIONS = torch.stack([TASK.caption(*divmod(pair, 10)) for pair in range(100)])
NONE = "no training"


# ---- what is frozen


def unseeing() -> TinyTransformer:
    """The image encoder before it has learned anything."""
    return TinyTransformer(**SCENES.model_options(), dim=48, layers=2, heads=4)


def silent() -> TinyTransformer:
    """The language model before it has read anything, with room for the queries."""
    return TinyTransformer(TASK.vocab, dim=48, layers=2, heads=4, max_len=Words.length)


def knowing(which: str, seed: int, *, quick: bool) -> TinyTransformer:
    """The "encoder" or the language model of "words" as it is frozen, ready to be asked."""
    with seeded(seed):
        model = {"encoder": unseeing, "words": silent}[which]()
    model.load_state_dict(learned(which, seed, quick=quick))
    return model.eval()


@cache
def _learned(which: str, seed: int, steps: int) -> dict[str, Tensor]:
    """The weights of the encoder or of the language model after its training."""
    make, task = {"encoder": (unseeing, SCENES), "words": (silent, Words())}[which]
    with seeded(seed):
        model = make()
    fit(model, task, steps, **TRAINING, seed=seed, progress=False, device="cpu")
    return model.state_dict()


def learned(which: str, seed: int, *, quick: bool) -> dict[str, Tensor]:
    """The weights of the "encoder" or of "words", trained once for each seed."""
    steps = {"encoder": SEEING, "words": SPEAKING}[which]
    return _learned(which, seed, QUICK if quick else steps)


def sees(seed: int) -> Callable[[bool], float]:
    """The share of unseen scenes both of whose digits the encoder names."""

    def measured(quick: bool) -> float:
        model = knowing("encoder", seed, quick=quick)
        scenes, digits = asked("validation", 100 if quick else UNSEEN)
        side = SIDE // SCENES.patch
        with torch.no_grad():
            named = model(scenes)
        of_halves = named.softmax(-1).view(-1, side, 2, side, 10).mean((1, 3))
        return percent((of_halves.argmax(-1) == digits).all(-1))

    return measured


# ---- both stages


def make_first() -> FirstStage:
    """A Q-Former with its heads before the encoder has learned to see."""
    return FirstStage(unseeing(), TASK.vocab, SIZES, shared=32)


def make_second() -> SecondStage:
    """A Q-Former before a language model, neither of which has learned anything."""
    return SecondStage(unseeing(), QFormer(SIZES), silent())


def first_loop(
    model: FirstStage, task: Any, steps: int, *, seed: int, losses: Losses = LOSSES,
    trained: bool = True, **options: Any,
) -> Any:  # fmt: skip
    """As `fit`, once the encoder has learned to see; without training of the Q-Former if not
    ``trained``."""
    quick = steps <= QUICK
    model.encoder.load_state_dict(learned("encoder", seed, quick=quick))
    if not trained:
        return None
    return by_fit(model, task, steps, seed=seed, objective=ThreeLosses(losses), **options)


@cache
def stage_one(arm: str, seed: int, steps: int) -> dict[str, Tensor]:
    """The weights of the Q-Former of an arm of the first stage."""
    model, _ = FIRST.train(arm, seed, steps=steps)
    weights: dict[str, Tensor] = model.qformer.state_dict()
    return weights


def second_loop(
    model: SecondStage, task: Any, steps: int, *, seed: int, begins: str | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """As `fit`, with an encoder that sees, words that are known, and the Q-Former of an arm of the
    first stage."""
    quick = steps <= QUICK
    model.encoder.load_state_dict(learned("encoder", seed, quick=quick))
    model.language_model.load_state_dict(learned("words", seed, quick=quick))
    if begins is not None:
        model.qformer.load_state_dict(stage_one(begins, seed, QUICK if quick else STEPS))
    return by_fit(model, task, steps, seed=seed, **options)


# ---- scores


class Asked(NamedTuple):
    """Scenes (b, 32, 4) with both digits (b, 2), left first."""

    scenes: Tensor
    digits: Tensor


def asked(split: str, size: int, task: Captions = TASK) -> Asked:
    """Scenes of a split."""
    batch = task.batch(split, size, seed=0)
    assert batch.source is not None
    return Asked(batch.source, batch.inputs[:, [FIRST_DIGIT, SECOND_DIGIT]])


def written(say: Callable[[Tensor], Tensor], digits: Tensor) -> float:
    """The share of scenes both of whose digits ``say`` gives the largest logits, one after the
    other; the rest of the caption is given."""
    tokens = CAPTIONS[:1].repeat(len(digits), 1)
    for place in (FIRST_DIGIT, SECOND_DIGIT):
        tokens[:, place] = say(tokens)[:, place - 1, :10].argmax(-1)
    return percent((tokens[:, [FIRST_DIGIT, SECOND_DIGIT]] == digits).all(-1))


@torch.no_grad()
def score_first(trained: Trained) -> Scores:
    """What the module docstring says."""
    model: Any = trained.model
    few = 100 if trained.quick else UNSEEN
    scenes, digits = asked("validation", few)
    image = model.see(scenes)
    with watch(model.qformer) as seen:
        read = model.qformer.read(image)
    similar = model.compared(read, model.qformer.write(CAPTIONS))
    pairs = 10 * digits[:, 0] + digits[:, 1]
    ranked = slice(20 if trained.quick else RANKED)
    found: dict[str, Any] = {
        "retrieved": percent(similar.argmax(-1) == pairs),
        "retrieved by matching": percent(_likeliest(model, image[ranked]) == pairs[ranked]),
        "matched": _matched(model, image, digits),
        "written": written(lambda tokens: model.words(tokens, None, read), digits),
        "busiest": _busiest(model, read, pairs),
    }
    first, last = (on_the_left(crossing(seen, layer)) for layer in CROSSES)
    for begin, left in (("", last), ("layer 0, ", first)):
        found[f"one-sided, {begin}queries"] = one_sided(left.mean(1))
        found[f"one-sided, {begin}heads"] = one_sided(left)
    known = _known(model, read.queries, digits, quick=trained.quick)
    for i in range(QUERIES):
        found[f"left, query {i}"] = round(100 * last[:, :, i].mean().item(), 2)
        for side, right in zip(("left", "right"), known[i], strict=True):
            found[f"{side} digit, query {i}"] = right
    return found


def crossing(seen: Any, layer: int) -> Tensor:
    """The weights (b, h, q, m) with which queries attend to the image in a layer."""
    weights: Tensor = next(one.weights for one in seen if f"layers.{layer}.cross" in one.name)
    return weights


def on_the_left(weights: Tensor) -> Tensor:
    """The share (b, h, q) of the weights (b, h, q, m) that lies on the left half of a scene."""
    side = SIDE // SCENES.patch
    return weights.unflatten(-1, (side, 2 * side))[..., :side].sum((-1, -2))


def one_sided(left: Tensor) -> float:
    """How far shares on the left are from a half, in the mean: 0 to 100."""
    return round(100 * (2 * left - 1).abs().mean().item(), 2)


def _likeliest(model: FirstStage, image: Tensor) -> Tensor:
    """The number of the caption (b,) that fits each image best by the logits of matching."""
    return torch.stack([
        model.matching(one.expand(len(CAPTIONS), -1, -1), CAPTIONS).diff(dim=-1)[:, 0].argmax()
        for one in image
    ])  # fmt: skip


def _matched(model: FirstStage, image: Tensor, digits: Tensor) -> float:
    differ = digits[:, 0] != digits[:, 1]
    pairs = digits[differ]
    own, exchanged = (
        model.matching(image[differ], CAPTIONS[10 * each[:, 0] + each[:, 1]]).diff(dim=-1)[:, 0]
        for each in (pairs, pairs.flip(1))
    )
    return percent(own > exchanged)


def _busiest(model: FirstStage, read: Any, pairs: Tensor) -> float:
    z = torch.nn.functional.normalize(model.of_image(read.queries), dim=-1)
    text = model.of_text(model.qformer.write(CAPTIONS)[:, 0])[pairs]
    nearest = torch.einsum("bqw, bw -> bq", z, text).argmax(-1)
    return percent(nearest == nearest.mode().values)


def _known(model: Any, new: Tensor, digits: Tensor, *, quick: bool) -> list[tuple[float, float]]:
    """What a probe of each query has right of the left digit and of the right one."""
    scenes, labels = asked("train", 200 if quick else LEARNED)
    old = model.qformer.read(model.see(scenes)).queries
    sides = range(2)
    return [
        tuple(  # type: ignore[misc]
            percent(linear_probe(old[:, i], labels[:, side], new[:, i]) == digits[:, side])
            for side in sides
        )
        for i in range(QUERIES)
    ]


@torch.no_grad()
def score_second(trained: Trained) -> Scores:
    """The share of scenes of whose caption both digits are right."""
    model: Any = trained.model
    scenes, digits = asked("validation", UNSEEN, trained.arm.problem)
    return {"written": written(lambda tokens: model(tokens, source=scenes), digits)}


def speaks(seed: int) -> Callable[[bool], float]:
    """The share of captions both of whose digits the language model writes behind the words that
    say them."""

    def measured(quick: bool) -> float:
        model = knowing("words", seed, quick=quick)
        digits = asked("validation", UNSEEN).digits
        said = digits.repeat_interleave(QUERIES // 2, 1)
        with torch.no_grad():
            return written(lambda tokens: model(torch.cat([said, tokens], 1))[:, QUERIES:], digits)

    return measured


# ---- the grids


def without(loss: str) -> tuple[str, ...]:
    """The other two losses."""
    return tuple(each for each in LOSSES if each != loss)


FIRST = Grid(
    arms={
        "three losses": Arm(TASK),
        **{f"no {loss}": Arm(TASK, training={"losses": without(loss)}) for loss in LOSSES},
        NONE: Arm(TASK, training={"trained": False}),
    },
    score=score_first,
    steps=STEPS,
    training=TRAINING,
    make=lambda **_: make_first(),
    loop=first_loop,
    baselines={f"the encoder names both digits, seed {seed}": sees(seed) for seed in SEEDS},
    figure="stage one, {arm}, {what}, seed {seed}",
)
SECOND = replace(
    FIRST,
    arms={
        "after stage one": Arm(TASK, training={"begins": "three losses"}),
        "without stage one": Arm(TASK),
        "without, as long in all": Arm(TASK, steps=STEPS + SECOND_STEPS),
        "black images": Arm(Black(), training={"begins": "three losses"}),
    },
    score=score_second,
    steps=SECOND_STEPS,
    make=lambda **_: make_second(),
    loop=second_loop,
    baselines={f"the language model, in words, seed {seed}": speaks(seed) for seed in SEEDS},
    figure="stage two, {arm}, {what}, seed {seed}",
)
GRID = Grids((FIRST, SECOND))
rows, batches = GRID.rows, GRID.batches
