"""Grids: sparse patterns of equal cost on images, and pixels outside their receptive fields.

Nothing is timed: each row is one training of a tiny model from scratch. Two questions.

**Digits**, written pixel by pixel as in `pixels`, in bits per pixel on all unseen images.
Pairs are those of one head in both layers:

    full           the whole past (4160 pairs)
    1-D window     the last 5 (620)
    1-D blocks     Image Transformer: blocks of 4 and the 2 before (560)
    2-D window     the past of the 3 × 3 square around (548)
    2-D blocks     Image Transformer: rectangles of 2 × 2 with a flange of 1, in their order (848)
    2-D strips     the same without the flange to the sides (512)
    axial          a layer along lines, one along columns, both masked (576)
    axial + shift  one layer: finished lines, columns, moved down, and a masked line (1088)

Four of them are trained three times as long as well.

**Arrows**: every cell of a grid of random colours is asked for the colour of another cell: of the
one that touches it at the corner (``neighbour``), or of its image through the middle (``across``).
Nothing is hidden, nothing is to be computed, the colour has to *arrive*. In per cent, of cells.

Lesson 12 draws what

    python -m attnlab.experiments grids --threads 1 --json attnlab/experiments/assets/12_grids.json

has written.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternAttention
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained
from attnlab.mechanisms.fixed.axial import AxialOptions, LinesAndColumns
from attnlab.mechanisms.fixed.image_transformer import ImageTransformerOptions, generation_order
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.arrows import COLOURS, FIELD, Arrows
from attnlab.tasks.written import SIDE, Written

STEPS = 300
LONGER = 900  # to see whether the order of the patterns stays
UNSEEN = 355  # images of the validation split

Layer = Callable[[int, int, bool], nn.Module]


class Stack(NamedTuple):
    """The patterns of the layers, in turn, and the order in which pixels are generated."""

    layers: tuple[Pattern, ...] = ()  # none: the paper's axial generator
    order: tuple[int, ...] = tuple(range(SIDE**2))

    @property
    def pairs(self) -> int:
        """The number of pairs of one head, over all layers."""
        return sum(part.count(SIDE**2) for part in self.layers or _GENERATOR)

    def known(self, pixel: tuple[int, int], layers: int) -> Bool[Tensor, "layers rows columns"]:
        """Which pixels of the image can influence this one after each of so many layers."""
        place = self._place(pixel)
        if self.layers:
            after = patterns.receptive_field(self.layers, SIDE**2, layers).after
        else:
            after = (_generator_mask(),) * layers
        return torch.stack([self._image(frame[place]) for frame in after])

    def future(self, pixel: tuple[int, int]) -> Bool[Tensor, "rows columns"]:
        """The pixels that are generated after this one."""
        return self._image(torch.arange(SIDE**2) > self._place(pixel))

    def _place(self, pixel: tuple[int, int]) -> int:
        return self.order.index(pixel[0] * SIDE + pixel[1])

    def _image(self, row: Tensor) -> Tensor:
        """Values by position in the sequence, as an image."""
        return row[torch.tensor(self.order).argsort()].view(SIDE, SIDE)


def _generator_mask() -> Tensor:
    """The receptive field of Axial's generator: a masked line; lines and columns shifted down."""
    lines, columns, inner = (part.dense(SIDE**2).float() for part in _GENERATOR)
    outer = columns @ lines
    return (inner + F.pad(outer, (0, 0, SIDE, 0))[: SIDE**2]) > 0


_GENERATOR = (
    AxialOptions(width=SIDE).pattern(),
    AxialOptions(width=SIDE, axis=0).pattern(causal=True),
    AxialOptions(width=SIDE).pattern(causal=True),
)


def _rectangles(**flanges: int) -> Stack:
    """Image Transformer in 2-D, over rectangles of 2 × 2, twice."""
    block: dict[str, int] = {"rows": 2, "block": 2}
    seen = ImageTransformerOptions(width=SIDE, **block, **flanges).pattern(causal=True)
    return Stack((seen, seen), tuple(generation_order(SIDE, SIDE, **block).tolist()))


STACKS: Mapping[str, Stack] = {
    "full": Stack((patterns.causal(),) * 2),
    "1-D window": Stack((patterns.local(4).causal(),) * 2),
    "1-D blocks": Stack((ImageTransformerOptions(block=4, memory=2).pattern(causal=True),) * 2),
    "2-D window": Stack((patterns.local_2d((SIDE, SIDE), 1).causal(),) * 2),
    "2-D blocks": _rectangles(above=1, memory=1),
    "2-D strips": _rectangles(above=1, memory=0),
    "axial": Stack(
        tuple(AxialOptions(width=SIDE, axis=axis).pattern(causal=True) for axis in (1, 0))
    ),
    "axial + shift": Stack(),
}

