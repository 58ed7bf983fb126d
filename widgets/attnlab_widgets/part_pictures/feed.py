"""A feed-forward layer: which hidden units the tokens of a text reach, or which experts."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.core.probe import record
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SERIES, Theme, blend
from attnlab_widgets.part_pictures.sketch import SMALL, Sketch, counted, sheet

TEXT = ("the", "cat", "saw", "the", "dog", "that", "saw", "a", "cat")
DIM = 12
_ROW, _TOP, _LEFT = 14, 30, 44
_SHADES = 24
_FEW = 0.1  # of the largest
_LOUD = 2.0  # so that curves and gates open and close


def draw(card: Card, theme: Theme) -> Sketch:
    hidden, chosen, experts = look(card)
    if chosen is not None:
        return _of_experts(chosen, experts, theme)
    return _of_units(hidden, theme)


def look(card: Card) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Of each token its hidden units (n, f), or the experts that it chose (n, k), -1 for none; and
    how many experts there are."""
    layer = build(card.name, dim=DIM).eval()
    words = {word: _LOUD * torch.randn(DIM) for word in TEXT}
    x = torch.stack([words[word] for word in TEXT])[None]
    kept: list[Tensor] = []
    last = _last(layer)
    handle = last.register_forward_pre_hook(lambda _, args: kept.append(args[0].detach()))
    with record() as notes, torch.no_grad():
        layer(x)
    handle.remove()
    n = len(TEXT)
    if "chosen" in notes:
        chosen = torch.as_tensor(notes.last("chosen")).reshape(n, -1).numpy()
        return np.zeros((n, 0)), chosen, _experts(layer, chosen)
    return kept[-1].reshape(n, -1).numpy(), None, 0


def _last(layer: Any) -> nn.Module:
    """The matrix that brings the hidden layer back to the stream."""
    found = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    contract = getattr(layer, "contract", None)
    return contract if isinstance(contract, nn.Module) else found[-1]


def _experts(layer: Any, chosen: np.ndarray) -> int:
    return int(getattr(layer, "experts", chosen.max() + 1))


def _of_units(hidden: np.ndarray, theme: Theme) -> Sketch:
    n, f = hidden.shape
    size = np.abs(hidden)
    share = size / max(float(size.max()), 1e-9)
    quiet = size < _FEW * size.max()
    levels = np.where(quiet, _SHADES, np.rint(share * (_SHADES - 1))).astype(int)
    palette = [blend(CIVIDIS, at / (_SHADES - 1)) for at in range(_SHADES)] + ["#00000000"]
    high = _TOP + n * _ROW + 22
    drawing = sheet(high, theme, f"{n} tokens reach {f} hidden units")
    wide = drawing.wide - _LEFT - 10
    drawing.box(_LEFT, _TOP - 8, wide, n * _ROW, theme.panel)
    drawing.map(levels, palette, _LEFT, _TOP - 8, wide, n * _ROW)
    for at, word in enumerate(TEXT):
        drawing.text(word, _LEFT - 5, _TOP + _ROW * at, size=SMALL, anchor="end")
    active = 1 - quiet.mean()
    drawing.text(
        f"one column a unit, bright = large · {active:.0%} are not near zero",
        *(_LEFT, high - 9),
        size=SMALL,
        quiet=True,
    )
    same = all(np.allclose(hidden[i], hidden[j]) for i, j in _pairs())
    said = "Equal tokens reach the same units" if same else "Equal tokens reach different units"
    return Sketch(drawing, f"{n} tokens and {f} hidden units, {active:.0%} not near zero. {said}.")


def _pairs() -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(TEXT)) for j in range(i) if TEXT[i] == TEXT[j]]


def _of_experts(chosen: np.ndarray, experts: int, theme: Theme) -> Sketch:
    n = len(chosen)
    drawing = sheet(_TOP + n * _ROW + 22, theme, f"{n} tokens choose among {experts} experts")
    right, step = 250, n * _ROW / max(experts, 1)
    places = [_TOP - 8 + step * (expert + 0.5) for expert in range(experts)]
    for at, row in enumerate(chosen):
        y = _TOP + _ROW * at
        drawing.text(TEXT[at], _LEFT - 5, y, size=SMALL, anchor="end")
        for expert in row[row >= 0]:
            colour = SERIES[int(expert) % len(SERIES)]
            _way(drawing, _LEFT, y, right, places[int(expert)], colour)
        if (row < 0).all():
            _way(drawing, _LEFT, y, _LEFT + 60, y, theme.quiet, "2 3")
            drawing.text("dropped", _LEFT + 64, y, size=SMALL, quiet=True)
    taken = [int((chosen == expert).sum()) for expert in range(experts)]
    for expert, y in enumerate(places):
        colour = SERIES[expert % len(SERIES)]
        drawing.box(right, y - step / 2 + 1, 10, step - 2, colour)
        number = f"expert {expert}: {taken[expert]}"
        drawing.text(number, right + 16, y, size=SMALL)
    drawing.text(
        "tokens of each expert to the right", _LEFT, drawing.high - 9, size=SMALL, quiet=True
    )
    lost = int((chosen < 0).all(axis=1).sum())
    said = f"; {counted(lost, 'is', 'are')} dropped" if lost else ""
    listed = ", ".join(map(str, taken))
    return Sketch(drawing, f"{n} tokens choose among {experts} experts{said}. Taken: {listed}.")


def _way(
    drawing: Drawing, x: float, y: float, to: float, down: float, colour: str, dash: str = ""
) -> None:
    if dash:
        drawing.line([(x, y), (to, down)], colour, 1, dash)
        return
    middle = (x + to) / 2
    drawing.curve(((x, y), (middle, y), (middle, down), (to, down)), colour, 1.5)
