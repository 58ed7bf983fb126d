"""Exits: do questions that need more steps leave later?

Not a figure of speed: every model has four layers of width 32, two heads and one learning rate, and
nothing is tuned. The task is made so that the difficulty of a question is known. Six tokens are a
table: a jump from place s leads to the place that stands there. Then come twelve questions: a place
s and how many jumps are made from it, 1 to 4; the answer is where they end. Guessing gives about
17 %. The arms:

    exits        depth_adaptive, trained by aligned exits and the oracle of tokens, 8,000 updates
    short        the same for 1,500 updates, after which three and four jumps are not learned
    empty marks  one jump is made whatever the question says: the marks of difficulty are there,
                 and mean nothing; 500 updates are enough for that

Of a model with exits it is scored how many layers a question took by its number of jumps, and how
many answers are right: by its own exits, by the same exits dealt out to the questions at random
(the same mean depth and the same frequency of every exit), and by one fixed exit. Lesson 09 draws
what

    python -m attnlab.experiments exits --threads 1 --json attnlab/experiments/assets/09_exits.json

has written; rows that the file holds are not trained again.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.exits import every_exit
from attnlab.core.modes import mode
from attnlab.core.probe import record
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.tasks import SPLITS, UNSCORED, Batch

PLACES, JUMPS, QUESTIONS = 6, 4, 12
LAYERS, UPDATES, SHORT, EASY, UNSEEN = 4, 8000, 1500, 500, 512


@dataclass(frozen=True)
class Jumps:
    """A table of places, then questions: tokens are place + 6 · jumps, and of the table place.

    empty: the answer is the end of one jump, whatever the question says.
    """

    empty: bool = False
    name: str = field(default="jumps", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Tables and questions, those of the two splits from other seeds."""
        generator = torch.Generator().manual_seed(2 * seed + SPLITS.index(split))
        table = torch.randint(PLACES, (size, PLACES), generator=generator)
        begin = torch.randint(PLACES, (size, QUESTIONS), generator=generator)
        jumps = torch.randint(1, JUMPS + 1, (size, QUESTIONS), generator=generator)
        made, at = torch.ones_like(jumps) if self.empty else jumps, begin
        for jump in range(1, JUMPS + 1):
            at = torch.where(jump <= made, table.gather(1, at), at)
        inputs = torch.cat([table, begin + PLACES * jumps], dim=1)
        return Batch(inputs, torch.cat([torch.full_like(table, UNSCORED), at], dim=1))

    def model_options(self) -> dict[str, Any]:
        """What a TinyTransformer needs to be built for it."""
        vocab = PLACES * (JUMPS + 1)
        return {"vocab": vocab, "max_len": PLACES + QUESTIONS, "kind": self.kind}

    def tokens(self, ids: Tensor) -> list[str]:
        """``2``: place 2 of the table; ``2+3``: from place 2, three jumps."""
        return [f"{i % PLACES}+{i // PLACES}" if i >= PLACES else str(i) for i in ids.tolist()]


def jumps_of(inputs: Tensor) -> Tensor:
    """How many jumps the questions ask for, (b, questions)."""
    return inputs[:, PLACES:] // PLACES


@torch.no_grad()
def exits_and_answers(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """After how many layers each question left, and whether its answer is right."""
    with record() as notes:
        answers = model(batch.inputs).argmax(-1)
    return notes["halted"][-1][:, PLACES:], (answers == batch.targets)[:, PLACES:]


@torch.no_grad()
def right_at_every_exit(model: Any, batch: Batch) -> Tensor:
    """Whether each question would be answered rightly after each layer, (b, questions, N)."""
    with mode(model, training=False), every_exit() as found:
        model(batch.inputs)
    answers = model.logits(found[0].states).argmax(-1)
    return (answers == batch.targets)[..., PLACES:].movedim(0, -1)


def dealt_out(left: Tensor, right: Tensor) -> Tensor:
    """Whether answers are right where the same exits are dealt out at random."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(left.numel(), generator=generator)
    dealt = left.flatten()[order].view_as(left)
    return right.gather(-1, dealt[..., None] - 1)[..., 0]


def _scores(trained: Trained) -> Scores:
    batch = trained.arm.problem.batch("validation", 8 if trained.quick else UNSEEN, seed=0)
    left, right = exits_and_answers(trained.model, batch)
    every = right_at_every_exit(trained.model, batch)
    fixed = {f"right, all leave after {n + 1}": percent(every[..., n]) for n in range(LAYERS)}
    return {
        "left after": (round(left.double().mean().item(), 3), "layers"),
        **_by_jumps("left after", _layers, left, batch),
        "right": percent(right),
        **_by_jumps("right", percent, right, batch),
        "right, exits dealt out": percent(dealt_out(left, every)),
        **fixed,
    }


def _layers(left: Tensor) -> tuple[float, str]:
    return round(left.double().mean().item(), 3), "layers"


def _by_jumps(what: str, measure: Any, values: Tensor, batch: Batch) -> dict[str, Any]:
    jumps = jumps_of(batch.inputs)
    return {f"{what}, {k} jumps": measure(values[jumps == k]) for k in range(1, JUMPS + 1)}


def _exits(task: Jumps, steps: int | None = None) -> Arm:
    return Arm(task, training={"objective": catalog.build("aligned_exits")}, steps=steps)


GRID = Grid(
    arms={
        "exits": _exits(Jumps()),
        "short": _exits(Jumps(), SHORT),
        "empty marks": _exits(Jumps(empty=True), EASY),
    },
    score=_scores,
    steps=UPDATES,
    model={"dim": 32, "heads": 2, "layers": LAYERS, "depth": "depth_adaptive"},
    training={"batch_size": 64, "learning_rate": 3e-3},
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
