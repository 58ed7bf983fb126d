"""A depth: its layers in the order in which they run, and what each leaves for the backward pass.

The layers are stand-ins that book when they are called; what autograd saves meanwhile is counted,
beside what the same layers save in the plain loop.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from attnlab import catalog
from attnlab.core.branches import Branch
from attnlab.core.card import Card
from attnlab.core.depth import Way
from attnlab.core.options import parameters_of
from attnlab.core.typeset import in_plain_text
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, Theme
from attnlab_widgets.part_pictures.sketch import SMALL, WIDE, Sketch, counted, sheet

LAYERS, MOST = 6, 8
ROWS, N, DIM = 1, 5, 8
_TOP, _TALL, _SIDE = 42, 36, 30


class Book:
    """Calls of layers in their order, and what was saved: inside each call, and before it."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.inside: list[int] = []
        self.before: list[int] = [0]
        self.open = False
        self._seen: dict[int, Tensor] = {}

    def begin(self, layer: int) -> None:
        self.calls.append(layer)
        self.inside.append(0)
        self.before.append(0)
        self.open = True

    def end(self) -> None:
        self.open = False

    def save(self, saved: Tensor) -> Tensor:
        place = saved.untyped_storage().data_ptr()
        if not isinstance(saved, nn.Parameter) and place not in self._seen:
            self._seen[place] = saved
            kept = self.inside if self.open else self.before
            kept[-1] += saved.numel()
        return saved


class Layer(nn.Module):
    """Two branches on the stream, as a depth sees a layer."""

    padding = None
    start = 0

    def __init__(self, number: int, book: Book) -> None:
        super().__init__()
        self.number, self.book = number, book
        made = [nn.Parameter(0.2 * torch.randn(DIM, DIM)) for _ in range(2)]
        self.matrices = nn.ParameterList(made)

    def forward(self, x: Tensor) -> Tensor:
        self.book.begin(self.number)
        for matrix in self.matrices:
            x = x + torch.tanh(x @ matrix)
        self.book.end()
        return x

    @property
    def branches(self) -> Sequence[Branch]:
        return [Branch(self._attend, (self.matrices[0],)), Branch(self._feed, (self.matrices[1],))]

    def _attend(self, x: Tensor) -> Tensor:
        self.book.begin(self.number)
        out = torch.tanh(x @ self.matrices[0])
        self.book.end()
        return out

    def _feed(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.matrices[1])


def look(name: str) -> Book:
    """One forward pass of the depth in training."""
    book = Book()
    takes = parameters_of(catalog.card(name).build)
    given = {key: value for key, value in {"dim": DIM, "layers": LAYERS}.items() if key in takes}
    way = catalog.build(name, **given).train()
    sets = [*zip(*(way if isinstance(way, Way) else Way()).sets(LAYERS), strict=True)]
    made = {own: Layer(sets.index(own), book) for own in sets}
    layers = [made[own] for own in sets]
    x = torch.randn(ROWS, N, DIM, requires_grad=True)
    with saved_tensors_hooks(book.save, _same):
        way(x, layers)
    return book


def _same(saved: Tensor) -> Tensor:
    return saved


def draw(card: Card, theme: Theme) -> Sketch:
    book = look(card.name)
    whole = max(look("plain").inside)
    calls = book.calls[:MOST]
    drawing = sheet(112, theme, f"{LAYERS} layers, as they run")
    step = (WIDE - 34) / max(len(calls), 1)
    side = min(_SIDE, step - 12)
    middle = _TOP + _TALL / 2
    x = 17.0
    for at, number in enumerate(calls):
        drawing.line([(x, middle), (x + step - side, middle)], theme.quiet, 1.5)
        _kept_before(drawing, x + (step - side) / 2, middle, book.before[at])
        x += step - side
        again = number in calls[:at]
        _box(drawing, x, side, number, book.inside[at] / whole, again)
        if again:
            last = max(i for i in range(at) if calls[i] == number)
            _back(drawing, x + side / 2, x + side / 2 - (at - last) * step)
        x += side
    drawing.line([(x, middle), (x + 17, middle)], theme.quiet, 1.5)
    _kept_before(drawing, x + 9, middle, book.before[len(calls)])
    if len(book.calls) > MOST:
        more = f"and so on: {len(book.calls)} calls in all"
        drawing.text(more, WIDE - 8, 12, size=SMALL, quiet=True, anchor="end")
    parts = len(drawing.parts)
    _key(drawing)
    return Sketch(drawing, _words(card, book, whole), key=len(drawing.parts) - parts)


def _box(drawing: Drawing, x: float, side: float, number: int, kept: float, again: bool) -> None:
    theme = drawing.theme
    drawing.box(x, _TOP, side, _TALL, theme.panel)
    full = _TALL * min(kept, 1)
    if full > 0.5:
        drawing.box(x, _TOP + _TALL - full, side, full, SERIES[0])
    drawing.frame(x, _TOP, side, _TALL, theme.quiet, 1 if again else 2)
    ink = "#ffffff" if kept > 0.6 else theme.ink
    drawing.text(str(number + 1), x + side / 2, _TOP + _TALL / 2, anchor="middle", colour=ink)


def _kept_before(drawing: Drawing, x: float, y: float, kept: int) -> None:
    if kept:
        drawing.disc(x, y, 4.5, SERIES[0])


def _back(drawing: Drawing, x: float, to: float) -> None:
    """The weights are those of an earlier box."""
    high, y = _TOP - 12, _TOP - 1
    drawing.curve(((x, y), (x, high), (to, high), (to, y)), SERIES[1], 1.5)


def _key(drawing: Drawing) -> None:
    y = drawing.high - 14
    drawing.box(8, y - 5, 10, 10, SERIES[0])
    drawing.text("kept inside", 23, y, size=SMALL, quiet=True)
    drawing.disc(99, y, 4.5, SERIES[0])
    drawing.text("stream kept", 108, y, size=SMALL, quiet=True)
    drawing.box(182, y - 5, 10, 10, drawing.theme.panel, drawing.theme.quiet)
    drawing.text("computed again", 197, y, size=SMALL, quiet=True)
    drawing.line([(288, y), (304, y)], SERIES[1], 1.5)
    drawing.text("same weights", 309, y, size=SMALL, quiet=True)


def _words(card: Card, book: Book, whole: int) -> str:
    claims: Any = card.claims
    inside = sum(each > whole / 2 for each in book.inside)
    places = sum(each > 0 for each in book.before)
    sets, calls = len({*book.calls}), len(book.calls)
    shared = f" of {counted(sets, 'set', 'sets')} of weights" if sets < calls else ""
    return (
        f"{LAYERS} layers run in {counted(calls, 'call', 'calls')}{shared}. The forward pass keeps "
        f"all that is inside {inside or 'none'} of them, and the stream at "
        f"{counted(places, 'other place', 'other places').replace('none', 'no')} "
        f"(claimed: {in_plain_text(claims.kept)} elements)."
    )
