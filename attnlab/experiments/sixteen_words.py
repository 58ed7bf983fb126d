"""Sixteen words: what a vision transformer and a convolution make of digits at random places.

An image of 16 × 16 pixels holds a digit of 8 × 8 somewhere (``attnlab.tasks.placed_digits``). A ViT
reads it as patches of 4 × 4 pixels, 16 words, or of 8 × 8, or of 2 × 2. Nothing is timed: each arm
is one training from scratch, 800 updates of 64 images. The learning rate of the ViT with 16 words,
0.003, is the best of 0.001, 0.003 and 0.01 for images as they are, after 200 updates with a seed of
its own. That of the convolution, 0.01, was chosen with mixed pixels in view: 0.03 was better for
images as they are and worse for mixed pixels. All other arms of either have the same rate. So what
each of the two models loses with mixed pixels is measured, but the two losses are no fair
comparison. The rows of these trials are not stored.

    16 words, 4 words, 64 words    patches of 4 × 4, 8 × 8 and 2 × 2 pixels
    no positions                   16 words in no order
    mean of patches                the answer is read from all patches, not from the class token
    convolution                    three layers of 3 × 3, the later two in steps of 2 pixels, then
                                   the mean of all places
    …, patches mixed               the 16 patches of every image in one other order
    …, pixels mixed                the 256 pixels of every image in one other order; both orders
                                   are drawn before the weights, so that a mixed arm begins with
                                   other weights than the same model with images as they are
    …, trained on the grid         digits in training stand at multiples of 4 pixels alone
    convolution without steps, …   kernels of the same size at every pixel, trained on the grid, for
                                   200 updates, which take ten times as long

Scores are right answers about 355 digits that the model has not seen, each four times at places
that are drawn anew: any place, the multiples of 4, and places between them in both directions; and
enlarged to 24 × 24 pixels, for which the ViT's positions are resized, and, as a control, put in
another order and then resized.

Of the ViTs with 16 and 64 words also what DINO measures (``attnlab.lens.class_token_maps``), with
random weights, too: the Jaccard index of the patches that hold 60 % of the class token's attention
in the last layer and of the patches with ink, beside that with the ink of other images; and digits
named by the 20 nearest class tokens. A patch has ink where its mean brightness is above a quarter.

    python -m attnlab.experiments sixteen_words --threads 1 \\
        --json attnlab/experiments/assets/90_sixteen_words.json
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.modes import mode
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.lens.class_token_maps import Overlap, class_token_maps, nearest_classes, overlap
from attnlab.lens.watch import watch
from attnlab.systems.patches import from_patches, into_patches
from attnlab.systems.vit import ViT, ViTOptions
from attnlab.tasks.digits import LEVELS, SIDE, images_of_split
from attnlab.tasks.placed_digits import CANVAS, PlacedDigits, placed_at

GRID_STEP = 4
CONVOLUTION_RATE = 1e-2
LARGER = 24
COPIES, KNOWN = 4, 2000
INK = 0.25
"""A patch has ink where its mean brightness is above this."""
SIZES: Mapping[str, int] = {"dim": 64, "layers": 3, "heads": 4, "hidden": 128}
MAPPED = ("16 words", "64 words")

PLACES: Mapping[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "any place": lambda draw, b: draw.integers(SIDE + 1, size=(b, 2)),
    "on the grid": lambda draw, b: GRID_STEP * draw.integers(SIDE // GRID_STEP + 1, size=(b, 2)),
    "between": lambda draw, b: draw.choice(
        [place for place in range(SIDE + 1) if place % GRID_STEP], size=(b, 2)
    ),
}
"""Where digits stand: (row, column) of their upper left pixel, each (b, 2)."""

# ---- models


class Convolution(nn.Module):
    """Images → scores by three layers of 3 × 3 and the mean over all places, about as many numbers
    as the ViT has.

    steps: how many pixels further each layer's kernel is applied again. With (1, 2, 2) the last
        layer has one vector for every 4 × 4 pixels, as a ViT with 16 words.
    """

    def __init__(self, classes: int, steps: tuple[int, int, int] = (1, 2, 2)) -> None:
        super().__init__()
        widths = (1, 32, 64, 128)
        layers = [
            nn.Sequential(nn.Conv2d(c, e, 3, stride=step, padding=1), nn.GELU())
            for c, e, step in zip(widths, widths[1:], steps, strict=False)
        ]
        self.layers, self.output = nn.Sequential(*layers), nn.Linear(widths[-1], classes)

    def forward(self, images: Float[Tensor, "b 1 height width"]) -> Float[Tensor, "b classes"]:
        scores: Tensor = self.output(self.layers(images * 2 - 1).mean((2, 3)))
        return scores


class MeanOfPatches(nn.Module):
    """A ViT whose answer is read from the mean over the vectors of its patches."""

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: Float[Tensor, "b 1 height width"]) -> Float[Tensor, "b classes"]:
        return self.vit.body.logits(self.vit.encode(images)[:, 1:].mean(1))


class Reader(nn.Module):
    """A model of images that is called with their patches, as tasks have them; all pixels perhaps
    in another order, the same for every image."""

    order: Tensor

    def __init__(self, body: nn.Module, patch: int, order: Int[Tensor, "pixels"]) -> None:
        super().__init__()
        self.body, self.patch = body, patch
        self.register_buffer("order", order)

    def forward(
        self, patches: Float[Tensor, "b n numbers"], padding: None = None
    ) -> Float[Tensor, "b classes"]:
        scores: Tensor = self.body(self.seen(patches))
        return scores

    def seen(self, patches: Float[Tensor, "b n numbers"]) -> Float[Tensor, "b 1 height width"]:
        """The images that the body reads."""
        images = from_patches(patches, (CANVAS // self.patch,) * 2, self.patch)
        return images.flatten(2)[..., self.order].view_as(images)


def make(
    features: int, classes: int, *, read: str = "class token", mixed: str = "nothing", **_: Any
) -> Reader:
    """The untrained model of an arm."""
    patch = math.isqrt(features)
    order = _order(mixed, patch)
    if read.startswith("convolution"):
        steps = (1, 1, 1) if read == "convolution without steps" else (1, 2, 2)
        return Reader(Convolution(classes, steps), patch, order)
    vit = ViT(ViTOptions(image=CANVAS, patch=patch, channels=1, classes=classes, **SIZES))
    if read == "no positions":
        nn.init.zeros_(vit.positions.requires_grad_(False))
    return Reader(MeanOfPatches(vit) if read == "mean of patches" else vit, patch, order)


def _order(mixed: str, patch: int) -> Int[Tensor, "pixels"]:
    """Which pixel of the image stands at each place of the image that is read."""
    pixels = torch.arange(CANVAS**2)
    if mixed == "pixels":
        return torch.randperm(CANVAS**2)
    if mixed == "patches":
        cut = into_patches(pixels.double().view(1, 1, CANVAS, CANVAS), patch)
        shuffled = cut[:, torch.randperm(cut.shape[1])]
        return from_patches(shuffled, (CANVAS // patch,) * 2, patch).flatten().long()
    return pixels


# ---- what is asked


def unseen(place: str, patch: int, *, seed: int = 0, every: int = 1) -> tuple[Tensor, Tensor]:
    """Every image of the validation split, or each so many of them, four times, somewhere: patches
    (b, n, patch²) and digits (b,)."""
    kept = [each[::every] for each in images_of_split("validation")]
    images, digits = (np.concatenate([each] * COPIES) for each in kept)
    placed = placed_at(images, PLACES[place](np.random.default_rng(seed), len(images)))
    brightness = torch.from_numpy(placed)[:, None].float() / (LEVELS - 1)
    return into_patches(brightness, patch), torch.from_numpy(digits)


@torch.no_grad()
def right(model: Reader, place: str, *, every: int = 1) -> float:
    """The per cent of unseen digits that the model names."""
    patches, digits = unseen(place, model.patch, every=every)
    with mode(model, training=False):
        return percent(model(patches).argmax(-1) == digits)


@torch.no_grad()
def right_enlarged(model: Reader, *, shuffled: bool = False, every: int = 1) -> float:
    """The per cent of enlarged digits, 24 × 24 pixels, that the model names; with ``shuffled`` the
    positions of a ViT's patches are in another order."""
    patches, digits = unseen("any place", model.patch, every=every)
    larger = F.interpolate(model.seen(patches), size=LARGER, mode="bilinear")
    with positions_shuffled(model) if shuffled else nullcontext(), mode(model, training=False):
        return percent(model.body(larger).argmax(-1) == digits)


