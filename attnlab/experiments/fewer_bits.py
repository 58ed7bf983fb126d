"""Fewer bits: what rounding costs a trained model, and what training with the rounding recovers.

The task is digits, in 2 × 2 patches. The model is that of the shipped ``digits`` (dim 64, 3 layers
of 4 heads, hidden 64), trained for 1,200 updates of 32 images. Weights are rounded symmetrically
(``scheme="restricted"``: at 2 bits the levels are -1, 0 and 1) with one scale for each matrix
("tensor") or for each of its rows ("channel"); inputs of linear layers are affine.

    dense             the model as it is trained; it is rounded afterwards
    without rounding  300 more updates of the dense model of the same seed; it is rounded afterwards
    with rounding     300 more updates of the same model that rounds in each forward pass, in four
                      forms: 2 bits per tensor, 2 bits per channel, and per tensor with inputs of as
                      many bits 3 bits and 2 bits; it is converted to integers afterwards

*Without rounding* is the control: if more training alone made the model bear the rounding, it would
score as *with rounding* does. Both are trained with the learning rates 0.01, 0.004 and 0.001, and
compared at the best one of each. The score is the share of 355 unseen images that is classified
rightly. The rates are chosen by the same images, for all arms alike.

Lesson 81 draws what

    python -m attnlab.experiments fewer_bits --threads 1 --json \\
        attnlab/experiments/assets/81_fewer_bits.json

has written; rows that the file holds are not trained again.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.compression.levels import Levels
from attnlab.compression.quantization import Quantization
from attnlab.compression.quantization_aware import QuantizationAware
from attnlab.experiments.grid import QUICK, Arm, Grid, Grids, Scores, Trained, by_fit, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.digits import Digits

UPDATES, MORE, UNSEEN = 1200, 300, 355
RATES = (1e-2, 4e-3, 1e-3)
BITS = (8, 6, 5, 4, 3, 2)
TASK = Digits(unit="patches", patch=2)
SIZES: dict[str, Any] = {
    "dim": 64, "layers": 3, "heads": 4, "hidden": 64, "dropout": 0.05,
    "position_options": {"std": 0.5},
}  # fmt: skip
TRAINING: dict[str, Any] = {"batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.3}


class Form(NamedTuple):
    """How a model is rounded; inputs of linear layers with as many bits, or not at all."""

    bits: int
    per: str = "tensor"
    inputs: bool = False

    def __str__(self) -> str:
        return f"{self.bits} bits per {self.per}{', inputs too' if self.inputs else ''}"

    @property
    def levels(self) -> Levels:
        """The levels of the weights."""
        return Levels(bits=self.bits, scheme="restricted", per=self.per)  # type: ignore[arg-type]

    def rounded(self, model: nn.Module) -> nn.Module:
        """A copy with integers, whose inputs have the range of the batch at hand."""
        kind: Any = "dynamic" if self.inputs else "none"
        made: nn.Module = Quantization(self.levels, activations=kind)(model)
        return made

    @property
    def aware(self) -> QuantizationAware:
        """Rounds in each forward pass."""
        return QuantizationAware(self.levels, activations=self.inputs)


FORMS = tuple(
    Form(bits, per, inputs) for inputs in (False, True) for per in ("tensor", "channel")
    for bits in BITS
)  # fmt: skip
TRAINED = (Form(2), Form(2, "channel"), Form(3, inputs=True), Form(2, inputs=True))


def with_rounding(form: Form, rate: float) -> str:
    """The name of an arm that rounds while it is trained."""
    return f"with rounding, {form}, rate {rate:g}"


def without_rounding(rate: float) -> str:
    """The name of the control with that learning rate."""
    return f"without rounding, rate {rate:g}"


@functools.cache
def dense(seed: int, updates: int = UPDATES) -> TinyTransformer:
    """The dense model of this seed; it is trained in the first call only."""
    model: TinyTransformer = DENSE.train("dense", seed, steps=updates)[0]
    return model.requires_grad_(True)


def right(model: nn.Module, *, quick: bool = False) -> float:
    """The share of unseen images that a model classifies rightly, in per cent."""
    unseen = TASK.batch("validation", 16 if quick else UNSEEN, seed=0)
    with torch.no_grad():
        return percent(model(unseen.inputs).argmax(-1) == unseen.targets)


def _make(form: Form | None = None, **options: Any) -> nn.Module:
    model = TinyTransformer(**options)
    return model if form is None else form.aware(model)


def _more(model: nn.Module, task: Any, steps: int, *, seed: int, **options: Any) -> Any:
    """Trains on from the dense model of the seed."""
    before = dense(seed, UPDATES if steps > QUICK else steps).state_dict()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(before[name.replace("parametrizations.weight.original", "weight")])
    return by_fit(model, task, steps, seed=seed, **options)


def _afterwards(trained: Trained, forms: tuple[Form, ...]) -> Iterator[tuple[str, float]]:
    yield "32 bits", right(trained.model, quick=trained.quick)
    for form in forms:
        yield str(form), right(form.rounded(trained.model), quick=trained.quick)


def _scores(trained: Trained) -> Scores:
    form = trained.arm.model.get("form")
    if form is None:
        return dict(_afterwards(trained, FORMS if trained.name == "dense" else TRAINED))
    return {str(form): right(form.aware.convert(trained.model), quick=trained.quick)}


DENSE = Grid(
    arms={"dense": Arm(TASK, steps=UPDATES)},
    score=_scores,
    make=_make,
    model=SIZES,
    training=TRAINING,
    figure="{arm}; {what}; seed {seed}",
)
AGAIN = replace(
    DENSE,
    arms={
        **{without_rounding(rate): Arm(TASK, training={"learning_rate": rate}) for rate in RATES},
        **{
            with_rounding(form, rate): Arm(TASK, {"form": form}, {"learning_rate": rate})
            for form in TRAINED
            for rate in RATES
        },
    },
    steps=MORE,
    loop=_more,
)
GRID = Grids((DENSE, AGAIN))
SEEDS = DENSE.seeds
rows, batches = GRID.rows, GRID.batches
