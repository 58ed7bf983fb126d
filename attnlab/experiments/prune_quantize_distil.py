"""Prune, quantize, distil: one model in ever fewer bytes, beside models that were small at once.

The task, the dense model and its 1,200 updates are those of ``fewer_bits``. All arms have 1,800
updates of 32 images in all, and a learning rate of 0.004 unless another one is named:

    dense                600 more updates of the dense model
    masked               40 % of the weights are left (one threshold for all matrices); 600 updates
                         under the mask
    half the units       half of the heads and hidden units are taken out; 600 updates
    masked, rounded, taught   as *masked*; the 600 updates round to 4 bits per row, and learn the
                         probabilities of the dense model beside the labels
    student              dim 32, 2 layers, hidden 32, taught by the dense model from the beginning
    student, labels alone     the same model without a teacher
    student, masked      the student after 1,200 updates; half of its weights are left; 600 updates
                         under the mask, taught
    middle, small, smaller, tiny, tiniest   models of dim 40 (3 layers), 28 and 20 (2 layers), 16
                         and 8 (1 layer), from the beginning and from labels alone

The last five are the control: if one of them, as a file of as many bytes, is right as often as a
large model that was made small, nothing is gained by training the large one. Zhu and Gupta (2017)
found large pruned models ahead of small dense ones of the same memory, in larger networks. Two
arms are also trained with the learning rates 0.008 and 0.002, with one seed.

Each model is scored as it is (32 bits), rounded per row to 8 and 4 bits, and with k-means weights
of 8 and 4 bits; of *masked, rounded, taught* there is the form that it was trained for. The scores:
the share of 355 unseen images that are classified rightly; the bytes of the file that
``save_compressed`` writes, and those of its header, which are names and shapes; and FLOPs of an
image, counted. The processor's time for 64 images, one thread, in per cent of that of the dense
model, is measured once, of untrained models of these sizes in turn: rounded weights are numbers
when they are multiplied here, so it is the time of an arm at 32 bits.

Lesson 81 shows what

    python -m attnlab.experiments prune_quantize_distil --threads 1 --json \\
        attnlab/experiments/assets/81_prune_quantize_distil.json

has written; rows that the file holds are not trained again.
"""

import copy
import functools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.compression.kmeans_weights import KMeansOptions, KMeansWeights
from attnlab.compression.levels import Levels
from attnlab.compression.magnitude_pruning import MagnitudePruning
from attnlab.compression.matrices import without_masks
from attnlab.compression.quantization import Quantization
from attnlab.compression.quantization_aware import QuantizationAware
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.experiments.fewer_bits import SIZES, TASK, TRAINING, UPDATES, dense, right
from attnlab.experiments.grid import (
    QUICK,
    Arm,
    Grid,
    Grids,
    Measured,
    Scores,
    Trained,
    by_fit,
    seeded,
)
from attnlab.measure.count import count
from attnlab.measure.timing import compare
from attnlab.models.compressed import save_compressed
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.distillation import Distillation

ALL, MORE = 1800, 600  # updates of every arm; of which so many come after the cut
RATES = (8e-3, 4e-3, 2e-3)
FOUR_BITS = Levels(bits=4, scheme="restricted", per="channel")
STUDENT = {"dim": 32, "layers": 2, "hidden": 32}
FORMS: Mapping[str, Any] = {
    "32 bits": copy.deepcopy,
    "8 bits": Quantization(replace(FOUR_BITS, bits=8)),
    "4 bits": Quantization(FOUR_BITS),
    "k-means, 8 bits": KMeansWeights(KMeansOptions(bits=8)),
    "k-means, 4 bits": KMeansWeights(KMeansOptions(bits=4)),
}


class Run(NamedTuple):
    """How a training went, and the module that was trained."""

    history: Any
    module: Any

    def column(self, name: str) -> list[Any]:
        """The values of one column of the history."""
        found: list[Any] = self.history.column(name)
        return found


def smaller(model: nn.Module, cut: str, kept: float = 0.4) -> nn.Module:
    """A copy of a trained model that is cut, and perhaps rounds while it is trained on."""
    if cut == "units":
        by_units = StructuredPruning(kept=0.5)
        return by_units.remove(by_units(model))
    if cut == "nothing":
        return copy.deepcopy(model)
    made: nn.Module = MagnitudePruning(kept, scope="global")(model)
    return made if cut == "mask" else QuantizationAware(FOUR_BITS, activations=False)(made)


def _loop(
    model: nn.Module, task: Any, steps: int, *, seed: int, cut: str = "", taught: bool = False,
    **options: Any,
) -> Run:  # fmt: skip
    """From the beginning; or, with ``cut``, on from a model that is cut after 1,200 updates: the
    dense one, or the taught student."""
    first = UPDATES if steps > QUICK else steps
    if taught or cut:
        large = dense(seed, first)
    if taught:
        options["objective"] = Distillation(teacher=large)
    if not cut:
        return Run(by_fit(model, task, steps, seed=seed, **options), model)
    if cut == "student":
        by_fit(model, task, first, seed=seed, **options)
        module = smaller(model, "mask", kept=0.5)
    else:
        module = smaller(large, cut)
    module.train()
    return Run(by_fit(module, task, min(steps, MORE), seed=seed, **options), module)


