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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternAttention
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.fixed.axial import Axes, LinesAndColumns
from attnlab.mechanisms.fixed.image_transformer import QueryBlocks, generation_order
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import SPLITS, UNSCORED, Batch, task
from attnlab.train import fit

SIDE = 8
STEPS = 300
LONGER = 900  # to see whether the order of the patterns stays
SEEDS = (0, 1, 2)
UNSEEN = 355  # images of the validation split
MODEL: Mapping[str, Any] = {"dim": 32, "heads": 2, "hidden": 64}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 5e-3}

Layer = Callable[[int, int, bool], nn.Module]


class Stack(NamedTuple):
    """The patterns of the layers, in turn, and the order in which pixels are generated."""

    layers: tuple[Pattern, ...] = ()  # none: the paper's axial generator
    order: tuple[int, ...] = tuple(range(SIDE**2))

    @property
    def pairs(self) -> int:
        """Of one head, over all layers."""
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
    Axes(width=SIDE).pattern(),
    Axes(width=SIDE, axis=0).pattern(causal=True),
    Axes(width=SIDE).pattern(causal=True),
)


def _rectangles(**flanges: int) -> Stack:
    """Image Transformer in 2-D, over rectangles of 2 × 2, twice."""
    block: dict[str, int] = {"rows": 2, "block": 2}
    seen = QueryBlocks(width=SIDE, **block, **flanges).pattern(causal=True)
    return Stack((seen, seen), tuple(generation_order(SIDE, SIDE, **block).tolist()))


STACKS: Mapping[str, Stack] = {
    "full": Stack((patterns.causal(),) * 2),
    "1-D window": Stack((patterns.local(4).causal(),) * 2),
    "1-D blocks": Stack((QueryBlocks(block=4, memory=2).pattern(causal=True),) * 2),
    "2-D window": Stack((patterns.local_2d((SIDE, SIDE), 1).causal(),) * 2),
    "2-D blocks": _rectangles(above=1, memory=1),
    "2-D strips": _rectangles(above=1, memory=0),
    "axial": Stack(tuple(Axes(width=SIDE, axis=axis).pattern(causal=True) for axis in (1, 0))),
    "axial + shift": Stack(),
}

