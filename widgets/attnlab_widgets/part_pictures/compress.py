"""A compression: one matrix before and after."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.figures.theme import SIGNED, Theme, blend
from attnlab_widgets.part_pictures.sketch import SMALL, Sketch, sheet

ROWS, COLUMNS = 14, 24
_TOP, _CELL, _GAP = 46, 6, 50
_SHADES = 64


def draw(card: Card, theme: Theme) -> Sketch:
    before, after, stored = look(card)
    largest = float(np.abs(before).max())
    palette = [blend(SIGNED, at / (_SHADES - 1)) for at in range(_SHADES)] + ["#00000000"]
    high = _TOP + ROWS * _CELL + 24
    drawing = sheet(high, theme, "A matrix before and after")
    wide, tall = COLUMNS * _CELL, ROWS * _CELL
    zero = int((after == 0).sum())
    for at, (name, values) in enumerate((("before", before), ("after", after))):
        left = 16 + at * (wide + _GAP)
        share = np.clip((values / largest + 1) / 2, 0, 1)
        levels = np.where(values == 0, _SHADES, np.rint(share * (_SHADES - 1))).astype(int)
        drawing.text(name, left, _TOP - 10, size=SMALL, quiet=True)
        drawing.box(left, _TOP, wide, tall, theme.panel)
        drawing.map(levels, palette, left, _TOP, wide, tall)
        drawing.frame(left, _TOP, wide, tall, theme.grid)
    middle, x = _TOP + tall / 2, 16 + wide + 10
    drawing.line([(x, middle), (x + _GAP - 24, middle)], theme.quiet, 2)
    tip = x + _GAP - 18
    drawing.patch([(tip, middle), (tip - 8, middle - 5), (tip - 8, middle + 5)], theme.quiet)
    error = float(((before - after) ** 2).sum() / (before**2).sum())
    said = f"squared error {error:.1%}" + (f" · {zero / after.size:.0%} zeros" if zero else "")
    if stored:
        said = f"{stored[0]:,} → {stored[1]:,} bytes · {said}"
    drawing.text(said, 16, high - 10, size=SMALL, quiet=True)
    return Sketch(drawing, f"A matrix of {ROWS} by {COLUMNS} weights before and after: {said}.")


def look(card: Card) -> tuple[np.ndarray, np.ndarray, tuple[int, int] | None]:
    """The matrix before and after, and the bytes of both where the page counts them.

    After is what the layer multiplies by, seen from its answers to unit vectors.
    """
    layer = nn.Linear(COLUMNS, ROWS)
    wave = torch.sin(torch.arange(ROWS)[:, None] / 3 + torch.arange(COLUMNS) / 5)
    with torch.no_grad():
        layer.weight.copy_(0.5 * wave + 0.5 * torch.randn(ROWS, COLUMNS))
    compress: Any = build(card.name)
    try:
        smaller = compress(nn.Sequential(layer))
    except ValueError:  # what is removed as a unit stands between two layers
        smaller = compress(nn.Sequential(layer, nn.Identity(), nn.Linear(ROWS, ROWS)))[:1]
    before = layer.weight.detach().numpy()
    stored = None
    if hasattr(compress, "bytes"):
        stored = before.size * before.itemsize, int(compress.bytes(smaller))
    return before, _product(smaller).numpy(), stored


def _product(module: nn.Module) -> Tensor:
    with torch.no_grad():
        return (module(torch.eye(COLUMNS)) - module(torch.zeros(1, COLUMNS))).mT