def forms(module: nn.Module, cut: str) -> Iterator[tuple[str, nn.Module]]:
    """What is scored of a trained module, by the names of its forms."""
    if cut == "mask and rounding":
        yield "4 bits", QuantizationAware(FOUR_BITS, activations=False).convert(module)
        return
    for name, compress in FORMS.items():
        yield name, compress(module)


def file_bytes(module: nn.Module) -> tuple[int, int]:
    """The bytes of the file that ``save_compressed`` writes, and those of its header alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_compressed(module, path)
        content = path.read_bytes()
        return len(content), 8 + int.from_bytes(content[:8], "little")


def untrained() -> nn.Module:
    """The dense model, with whose time the others are compared."""
    with seeded(0):
        return TinyTransformer(**TASK.model_options(), **SIZES).eval()


def _right(trained: Trained) -> Scores:
    cut = trained.arm.training.get("cut", "")
    module = trained.history.module.eval()
    return {f"{form}, right": right(made, quick=trained.quick) for form, made in forms(module, cut)}


@torch.no_grad()
def _scores(trained: Trained) -> Scores:
    cut = trained.arm.training.get("cut", "")
    module = trained.history.module.eval()
    found: dict[str, Any] = dict(_right(trained))
    for form, made in forms(module, cut):
        whole, header = file_bytes(made)
        found[f"{form}, file"] = (float(whole), "bytes")
        found[f"{form}, header"] = (float(header), "bytes")
    plain = without_masks(module) if cut != "mask and rounding" else of_numbers(module)
    x = TASK.batch("validation", 1, seed=0).inputs
    found["FLOPs"] = (float(count(plain, x).flops), "FLOPs")
    return found


@functools.cache
@torch.no_grad()
def times(quick: bool) -> dict[str, float]:
    """The processor's time for 64 images by models of each size, in per cent of the dense one's."""
    x, models = TASK.batch("validation", 64, seed=0).inputs, dict[str, nn.Module]()
    for arm in sorted({_like(arm) for arm in ARMS.arms}):
        made, cut = ARMS.build(arm).eval(), ARMS.arms[arm].training.get("cut", "nothing")
        models[arm] = without_masks(smaller(made, cut)) if cut != "nothing" else made
    calls = {name: functools.partial(made, x) for name, made in models.items()}
    found = compare(calls, repeats=2 if quick else 200, threads=None)
    spent = {own.name: own.user + own.system for own in found}
    return {name: round(100 * t / spent["dense"], 1) for name, t in spent.items()}


def _like(arm: str) -> str:
    """The first arm that multiplies as much: what a student learns from changes no time."""
    return next(name for name in ("masked", "student", arm) if arm.startswith(name))


def _time(arm: str, quick: bool) -> Measured:
    return (
        times(quick)[_like(arm)],
        "%",
        "of the processor, mean of 200 rounds, beside the dense model",
    )


def of_numbers(module: nn.Module) -> nn.Module:
    """A dense model with the numbers that a module has under its masks and its rounding."""
    plain, own = untrained(), dict(module.named_modules())
    with torch.no_grad():
        for name, part in plain.named_modules():
            for each, value in part.named_parameters(recurse=False):
                value.copy_(getattr(own[name], each))
    return plain


def at_rate(arm: str, rate: float) -> str:
    """The name of an arm in rows of that learning rate: its own, or one of the others."""
    return arm if rate == TRAINING["learning_rate"] else f"{arm} at {rate:g}"


ARMS = Grid(
    arms={
        "dense": Arm(TASK, training={"cut": "nothing"}),
        "masked": Arm(TASK, training={"cut": "mask"}),
        "half the units": Arm(TASK, training={"cut": "units"}),
        "masked, rounded, taught": Arm(TASK, training={"cut": "mask and rounding", "taught": True}),
        "student": Arm(TASK, STUDENT, {"taught": True}),
        "student, labels alone": Arm(TASK, STUDENT),
        "student, masked": Arm(TASK, STUDENT, {"cut": "student", "taught": True}),
        "middle": Arm(TASK, {"dim": 40, "hidden": 40}),
        "small": Arm(TASK, {"dim": 28, "layers": 2, "hidden": 28}),
        "smaller": Arm(TASK, {"dim": 20, "layers": 2, "hidden": 20}),
        "tiny": Arm(TASK, {"dim": 16, "layers": 1, "hidden": 16}),
        "tiniest": Arm(TASK, {"dim": 8, "layers": 1, "hidden": 8}),
    },
    score=_scores,
    steps=ALL,
    model=SIZES,
    training=TRAINING,
    loop=_loop,
    figure="{arm}; {what}; seed {seed}",
)
ARMS = replace(
    ARMS, baselines={f"time of {arm}": functools.partial(_time, arm) for arm in ARMS.arms}
)
TUNED = ("masked, rounded, taught", "middle")
OTHERS = replace(
    ARMS,
    arms={
        at_rate(arm, rate): replace(
            ARMS.arms[arm], training={**ARMS.arms[arm].training, "learning_rate": rate}
        )
        for arm in TUNED
        for rate in RATES
        if rate != TRAINING["learning_rate"]
    },
    score=_right,
    baselines={},
    seeds=(0,),
    figure="{arm}; {what}; first seed",
)
GRID = Grids((ARMS, OTHERS))
SEEDS = ARMS.seeds
rows, batches = GRID.rows, GRID.batches
