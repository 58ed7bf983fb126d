"""Fixed mixing: what does a Fourier transform in the place of attention learn?

Not a figure of speed: each training is two layers of width 32, with the same updates and the same
learning rate for all arms: 500 and 2,000 updates. Those that mix and are not yet right in all cases
are trained for 5,000 as well, and for 2,000 with a lower rate. So it shows which arm learns sooner,
and which ends higher.
A classifier answers from the mean of its outputs. Three problems, of which guessing solves one
half:

    mirror              ten tokens of four symbols read the same from behind, or one of them is
                        another symbol
    recall, same keys   the values (0 or 1, four of each) of eight keys in random order, then one of
                        the keys: its value is asked for. Every sequence has the same keys
    recall, other keys  the same, but the eight keys of a sequence are drawn from 32

Four models: nothing is mixed, both layers mix by a Fourier transform (Lee-Thorp et al., NAACL 2022,
arXiv:2105.03824), the second layer of these has attention instead (its hybrid), both have. Scores
are per cent of right answers for lists of symbols or pairs that are not in training. Lesson 35
draws what

    python -m attnlab.experiments fixed_mixing --threads 1 --json \\
        attnlab/experiments/assets/35_mixing.json

has written; rows that the file holds are not trained again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, from_numpy, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.experiments.loop import descend
from attnlab.experiments.quality import Nothing
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.sequences import draw_contents, without_repeats

ARMS: dict[str, Any] = {
    "no mixing": lambda dim, heads, causal: Nothing(),
    "Fourier": "fnet",
    "hybrid": ["fnet", "full"],
    "attention": "full",
}
KEYS = {"recall, same keys": 8, "recall, other keys": 32}
PROBLEMS = ("mirror", *KEYS)
SYMBOLS, HALF, PAIRS = 4, 5, 8
UPDATES, BATCH, RATE, UNSEEN = (500, 2000, 5000), 64, 5e-3, 500
LOWER = 1e-3  # the second rate; trained longer, and with it, are those that stay below 100 %:
OPEN = {"mirror": ("attention",), "recall, other keys": ("Fourier", "hybrid", "attention")}


def figure(problem: str, arm: str, seed: int, updates: int = UPDATES[0], rate: float = RATE) -> str:
    """The name of the row of one training."""
    longer = "" if updates == UPDATES[0] else f"; {updates} updates"
    return f"{problem}; {arm}; seed {seed}{longer}{'' if rate == RATE else f'; rate {rate}'}"


def draw(problem: str, split: str, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens (b, n) and classes (b,) of a problem; the same for the same seed."""
    rng = np.random.default_rng((seed, split == "validation"))
    if problem == "mirror":
        tokens, classes = _mirror(split, size, rng)
    else:
        tokens, classes = _recall(KEYS[problem], split, size, rng)
    return from_numpy(tokens), from_numpy(classes)


def _mirror(split: str, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    half = draw_contents(
        split, size, rng, lambda rng, rows: rng.integers(SYMBOLS, size=(rows, HALF))
    )
    tokens, same = np.concatenate([half, half[:, ::-1]], axis=1), rng.integers(2, size=size)
    changed = rng.integers(2 * HALF, size=size)
    added = np.where(same == 1, 0, rng.integers(1, SYMBOLS, size=size))
    tokens[np.arange(size), changed] = (tokens[np.arange(size), changed] + added) % SYMBOLS
    return tokens, same


def _recall(
    keys: int, split: str, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    def pairs(rng: np.random.Generator, rows: int) -> np.ndarray:
        values = without_repeats(rng, rows, PAIRS, PAIRS) % 2
        return 2 * without_repeats(rng, rows, keys, PAIRS) + values

    tokens = draw_contents(split, size, rng, pairs)
    asked = tokens[np.arange(size), rng.integers(PAIRS, size=size)]
    return np.concatenate([tokens, 2 * keys + asked[:, None] // 2], axis=1), asked % 2


def build(problem: str, arm: str) -> TinyTransformer:
    """The untrained model."""
    keys = KEYS.get(problem)
    sizes = {"vocab": 3 * keys, "max_len": PAIRS + 1} if keys else _MIRROR
    return TinyTransformer(
        kind="classifier", classes=2, dim=32, hidden=64, heads=4, layers=2, attention=ARMS[arm],
        **sizes,
    )  # fmt: skip


_MIRROR = {"vocab": SYMBOLS, "max_len": 2 * HALF}


def _train(model: nn.Module, problem: str, updates: int, *, seed: int, rate: float = RATE) -> None:
    """The learning rate rises, then falls to zero along half of a cosine."""

    def loss(update: int) -> Tensor:
        tokens, classes = draw(problem, "train", BATCH, seed=seed * updates + update)
        return F.cross_entropy(model(tokens), classes)

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    descend(optimizer, loss, updates, schedule=OneCycleLR(optimizer, rate, updates))


@torch.no_grad()
def right(model: nn.Module, problem: str) -> float:
    """Per cent of right answers on lists that are not in training."""
    tokens, classes = draw(problem, "validation", UNSEEN, seed=0)
    return percent(model(tokens).argmax(-1) == classes, 1)


def _score(trained: Trained) -> Scores:
    return {"": right(trained.model, trained.arm.task)}


def _arms(updates: int, rate: float, arms_of: Mapping[str, Any]) -> dict[str, Arm]:
    return {
        figure(problem, arm, 0, updates, rate).replace("; seed 0", ""): Arm(
            problem,
            {"problem": problem, "arm": arm},
            {"rate": rate},
            updates,
            figure=figure(problem, arm, 0, updates, rate).replace("seed 0", "seed {seed}"),
        )
        for problem, arms in arms_of.items()
        for arm in arms
    }


_EVERY = dict.fromkeys(PROBLEMS, ARMS)
GRID = Grid(
    arms={
        **_arms(UPDATES[0], RATE, _EVERY),
        **_arms(UPDATES[1], RATE, _EVERY),
        **_arms(UPDATES[2], RATE, OPEN),
        **_arms(UPDATES[1], LOWER, OPEN),
    },
    score=_score,
    make=build,
    loop=_train,
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def train(problem: str, arm: str, seed: int, *, updates: int = UPDATES[0]) -> TinyTransformer:
    """The trained model."""
    model: TinyTransformer = GRID.train(f"{problem}; {arm}", seed, steps=updates)[0]
    return model
