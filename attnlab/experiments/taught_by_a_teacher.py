"""Taught by a teacher: what a small model learns from the probabilities of a large one.

The teacher is the shipped model "digits" (3 layers of width 64), which has 99.7 % of the training
images right and 95.5 % of the unseen ones. Every student has one layer of width 16 with 4 heads,
and 1,000 updates of 32 images. 100 of the 1,442 training images have a label, 10 of each digit,
drawn by the seed; all others have none. What students learn from is:

    100 labels                  nothing else
    100 labels, smoothed        with 0.1 of each label spread evenly over the ten digits
    100 images, T = 4           the labels and the teacher's probabilities, on these images alone
    100 images, shuffled        the same, where in each image the teacher's probabilities of the
                                nine other digits have changed places
    all labels                  those of all 1,442 images
    teacher, T = 1, 2, 4        the 100 labels, and the teacher's probabilities on all images
    its answers                 the 100 labels, and on all others the digit that the teacher gives
    its answers, smoothed       the same, with 0.1 of each spread evenly
    shuffled, T = 4             as "teacher, T = 4", but in each image the teacher's probabilities
                                of the nine other digits have changed places: as soft, and no longer
                                about what looks like what
    learner of 100, T = 4       as "teacher, T = 4", with a teacher of the same size as the shipped
                                one that was trained on the 100 labels alone (600 updates)
    layers first, T = 4         TinyBERT: 300 updates of ``layer_distillation`` (the embedding, the
                                vectors and the scores of the teacher's last layer), then 700 of
                                "teacher, T = 4"
    weights first, T = 4        the same with MobileBERT's divergence of attention weights

The labels have the weight 0.5 and the probabilities 0.5. Each arm is trained at three learning
rates with seed 0. The best of these is taken for two more seeds, and all three are compared; seed 0
has chosen the rate, and the others have not.
Only the learner of 100 has its rate from "teacher, T = 4". The teacher has learned the labels of
all training images, so that those who learn from it have heard of these labels; the learner of 100
has not.

Scores are of 355 unseen images: the share that is right, the share with the teacher's answer, and
the cross-entropy in nats. Lesson 82 draws what

    python -m attnlab.experiments taught_by_a_teacher --threads 1 --json \\
        attnlab/experiments/assets/82_taught_by_a_teacher.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.experiments.grid import (
    QUICK,
    Arm,
    Grid,
    Grids,
    Scores,
    Trained,
    by_fit,
    percent,
    seeded,
)  # fmt: skip
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.batches import UNLABELLED
from attnlab.objectives.layer_distillation import LayerDistillation, LayerDistillationOptions
from attnlab.tasks import Batch
from attnlab.tasks.digits import Digits, images_of_split, into_patches
from attnlab.train import fit

IMAGES, LABELLED, UNSEEN = 1442, 100, 355
STEPS, FIRST, LEARNING = 1000, 300, 600
RATES = (5e-3, 1e-2, 2e-2)
BEST = {
    "100 labels": 2e-2,
    "100 labels, smoothed": 2e-2,
    "100 images, T = 4": 5e-3,
    "100 images, shuffled": 2e-2,
    "all labels": 2e-2,
    "teacher, T = 1": 1e-2,
    "teacher, T = 2": 2e-2,
    "teacher, T = 4": 1e-2,
    "its answers": 1e-2,
    "its answers, smoothed": 1e-2,
    "shuffled, T = 4": 1e-2,
    "layers first, T = 4": 1e-2,
    "weights first, T = 4": 2e-2,
    "learner of 100, T = 4": 1e-2,
}
"""The learning rate of each arm: the best of those, with seed 0."""
UNTRIED = "learner of 100, T = 4"  # has the rate of "teacher, T = 4"
TUNING, SEEDS = 0, (0, 1, 2)
SMOOTHED = 0.1
TAUGHT: dict[str, Any] = {"batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.3}
"""How the shipped model was trained."""
SIZES: dict[str, Any] = {
    "dim": 16, "layers": 1, "heads": 4, "hidden": 32, "position_options": {"std": 0.5},
}  # fmt: skip


# ---- images


@dataclass(frozen=True)
class FewLabels(Digits):
    """The digits as 64 pixels, of which ``labelled`` training images have a label.

    others: whether training draws the other images too, whose target is -1; with ``answers``, a
        digit for each training image, theirs are the targets.
    draw: decides which images have a label, as many of each digit.
    """

    labelled: int = LABELLED
    others: bool = True
    answers: tuple[int, ...] = ()
    draw: int = 0

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        if split != "train":
            return super()._draw(split, size, generator)
        images, labels = images_of_split("train")
        own = known(self.labelled, self.draw)
        pool = np.arange(len(images)) if self.others else np.flatnonzero(own)
        rounds = -(-size // len(pool))
        order = np.concatenate([generator.permutation(pool) for _ in range(rounds)])[:size]
        unknown = np.array(self.answers) if self.answers else np.full(len(images), UNLABELLED)
        targets = np.where(own, labels, unknown)[order]
        pixels = into_patches(images[order], 1)
        return Batch(torch.from_numpy(pixels), torch.from_numpy(targets))


@cache
def known(labelled: int, draw: int) -> np.ndarray:
    """Which training images have a label: as many of each digit."""
    _, labels = images_of_split("train")
    if labelled == len(labels):
        return np.ones(len(labels), dtype=bool)
    found, generator = np.zeros(len(labels), dtype=bool), np.random.default_rng(draw)
    for digit in range(10):
        ours = generator.permutation(np.flatnonzero(labels == digit))
        found[ours[: labelled // 10]] = True
    return found


def digits(**options: Any) -> FewLabels:
    """The task of an arm."""
    return FewLabels(unit="patches", patch=1, **options)


@cache
def pictures(split: str) -> tuple[Float[Tensor, "b 64 1"], Int[Tensor, "b"]]:
    """All images of a split and their digits."""
    images, labels = images_of_split(split)
    return torch.from_numpy(into_patches(images, 1)), torch.from_numpy(labels)


# ---- teachers


class Remembered(nn.Module):
    """A teacher whose logits of each training image (b, 10) are known, so that they are not
    computed again."""

    keys: Tensor

    def __init__(self, logits: Float[Tensor, "b 10"]) -> None:
        super().__init__()
        keys, order = _keys(pictures("train")[0]).sort()
        self.register_buffer("keys", keys)
        self.logits = nn.Parameter(logits[order], requires_grad=False)

    def forward(self, inputs: Tensor, padding: Any = None) -> Tensor:
        """The logits of images; they have to be training images."""
        return self.logits[torch.searchsorted(self.keys, _keys(inputs))]


def _keys(inputs: Tensor) -> Tensor:
    """A whole number for each image, from its 64 levels."""
    levels = (16 * inputs.flatten(1)).round().long()
    times = torch.randint(2**40, (64,), generator=torch.Generator().manual_seed(0))
    return (levels * times).sum(-1)


@cache
def teacher() -> TinyTransformer:
    """The shipped model "digits"."""
    shipped = Path(__file__).parents[1] / "pretrained" / "digits.safetensors"
    with seeded(0):
        model = TinyTransformer.load(shipped)
    return model.float().eval().requires_grad_(False)


@torch.no_grad()
def read(model: nn.Module, split: str) -> Float[Tensor, "b 10"]:
    """A model's logits of all images of a split."""
    return torch.cat([model(part) for part in pictures(split)[0].split(256)])


