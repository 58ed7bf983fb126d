"""Tickets: which part of a found mask is needed, its places or the values under it.

Each model has two layers of width 32, two heads and hidden layers of 32 (13,738 numbers), and reads
digits as patches of 2 × 2. It is trained for 400 updates. Each round then cuts 40 % of the weights
that are left in the matrices, the smallest of all matrices together, and trains again; six rounds
leave 60, 36, 21.6, 13, 7.8 and 4.7 % of them. What training begins with is the arm:

    dense       all weights
    ticket      the values of the first training's beginning, under the mask
    rewound     the values after a tenth of the first training's updates, so that it has had 440 at
                the end; the masks are its own
    fresh       the masks of *ticket*, over new random values
    shuffled    as many weights of each matrix as *ticket* has, at random places; the same values

The score is the share of right answers on all 355 unseen images, and the loss. Of *dense* it is
also measured what a cut leaves right without another training. Further rows:

    at 0.004, …            *dense*, *ticket* and *fresh* with each of four learning rates, one seed
    at 0.016               all four with twice the learning rate, three seeds: masks are found at
                           the rate that is best for *dense*, and what they leave may need another
    for 800 updates        twice the budget: a mask with new values may only need more time
    at once, gradually     the trained dense model is trained for 400 updates more: cut before the
                           first of them, or in ten cuts within the first 200 (Zhu and Gupta)

Lesson 80 draws what

    python -m attnlab.experiments tickets --threads 1 --json \\
        attnlab/experiments/assets/80_tickets.json

has written; rows that the file holds are not trained again.
"""

import copy
import functools
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.compression.lottery_tickets import LotteryTickets, share_left, under_masks_of
from attnlab.compression.magnitude_pruning import Gradual, GradualOptions, MagnitudePruning
from attnlab.compression.matrices import linear_layers, mask_on, put_mask
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained, by_fit, percent
from attnlab.tasks import Batch
from attnlab.tasks.digits import Digits

ROUNDS, CUT, UPDATES, UNSEEN = 6, 0.4, 400, 355
RATE, FASTER, RATES = 8e-3, 1.6e-2, (4e-3, 8e-3, 1.6e-2, 3.2e-2)
SPARSE = (4, 6)
"""The rounds at which other learning rates are tried."""
KINDS = ("ticket", "fresh", "rewound", "shuffled")
SIZES = {"dim": 32, "layers": 2, "heads": 2, "hidden": 32}
TASK = Digits(unit="patches", patch=2)


def share(rounds: int) -> str:
    """The share that is left after so many rounds, as the names of rows have it."""
    return f"{100 * share_left(CUT, rounds):.1f} %"


class Begins(NamedTuple):
    """What a training begins with, and how long it is; all are functions of these numbers."""

    kind: str
    rounds: int
    seed: int
    steps: int = UPDATES
    rate: float = RATE


def start(begins: Begins) -> nn.Module:
    """The untrained module of a training, under its masks."""
    kind, rounds, seed = begins.kind, begins.rounds, begins.seed
    first = _values(kind, seed, begins.steps)
    if not rounds:
        return first
    chain = kind if kind == "rewound" else "ticket"
    before = trained(Begins(chain, rounds - 1, seed, min(begins.steps, UPDATES)))
    found = LotteryTickets(CUT, rounds, start=_values(chain, seed, begins.steps))(before)
    if kind == "shuffled":
        shuffle(found, seed)
    return under_masks_of(found, first)


def _values(kind: str, seed: int, steps: int) -> nn.Module:
    """What a kind of ticket has under its masks."""
    if kind == "rewound":
        return _film(seed, min(steps, UPDATES))[1]
    made: nn.Module = ARMS.build("dense", seed + (100 if kind == "fresh" else 0))
    return made


def shuffle(module: nn.Module, seed: int) -> None:
    """Puts the ones of each mask at random places of the same matrix."""
    generator = torch.Generator().manual_seed(seed)
    for layer in linear_layers(module).values():
        found = mask_on(layer)
        if found is not None:
            order = torch.randperm(found.mask.numel(), generator=generator)
            found.mask.copy_(found.mask.flatten()[order].view_as(found.mask))


@functools.cache
def trained(begins: Begins) -> nn.Module:
    """The module that a training has ended with. It is trained in the first call only; change a
    copy."""
    if not begins.rounds and begins.rate == RATE:
        return _film(begins.seed, begins.steps)[0]
    module = start(begins)
    _fit(module, begins.seed, begins.steps, begins.rate)
    return module