@contextmanager
def positions_shuffled(model: Reader, seed: int = 0) -> Iterator[None]:
    """The positions of a ViT's patches are in an order drawn from the seed, and afterwards as they
    were; the class token keeps its own."""
    vit: Any = model.body.vit if isinstance(model.body, MeanOfPatches) else model.body
    kept = vit.positions.detach().clone()
    order = torch.randperm(len(kept) - 1, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        vit.positions[1:] = kept[1:][order]
    try:
        yield
    finally:
        with torch.no_grad():
            vit.positions.copy_(kept)


@torch.no_grad()
def maps_of(
    model: Reader, patches: Float[Tensor, "b n numbers"]
) -> Float[Tensor, "layers b heads rows columns"]:
    """What the class token attends to, in every layer of a ViT."""
    side = CANVAS // model.patch
    with mode(model, training=False), watch(model) as seen:
        model(patches)
    return torch.stack([class_token_maps(one.weights, (side, side)) for one in seen])


def overlaps(model: Reader, *, every: int = 1) -> Overlap:
    """How much each head of the last layer has in common with ink, over a quarter of the unseen
    images."""
    patches = unseen("any place", model.patch, every=every)[0][::COPIES]
    side = CANVAS // model.patch
    ink = (patches.mean(-1) > INK).unflatten(-1, (side, side))
    return overlap(maps_of(model, patches)[-1], ink)


@torch.no_grad()
def right_by_neighbours(model: Reader | None, patch: int, *, every: int = 1) -> float:
    """The per cent of unseen digits that the nearest class tokens name, or, without a model, the
    nearest images."""
    batch = PlacedDigits(patch=patch).batch("train", KNOWN // every, seed=0)
    asked, digits = unseen("any place", patch, every=every)

    def vector(patches: Tensor) -> Tensor:
        if model is None:
            return patches.flatten(1)
        vit: Any = model.body
        with mode(model, training=False):
            states: Tensor = vit.encode(model.seen(patches))
        return states[:, 0]

    found = nearest_classes(vector(batch.inputs), batch.targets, vector(asked))
    return percent(found == digits)


def score(trained: Trained) -> Scores:
    """Right answers of every arm, and of the mapped ones what DINO measures."""
    model, name = trained.model, trained.name
    every = _every(trained.quick)
    found: dict[str, Any] = {place: right(model, place, every=every) for place in PLACES}
    if "mixed" not in name:
        found["enlarged"] = right_enlarged(model, every=every)
    if name == "16 words":
        mixed = right_enlarged(model, shuffled=True, every=every)
        found["enlarged, positions in another order"] = mixed
    if name in MAPPED:
        untrained = GRID.build(name, trained.seed)
        for what, one in (("", model), ("random weights, ", untrained)):
            near = right_by_neighbours(one, model.patch, every=every)
            found[f"{what}nearest class tokens"] = near
            for head, pair in enumerate(zip(*overlaps(one, every=every), strict=True)):
                for ink, index in zip(("own", "other"), pair, strict=True):
                    found[f"{what}{ink} ink, head {head}"] = (round(float(index), 4), "")
    return found


def _every(quick: bool) -> int:
    """A quick run looks at one image of so many."""
    return 16 if quick else 1


def _arms() -> dict[str, Arm]:
    four = PlacedDigits(patch=4)
    on_grid = PlacedDigits(patch=4, step=GRID_STEP)
    convolution: dict[str, Any] = {"read": "convolution"}
    training = {"learning_rate": CONVOLUTION_RATE}
    return {
        "16 words": Arm(four),
        "4 words": Arm(PlacedDigits(patch=8)),
        "64 words": Arm(PlacedDigits(patch=2)),
        "no positions": Arm(four, {"read": "no positions"}),
        "mean of patches": Arm(four, {"read": "mean of patches"}),
        "patches mixed": Arm(four, {"mixed": "patches"}),
        "pixels mixed": Arm(four, {"mixed": "pixels"}),
        "trained on the grid": Arm(on_grid),
        "convolution": Arm(four, convolution, training),
        "convolution, patches mixed": Arm(four, {**convolution, "mixed": "patches"}, training),
        "convolution, pixels mixed": Arm(four, {**convolution, "mixed": "pixels"}, training),
        "convolution, trained on the grid": Arm(on_grid, convolution, training),
        "convolution without steps, trained on the grid": Arm(
            on_grid, {"read": "convolution without steps"}, training, steps=200
        ),
    }


GRID = Grid(
    arms=_arms(),
    score=score,
    steps=800,
    training={"batch_size": 64, "learning_rate": 3e-3},
    make=make,
    baselines={"nearest images": lambda quick: right_by_neighbours(None, 4, every=_every(quick))},
    figure="{arm}: {what}, seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