PATIENT = ("full", "1-D window", "2-D window", "axial + shift")


def _seeing(pattern: Pattern) -> Layer:
    """A layer whose heads all use ``pattern``."""

    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        made = PatternAttention(dim, heads, AxialOptions(), causal=True, form="naive")
        made.pattern = pattern
        return made

    return layer


def _generator(dim: int, heads: int, causal: bool) -> nn.Module:
    return LinesAndColumns(dim, heads, causal=causal, width=SIDE, form="naive")


def _model(patterns: Sequence[Pattern], **sizes: Any) -> TinyTransformer:
    """Counts one layer for each pattern; without patterns the paper's axial generator."""
    layers = [_seeing(each) for each in patterns] or [_generator]
    return TinyTransformer(**sizes, layers=len(layers), attention=layers)


# ---- digits


@torch.no_grad()
def bits_per_pixel(model: nn.Module, task: Written) -> float:
    """The mean of −log₂ p over every pixel of every image of the validation split."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    logits = model(unseen.inputs)
    return F.cross_entropy(logits.flatten(0, 1), unseen.targets.flatten()).item() / math.log(2)


def _bits(trained: Trained) -> Scores:
    bits = bits_per_pixel(trained.model, trained.arm.task)
    pairs = STACKS[trained.name.split(", ")[0]].pairs
    note = f"{pairs:,} pairs per head, over all layers"
    return {"": (round(bits, 4), "bits per pixel", note)}


def _arm(name: str, steps: int = STEPS) -> Arm:
    stack = STACKS[name]
    return Arm(Written(stack.order), {"patterns": stack.layers}, steps=steps)


DIGITS = Grid(
    arms={
        **{name: _arm(name) for name in STACKS},
        **{f"{name}, {LONGER} steps": _arm(name, LONGER) for name in PATIENT},
    },
    score=_bits,
    make=_model,
    model={"dim": 32, "heads": 2, "hidden": 64},
    training={"batch_size": 32, "learning_rate": 5e-3},
    figure="{arm}, seed {seed}",
)
writer = DIGITS.build


def write(name: str, seed: int, *, steps: int = STEPS) -> tuple[float, TinyTransformer]:
    """One training on digits: bits per pixel, and the model."""
    model, _ = DIGITS.train(name, seed, steps=steps)
    return bits_per_pixel(model, DIGITS.arms[name].task), model


# ---- arrows

ARROWS = ("neighbour", "across")
_AXES = tuple(patterns.axial((FIELD, FIELD), axis) for axis in (1, 0))
_SQUARE = patterns.local_2d((FIELD, FIELD), 1)
REACHES: Mapping[str, tuple[Pattern, ...]] = {
    "full × 1": (patterns.full(),),
    "2-D window × 1": (_SQUARE,),
    "2-D window × 2": (_SQUARE, _SQUARE),
    "axial × 1": (patterns.per_head(*_AXES),),
    "axial × 2": _AXES,
}


@torch.no_grad()
def arrived(model: TinyTransformer, task: Arrows) -> float:
    """The per cent of cells that give the right colour."""
    unseen = task.batch("validation", 256, seed=0)
    right = model(unseen.inputs).argmax(-1) == unseen.targets
    return 100 * right[unseen.targets >= 0].float().mean().item()


def ceiling(name: str, points: str) -> float:
    """The best possible per cent: cells that can depend on their goal, and right guesses."""
    after = patterns.receptive_field(REACHES[name], FIELD**2, len(REACHES[name])).after[-1]
    goals = Arrows(points).goals()
    reached = after[goals >= 0, goals[goals >= 0]].float().mean().item()
    return 100 * (reached + (1 - reached) / COLOURS)


def _arrived(trained: Trained) -> Scores:
    points, name = trained.name.split(", ")
    note = f"the pattern allows {ceiling(name, points):.1f}"
    return {"": (round(arrived(trained.model, trained.arm.task), 1), "%", note)}


POINTERS = Grid(
    arms={
        f"{points}, {name}": Arm(Arrows(points), {"patterns": layers})
        for points in ARROWS
        for name, layers in REACHES.items()
    },
    score=_arrived,
    steps=300,
    make=_model,
    model=DIGITS.model,
    training=DIGITS.training,
    figure="{arm}, seed {seed}",
)


def point(
    name: str, points: str, seed: int, *, steps: int | None = None
) -> tuple[float, TinyTransformer]:
    """One training on arrows: the per cent of cells that are right, and the model."""
    model, _ = POINTERS.train(f"{points}, {name}", seed, steps=steps)
    return arrived(model, Arrows(points)), model


GRID = Grids((DIGITS, POINTERS))
SEEDS = DIGITS.seeds
rows, batches = GRID.rows, GRID.batches
