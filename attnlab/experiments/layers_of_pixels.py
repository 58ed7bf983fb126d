"""Layers of pixels: in which layer of a language model of pixels can a digit be read off?

Image GPT in small (``attnlab.systems.image_gpt``). A language model of six layers reads handwritten
digits of 8 × 8 pixels, pixel by pixel, 17 levels, and learns to predict the next one; no class is
ever shown. Nothing is timed: one training for each seed, from scratch, 600 updates of 32 images.
Then it is frozen, and a linear probe of each layer names the digit from the mean over the 64 states
of an image: it learns from all 1,442 images of the training, and is asked about the 355 others.

    right              of the trained model, after each layer; 0 is what enters the first
    random weights     of the same model before its training
    shuffled labels    of the trained model, the labels in another order

Rows besides: the same probe of the 64 levels themselves, and the model's bits per pixel of unseen
images.

    python -m attnlab.experiments layers_of_pixels --threads 1 \\
        --json attnlab/experiments/assets/90_layers_of_pixels.json
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.experiments.pixels import SEEN, UNSEEN, bits_per_pixel, problem
from attnlab.lens.probes import Probed, probe
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.image_gpt import image_states
from attnlab.tasks import Batch, task

LAYERS, FEW = 6, 200
RIGHT, RANDOM, SHUFFLED = "right", "random weights", "shuffled labels"


def images(split: str) -> Batch:
    """All images of a split as 64 levels, with their digits."""
    size = UNSEEN if split == "validation" else SEEN
    return task("digits", unit="pixels").batch(split, size, seed=0)


def begun(levels: Tensor) -> Tensor:
    """What a language model reads of images (b, 64): the start token and all pixels but the last,
    as in its training."""
    start = problem().vocab - 1
    return torch.cat([torch.full_like(levels[:, :1], start), levels[:, :-1]], 1)


def probed(model: TinyTransformer | None, seed: int = 0, *, quick: bool = False) -> Probed:
    """What a probe finds in each layer of a model, or, without one, in the levels themselves; of
    the first images alone if it is to be quick."""
    both = [images(split)[: FEW if quick else None] for split in ("train", "validation")]
    known, new = (
        each.inputs.float()[None] if model is None else image_states(model, begun(each.inputs))
        for each in both
    )
    draw = torch.Generator().manual_seed(seed)
    return probe(known, both[0].targets, new, both[1].targets, draw)


def score(trained: Trained) -> Scores:
    """A curve over layers of the trained model and of each control."""
    untrained = GRID.build(trained.name, trained.seed).eval()
    own, other = (
        probed(model, trained.seed, quick=trained.quick) for model in (trained.model, untrained)
    )
    curves = {RIGHT: own.right, RANDOM: other.right, SHUFFLED: own.shuffled}
    found: dict[str, Any] = {
        f"{name}, layer {layer}": round(100 * float(share), 2)
        for name, curve in curves.items()
        for layer, share in enumerate(curve)
    }
    return {**found, "bits per pixel": (round(bits_per_pixel(trained.model), 4), "bits")}


def curve(rows: Mapping[str, float], name: str, seed: int) -> list[float]:
    """The per cent of right answers after each layer that the rows hold."""
    return [rows[f"{name}, layer {layer}, seed {seed}"] for layer in range(LAYERS + 1)]


GRID = Grid(
    arms={"pixels": Arm(problem)},
    score=score,
    steps=600,
    model={"dim": 48, "layers": LAYERS, "heads": 4, "hidden": 96},
    training={"batch_size": 32, "learning_rate": 3e-3},
    baselines={
        "levels themselves": lambda quick: percent(probed(None, quick=quick).right[0]),
    },
    figure="{what}, seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
