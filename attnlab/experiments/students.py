"""Students: how small may a model be that learns from the shipped model of digits?

Nothing is timed: each training is a classifier of 8 × 8 pixels, 8 to 32 wide and of 1 to 3 layers,
with a head for each 8 of its width. It learns by ``distillation`` (T = 2, half of the loss from the
teacher and half from the label) in 1,200 steps of 32 images. The teacher is ``load("digits")``, 64
wide with 3 layers of 4 heads. Rate and weight decay are those with which the teacher was trained,
and were not tuned for its students. What labels alone would teach is not asked here.

The score is the share of the 355 test images that are answered rightly. Each size has three seeds;
the weights of seed 0 are kept in half precision, and ``student("16 wide, 2 layers")`` is that
model. CompressionLab shows what

    python -m attnlab.experiments students --threads 1 --json \\
        attnlab/experiments/assets/80_students.json

has written; rows that the file holds are not trained again.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.suggest import choose
from attnlab.experiments import stored
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit, percent, seeded
from attnlab.models.storage import load_tensors
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch
from attnlab.tasks.digits import Digits

STEPS, TEMPERATURE, HEAD = 1200, 2.0, 8
DIMS, LAYERS = (32, 16, 8), (3, 2, 1)
TASK = Digits(unit="patches", patch=1)
UNSEEN = 355
WEIGHTS = Path(__file__).parent / "assets" / "students.safetensors"
SHIPPED = Path(__file__).parents[1] / "pretrained" / "digits.safetensors"


def size(dim: int, layers: int) -> str:
    """The name of a student of this size."""
    return f"{dim} wide, {layers} layer{'s' if layers > 1 else ''}"


@cache
def teacher() -> TinyTransformer:
    """The shipped model of digits."""
    with seeded(0):  # its initial values, which are replaced, are drawn
        model = TinyTransformer.load(SHIPPED)
    return model.float().eval().requires_grad_(False)


class Remembering(nn.Module):
    """A teacher that is asked about each image once."""

    def __init__(self, asked: TinyTransformer) -> None:
        super().__init__()
        self.kind, self.asked = asked.kind, asked
        self.known: dict[bytes, Tensor] = {}

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """The logits of images (b, 64, 1): (b, 10)."""
        keys = [row.numpy().tobytes() for row in x]
        new = {key: row for key, row in zip(keys, x, strict=True) if key not in self.known}
        if new:
            self.known |= dict(zip(new, self.asked(torch.stack([*new.values()])), strict=True))
        return torch.stack([self.known[key] for key in keys])


@cache
def unseen() -> Batch:
    """All test images."""
    return TASK.batch("validation", UNSEEN, 0)


@torch.no_grad()
def right(model: nn.Module) -> Tensor:
    """Tell of each test image whether the model answers rightly, (355,)."""
    batch = unseen()
    answers: Tensor = model(batch.inputs)
    return answers.argmax(-1) == batch.targets


def _loop(model: nn.Module, problem: Any, steps: int, **options: Any) -> Any:
    taught = catalog.build("distillation", teacher=Remembering(teacher()), temperature=TEMPERATURE)
    return by_fit(model, problem, steps, objective=taught, **options)


def _score(trained: Trained) -> Scores:
    return {"right": percent(right(trained.model))}


GRID = Grid(
    arms={
        size(dim, layers): Arm(
            TASK, {"dim": dim, "hidden": dim, "heads": dim // HEAD, "layers": layers}
        )
        for dim in DIMS
        for layers in LAYERS
    },
    score=_score,
    steps=STEPS,
    model={"position_options": {"std": 0.5}},
    training={"batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.3},
    loop=_loop,
    baselines={"the teacher, right": lambda quick: percent(right(teacher()))},
)
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches


def right_by_seed() -> dict[str, list[float]]:
    """Student → per cent of right answers of each seed, as stored."""
    found = stored("80_students.json", "students")
    return {
        name: [found[f"{name}, right, seed {seed}"] for seed in GRID.seeds] for name in GRID.arms
    }


def student(name: str) -> TinyTransformer:
    """The kept student of this size, ready to be asked (eval mode, float32); it was trained with
    seed 0."""
    choose("student", name, GRID.arms)
    model: TinyTransformer = build(name)
    state = load_tensors(WEIGHTS)
    own = {key.removeprefix(f"{name}/"): x.float() for key, x in state.items()}
    model.load_state_dict({key: x for key, x in own.items() if key in model.state_dict()})
    return model.eval()