PATIENT = ("full", "1-D window", "2-D window", "axial + shift")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training."""
    seeds = (0,) if quick else SEEDS
    digits = [(name, "", STEPS) for name in STACKS]
    digits += [(name, f"{LONGER} steps, ", LONGER) for name in PATIENT]
    with thread_count(threads):
        for name, prefix, steps in digits:
            for seed in seeds:
                bits = write(name, seed, steps=2 if quick else steps)[0]
                note = f"{STACKS[name].pairs:,} pairs per head, over all layers"
                figure = f"{name}, {prefix}seed {seed}"
                yield Row(figure, round(bits, 4), "bits per pixel", note=note)
        for kind in ARROWS:
            for name in REACHES:
                for seed in seeds:
                    share = point(name, kind, seed, steps=2 if quick else ARROW_STEPS)[0]
                    note = f"the pattern allows {ceiling(name, kind):.1f}"
                    yield Row(f"{kind}, {name}, seed {seed}", round(share, 1), "%", note=note)


# ---- digits


@dataclass(frozen=True)
class Written:
    """The task: digits, their pixels in another order than line by line."""

    order: tuple[int, ...] = tuple(range(SIDE**2))
    name: str = field(default="digits", init=False)
    kind: str = field(default="language_model", init=False)

    def batch(self, split: Any, size: int, seed: int) -> Any:
        """The inputs are a start token and 63 pixels, the targets all 64 pixels."""
        batch = _digits().batch(split, size, seed)
        pixels = batch.targets[:, list(self.order)]
        return Batch(torch.cat([batch.inputs[:, :1], pixels[:, :-1]], dim=1), pixels)


def _digits() -> Any:
    return task("digits", unit="pixels", kind="language_model")


def write(name: str, seed: int, *, steps: int = STEPS) -> tuple[float, TinyTransformer]:
    """One training on digits: bits per pixel, and the model."""
    model, task = writer(name, seed), Written(STACKS[name].order)
    fit(model, task, steps, seed=seed, progress=False, device="cpu", **TRAINING)
    return bits_per_pixel(model.eval(), task), model


def writer(name: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    layers = STACKS[name].layers
    build = [_seeing(layer) for layer in layers] or [_generator]
    return _model(_digits().model_options(), build, seed)


def _seeing(pattern: Pattern) -> Layer:
    """A layer whose heads all use ``pattern``."""

    def layer(dim: int, heads: int, causal: bool) -> nn.Module:
        made = PatternAttention(dim, heads, Axes(), causal=True, form="naive")
        made.pattern = pattern
        return made

    return layer


def _generator(dim: int, heads: int, causal: bool) -> nn.Module:
    return LinesAndColumns(dim, heads, causal=causal, width=SIDE, form="naive")


def _model(options: Mapping[str, Any], layers: Sequence[Layer], seed: int) -> TinyTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**options, **MODEL, layers=len(layers), attention=list(layers))


@torch.no_grad()
def bits_per_pixel(model: nn.Module, task: Written) -> float:
    """The mean of −log₂ p over every pixel of every image of the validation split."""
    unseen = task.batch("validation", UNSEEN, seed=0)
    logits = model(unseen.inputs)
    return F.cross_entropy(logits.flatten(0, 1), unseen.targets.flatten()).item() / math.log(2)


# ---- arrows

FIELD, COLOURS = 6, 4  # cells on a side; how many colours a cell may have
ARROWS = ("neighbour", "across")
ARROW_STEPS = 300
LONGER = 900  # to see whether the order of the patterns stays

_AXES = tuple(patterns.axial((FIELD, FIELD), axis) for axis in (1, 0))
_SQUARE = patterns.local_2d((FIELD, FIELD), 1)
REACHES: Mapping[str, tuple[Pattern, ...]] = {
    "full × 1": (patterns.full(),),
    "2-D window × 1": (_SQUARE,),
    "2-D window × 2": (_SQUARE, _SQUARE),
    "axial × 1": (patterns.per_head(*_AXES),),
    "axial × 2": _AXES,
}


@dataclass(frozen=True)
class Arrows:
    """The task: cells of random colours; the target of each is the colour of another cell."""

    points: str = "neighbour"
    name: str = field(default="arrows", init=False)
    kind: str = field(default="language_model", init=False)

    def goals(self) -> Tensor:
        """Where each cell points: (n,), −1 where that is outside of the grid."""
        cell = torch.arange(FIELD**2)
        if self.points == "across":
            return cell.flip(0)
        up_left = cell - FIELD - 1
        return torch.where((cell >= FIELD) & (cell % FIELD > 0), up_left, -1)

    def batch(self, split: Any, size: int, seed: int) -> Any:
        """Splits differ by their random draws; of 4³⁶ grids, repeats are practically impossible."""
        generator = torch.Generator().manual_seed(2 * seed + SPLITS.index(split))
        colours = torch.randint(COLOURS, (size, FIELD**2), generator=generator)
        goals = self.goals()
        return Batch(colours, torch.where(goals < 0, UNSCORED, colours[:, goals.clamp(min=0)]))


def point(
    name: str, points: str, seed: int, *, steps: int = ARROW_STEPS
) -> tuple[float, TinyTransformer]:
    """One training on arrows: the per cent of cells that are right, and the model."""
    options = {"vocab": COLOURS, "kind": "language_model", "max_len": FIELD**2}
    model = _model(options, [_seeing(layer) for layer in REACHES[name]], seed)
    task = Arrows(points)
    fit(model, task, steps, seed=seed, progress=False, device="cpu", **TRAINING)
    unseen = task.batch("validation", 256, seed=0)
    with torch.no_grad():
        answers = model.eval()(unseen.inputs).argmax(-1)
    asked = unseen.targets >= 0
    return 100 * (answers == unseen.targets)[asked].float().mean().item(), model


def ceiling(name: str, points: str) -> float:
    """The best possible per cent: cells that can depend on their goal, and right guesses."""
    after = patterns.receptive_field(REACHES[name], FIELD**2, len(REACHES[name])).after[-1]
    goals = Arrows(points).goals()
    reached = after[goals >= 0, goals[goals >= 0]].float().mean().item()
    return 100 * (reached + (1 - reached) / COLOURS)