@functools.cache
def _film(seed: int, steps: int) -> tuple[nn.Module, nn.Module]:
    """The dense model after its training, and after a tenth of it."""
    module, early = _values("dense", seed, steps), list[nn.Module]()

    def keep(state: Any) -> None:
        if state.step == max(1, steps // 10):
            early.append(copy.deepcopy(state.model))

    _fit(module, seed, steps, RATE, keep)
    return module, early[0]


def _fit(module: Any, seed: int, steps: int, rate: float, *callbacks: Any) -> None:
    given = {**ARMS.training, "learning_rate": rate, "callbacks": callbacks}
    by_fit(module, TASK, steps, seed=seed, **given)


def _loop(
    model: nn.Module, task: Any, steps: int, *, seed: int, kind: str, rounds: int,
    learning_rate: float, **_: Any,
) -> None:  # fmt: skip
    become(model, trained(Begins(kind, rounds, seed, steps, learning_rate)))


def become(model: nn.Module, other: nn.Module) -> None:
    """Gives a model the masks and the values of another one."""
    theirs = linear_layers(other)
    for name, layer in linear_layers(model).items():
        found = mask_on(theirs[name])
        if found is not None:
            put_mask(layer, found.mask.clone())
    model.load_state_dict(other.state_dict())


# ---- scores


@functools.cache
def unseen() -> Batch:
    """All images that no model is trained on."""
    return TASK.batch("validation", UNSEEN, seed=0)


@torch.no_grad()
def right(model: nn.Module) -> Scores:
    """The right answers of the unseen images in per cent, and the loss."""
    answers = model(unseen().inputs)
    loss = F.cross_entropy(answers, unseen().targets).item()
    return {"right": percent(answers.argmax(-1) == unseen().targets), "loss": (loss, "nats")}


def layers_left(model: nn.Module) -> dict[str, float]:
    """The share of each matrix that is left, in per cent, by the name of its layer."""
    masks = {name: mask_on(layer) for name, layer in linear_layers(model).items()}
    return {n: 100.0 if m is None else _left(m.mask) for n, m in masks.items()}


def _left(mask: Tensor) -> float:
    return round(100 * mask.double().mean().item(), 2)


def _scores(trained: Trained) -> Scores:
    found = dict(right(trained.model))
    if trained.name == "dense":
        for rounds in range(1, ROUNDS + 1):
            cut = MagnitudePruning(share_left(CUT, rounds), "global")(trained.model)
            found[f"right, cut to {share(rounds)} without training"] = right(cut)["right"]
    return found


# ---- arms


def _arm(kind: str, rounds: int = 0, steps: int = UPDATES, rate: float = RATE) -> Arm:
    training = {"kind": kind, "rounds": rounds, "learning_rate": rate}
    return Arm(TASK, training=training, steps=steps)


ARMS = Grid(
    arms={
        "dense": _arm("dense"),
        **{
            f"{kind}, {share(rounds)} left": _arm(kind, rounds)
            for rounds in range(1, ROUNDS + 1)
            for kind in KINDS
        },
    },
    score=_scores,
    model=SIZES,
    training={"batch_size": 64},
    loop=_loop,
    figure="{arm}; {what}; seed {seed}",
)
OTHER_RATE = replace(
    ARMS,
    arms={
        f"{kind}, {share(rounds)} left at {FASTER:g}": _arm(kind, rounds, UPDATES, FASTER)
        for rounds in SPARSE
        for kind in KINDS
    },
    score=lambda trained: right(trained.model),
)
LONGER = replace(
    ARMS,
    arms={
        "dense, for 800 updates": _arm("dense", 0, 2 * UPDATES),
        **{
            f"{kind}, {share(rounds)} left, for 800 updates at {rate:g}": _arm(
                kind, rounds, 2 * UPDATES, rate
            )
            for kind, rounds, rate in (
                ("fresh", 6, RATE),
                ("fresh", 6, FASTER),
                ("ticket", 6, RATE),
                ("fresh", 5, RATE),
            )
        },
    },
    score=lambda trained: right(trained.model),
)
TUNED = replace(
    ARMS,
    arms={
        **{f"dense at {rate:g}": _arm("dense", 0, UPDATES, rate) for rate in RATES},
        **{
            f"{kind}, {share(rounds)} left at {rate:g}": _arm(kind, rounds, UPDATES, rate)
            for rounds in SPARSE
            for kind in ("ticket", "fresh")
            for rate in RATES
        },
    },
    score=lambda trained: right(trained.model),
    seeds=(0,),
    figure="{arm}; {what}, tried once",
)

# ---- cut while a model trains

SCHEDULE = GradualOptions(every=20, times=10)


def _cutting(
    model: nn.Module, task: Any, steps: int, *, seed: int, cuts: str, kept: float, **options: Any
) -> None:
    """Trains the trained dense model for so many steps more."""
    become(model, trained(Begins("dense", 0, seed, steps)))
    gradual = Gradual(replace(SCHEDULE, final=1 - kept))
    if cuts == "at once":
        become(model, MagnitudePruning(kept, "global")(model))

    def cut(state: Any) -> None:
        gradual.after_step(state.model, state.step, state.steps)

    callbacks = [cut] if cuts == "gradually" else []
    by_fit(model, task, steps, seed=seed + 1, callbacks=callbacks, **options)


GRADUAL = replace(
    ARMS,
    arms={
        f"{cuts}, {share(rounds)} left": Arm(
            TASK,
            training={"cuts": cuts, "kept": share_left(CUT, rounds), "learning_rate": RATE},
            steps=UPDATES,
        )
        for rounds in SPARSE
        for cuts in ("at once", "gradually")
    },
    score=lambda trained: right(trained.model),
    loop=_cutting,
)
GRID = Grids((TUNED, ARMS, OTHER_RATE, LONGER, GRADUAL))
SEEDS = ARMS.seeds
build, train, rows, batches = ARMS.build, ARMS.train, GRID.rows, GRID.batches
