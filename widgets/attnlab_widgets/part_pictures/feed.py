"""A feed-forward layer: which hidden units the tokens of a text reach, or which experts."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.core.probe import Notes, record
from attnlab.figures.theme import CIVIDIS, SERIES, Theme, blend
from attnlab_widgets.part_pictures.sketch import SMALL, Sketch, counted, sheet

TEXT = ("the", "cat", "saw", "the", "dog", "that", "saw", "a", "cat")
DIM = 12
_ROW, _TOP, _LEFT = 14, 30, 44
_SHADES = 24
_FEW = 0.1  # of the largest
_ROUNDED = 1e-5  # of the largest
_LOUD = 2.0  # so that curves and gates open and close


class Reached(NamedTuple):
    """What the tokens of the text reach: ``units`` (n, f) of a hidden layer or a memory; or of
    ``experts`` those that took each token (n, k), -1 for none, and where one was ``dropped``."""

    units: np.ndarray
    taken: np.ndarray | None = None
    dropped: np.ndarray | None = None
    experts: int = 0
    what: str = "hidden units"


def draw(card: Card, theme: Theme) -> Sketch:
    found = look(card)
    return _of_units(found, theme) if found.taken is None else _of_experts(found, theme)


def look(card: Card) -> Reached:
    """One pass of a fresh layer over the text, in which equal words are equal vectors."""
    layer = build(card.name, dim=DIM).eval()
    words = {word: _LOUD * torch.randn(DIM) for word in TEXT}
    x = torch.stack([words[word] for word in TEXT])[None]
    kept: list[Tensor] = []
    handle = _last(layer).register_forward_pre_hook(lambda _, args: kept.append(args[0].detach()))
    with record() as notes, torch.no_grad():
        layer(x)
    handle.remove()
    n = len(TEXT)
    if "router" in notes:
        taken = notes.last("experts").reshape(n, -1).numpy()
        dropped = notes.last("dropped").reshape(n, -1).numpy()
        return Reached(np.zeros((n, 0)), taken, dropped, notes.last("router").shape[-1])
    if "chosen" in notes:
        return Reached(_slots(notes, layer), what="values of a memory")
    return Reached(kept[-1].reshape(n, -1).numpy())


def _slots(notes: Notes, layer: Any) -> np.ndarray:
    """How much each token takes from each value of a memory (n, values), in as many columns
    as can be seen."""
    chosen = notes.last("chosen").reshape(len(TEXT), -1)
    weights = notes.last("weights").reshape(len(TEXT), -1)
    whole = torch.zeros(len(TEXT), len(layer.contract.weight))
    whole.scatter_add_(1, chosen, weights.to(whole.dtype))
    read = (whole > 0).any(0)
    return whole[:, read].numpy()


def _last(layer: nn.Module) -> nn.Module:
    """The matrix that brings the hidden layer back to the stream."""
    found: list[Any] = [part.contract for part in layer.modules() if hasattr(part, "contract")]
    last: nn.Module = (found or [p for p in layer.modules() if isinstance(p, nn.Linear)])[-1]
    return last


def _of_units(found: Reached, theme: Theme) -> Sketch:
    hidden = found.units
    n, f = hidden.shape
    size = np.abs(hidden)
    share = size / max(float(size.max()), 1e-9)
    quiet = size < _FEW * size.max()
    levels = np.where(quiet, _SHADES, np.rint(share * (_SHADES - 1))).astype(int)
    palette = [blend(CIVIDIS, at / (_SHADES - 1)) for at in range(_SHADES)] + ["#00000000"]
    high = _TOP + n * _ROW + 22
    drawing = sheet(high, theme, f"{n} tokens reach {f} {found.what}")
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
    room = _ROUNDED * float(size.max())  # rows of one product may be rounded differently
    same = all(np.allclose(hidden[i], hidden[j], rtol=0, atol=room) for i, j in _pairs())
    said = "Equal tokens reach the same units" if same else "Equal tokens reach different units"
    return Sketch(drawing, f"{n} tokens and {f} {found.what}, {active:.0%} not near zero. {said}.")


def _pairs() -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(TEXT)) for j in range(i) if TEXT[i] == TEXT[j]]


def _of_experts(found: Reached, theme: Theme) -> Sketch:
    taken, dropped, experts = found.taken, found.dropped, found.experts
    assert taken is not None
    assert dropped is not None
    n = len(taken)
    high = max(n * _ROW, experts * 12)
    drawing = sheet(_TOP + high + 22, theme, f"{n} tokens and {experts} experts")
    right, step = 250, high / experts
    places = [_TOP - 8 + step * (expert + 0.5) for expert in range(experts)]
    for at, row in enumerate(taken):
        y = _TOP + high / n * at
        drawing.text(TEXT[at], _LEFT - 5, y, size=SMALL, anchor="end")
        for expert in row[row >= 0]:
            colour = SERIES[int(expert) % len(SERIES)]
            middle = (_LEFT + right) / 2
            ends = (_LEFT, y), (right, places[int(expert)])
            drawing.curve((ends[0], (middle, y), (middle, ends[1][1]), ends[1]), colour, 1.5)
        if (row < 0).all():
            drawing.line([(_LEFT, y), (_LEFT + 40, y)], theme.quiet, 1, "2 3")
            lost = "dropped" if dropped[at].any() else "no expert"
            drawing.text(lost, _LEFT + 44, y, size=SMALL, quiet=True)
    each = [int((taken == expert).sum()) for expert in range(experts)]
    for expert, y in enumerate(places):
        drawing.box(right, y - step / 2 + 1, 10, step - 2, SERIES[expert % len(SERIES)])
        drawing.text(f"expert {expert + 1}: {each[expert]}", right + 16, y, size=SMALL)
    below = "to the right, how many tokens each expert takes"
    drawing.text(below, _LEFT, drawing.high - 9, size=SMALL, quiet=True)
    alone, full = int((taken < 0).all(1).sum()), int(dropped.sum())
    words = [f"{n} tokens and {experts} experts, which take {', '.join(map(str, each))} of them"]
    if full:
        words.append(f"{counted(full, 'choice finds', 'choices find')} no room")
    if alone:
        words.append(f"{counted(alone, 'token is', 'tokens are')} taken by none")
    return Sketch(drawing, f"{'; '.join(words)}.")