@cache
def answered() -> Float[Tensor, "b 10"]:
    """The shipped model's logits of the training images."""
    return read(teacher(), "train")


def shuffled(logits: Float[Tensor, "b c"], seed: int) -> Float[Tensor, "b c"]:
    """The logits of all classes but the likeliest have changed places, in each row anew."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(logits.shape, generator=generator)
    best = logits.argmax(-1, keepdim=True)
    mixed = order.scatter(-1, best, 2).argsort(-1)[:, :-1]  # the classes but the best, mixed
    places = torch.ones_like(order).scatter(-1, best, 0).nonzero()[:, 1].view(mixed.shape)
    return logits.scatter(-1, places, logits.gather(-1, mixed))


def smoothed(labels: Int[Tensor, "b"]) -> Float[Tensor, "b 10"]:
    """Logits of labels of which 0.1 is spread evenly over the ten digits."""
    return ((1 - SMOOTHED) * F.one_hot(labels, 10).float() + SMOOTHED / 10).log()


@cache
def learner(seed: int, steps: int = LEARNING) -> TinyTransformer:
    """A model as large as the shipped one, trained on the 100 labels of this seed."""
    task, sizes = digits(others=False, draw=seed), teacher().config
    with seeded(seed):
        model = TinyTransformer(**sizes)
    fit(model, task, steps, **TAUGHT, seed=seed, progress=False, device="cpu")
    return model.eval().requires_grad_(False)


# ---- what students learn from


class Learns(NamedTuple):
    """What an arm learns from: logits of all training images by the seed, and with ``T`` at which
    temperature; none, the labels alone. layers: "scores" or "weights" are compared first."""

    logits: Callable[[int, int], Tensor] | None = None
    T: float = 1.0
    soft: float = 0.5
    hard: float = 0.5
    layers: str = ""


def _answers(seed: int) -> Tensor:
    """Labels where they are known, and else the teacher's answers."""
    mine = torch.from_numpy(known(LABELLED, seed))
    return torch.where(mine, pictures("train")[1], answered().argmax(-1))


LEARNS = {
    "100 labels": Learns(),
    "100 labels, smoothed": Learns(lambda seed, _: smoothed(_answers(seed)), soft=1, hard=0),
    "100 images, T = 4": Learns(lambda *_: answered(), T=4),
    "100 images, shuffled": Learns(lambda seed, _: shuffled(answered(), seed), T=4),
    "all labels": Learns(),
    "teacher, T = 1": Learns(lambda *_: answered(), T=1),
    "teacher, T = 2": Learns(lambda *_: answered(), T=2),
    "teacher, T = 4": Learns(lambda *_: answered(), T=4),
    "its answers": Learns(),
    "its answers, smoothed": Learns(lambda seed, _: smoothed(_answers(seed)), soft=1, hard=0),
    "shuffled, T = 4": Learns(lambda seed, _: shuffled(answered(), seed), T=4),
    "layers first, T = 4": Learns(lambda *_: answered(), T=4, layers="scores"),
    "weights first, T = 4": Learns(lambda *_: answered(), T=4, layers="weights"),
    "learner of 100, T = 4": Learns(lambda seed, steps: read(learner(seed, steps), "train"), T=4),
}
ALONE = tuple(name for name in LEARNS if name.startswith("100"))  # see the 100 images only


def objective(name: str, seed: int, learning: int = LEARNING) -> Any:
    """The objective of an arm; labels alone are learned by cross-entropy."""
    one = LEARNS[name]
    if one.logits is None:
        return "next_token"
    return catalog.build(
        "distillation", teacher=Remembered(one.logits(seed, learning)),
        temperature=float(one.T), soft=float(one.soft), hard=float(one.hard),
    )  # fmt: skip


def task_of(name: str, seed: int) -> FewLabels:
    """The images and targets of an arm, by the seed."""
    if name == "all labels":
        return digits(labelled=IMAGES, draw=seed)
    answers = tuple(_answers(seed).tolist()) if name.startswith("its") else ()
    return digits(others=name not in ALONE, answers=answers, draw=seed)


def _loop(model: Any, _: Any, steps: int, *, seed: int, learns: str, **options: Any) -> Any:
    """As `fit`, and where layers come first, for a third of the steps by them."""
    one, task, learning = LEARNS[learns], task_of(learns, seed), LEARNING
    if steps <= QUICK:
        learning = QUICK
    if one.layers:
        first = min(max(1, steps * FIRST // STEPS), steps - 1)
        maps: Any = one.layers
        layers = LayerDistillation(LayerDistillationOptions(attention=maps), teacher())
        if first:
            by_fit(model, task, first, objective=layers, seed=seed, **options)
        steps -= first
    asked = objective(learns, seed, learning)
    return by_fit(model, task, steps, objective=asked, seed=seed, **options)


# ---- scores


@torch.no_grad()
def _scores(trained: Trained) -> Scores:
    images, labels = pictures("validation")
    logits = trained.model(images)
    said = logits.argmax(-1)
    return {
        "right": percent(said == labels),
        "as the teacher": percent(said == read(teacher(), "validation").argmax(-1)),
        "cross-entropy": (round(F.cross_entropy(logits, labels).item(), 4), "nats"),
    }


def _learner_right(seed: int) -> Callable[[bool], float]:
    def measure(quick: bool) -> float:
        model = learner(seed, QUICK if quick else LEARNING)
        return percent(read(model, "validation").argmax(-1) == pictures("validation")[1])

    return measure


def _shipped_right(quick: bool) -> float:
    return percent(read(teacher(), "validation").argmax(-1) == pictures("validation")[1])


def at_rate(name: str, rate: float) -> str:
    """The name of an arm in the rows of a learning rate."""
    return f"{name}; rate {rate:g}"


def scores(rows: Mapping[str, float], name: str, what: str = "right") -> list[float]:
    """The stored scores of an arm at its rate, for each of the seeds."""
    return [rows[f"{name}; {what}; seed {seed}"] for seed in SEEDS]


def _arm(name: str, rate: float) -> Arm:
    return Arm(digits, training={"learns": name, "learning_rate": rate})


def _grid(
    arms: Mapping[str, Arm], seeds: Sequence[int] = (TUNING,), what: str = "{what}, tried once"
) -> Grid:
    return Grid(
        arms=arms,
        score=_scores,
        steps=STEPS,
        model=SIZES,
        training={"batch_size": 32},
        loop=_loop,
        seeds=seeds,
        figure=f"{{arm}}; {what}",
    )


_TUNED = tuple(name for name in LEARNS if name != UNTRIED)
TRIED = _grid({at_rate(name, rate): _arm(name, rate) for name in _TUNED for rate in RATES})
COMPARED = _grid({name: _arm(name, BEST[name]) for name in LEARNS}, SEEDS, "{what}; seed {seed}")
TEACHERS = replace(
    _grid({}),
    baselines={"the teacher; right": _shipped_right}
    | {f"learner of 100; right; seed {seed}": _learner_right(seed) for seed in SEEDS},
)
GRID = Grids((TRIED, COMPARED, TEACHERS))
build, train, rows, batches = COMPARED.build, COMPARED.train, GRID.rows, GRID.batches
