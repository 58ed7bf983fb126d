"""A depth: its layers in the order in which they run, and what each leaves for the backward pass.

The layers are stand-ins that book when they are called; what autograd saves meanwhile is counted,
beside what the same layers save in the plain loop.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from attnlab import catalog
from attnlab.catalog import remembered
from attnlab.core.branches import Branch
from attnlab.core.card import Card
from attnlab.core.options import parameters_of
from attnlab.core.typeset import in_plain_text
from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import SERIES, Theme
from attnlab_widgets.part_pictures.sketch import SMALL, WIDE, Sketch, counted, sheet

LAYERS, MOST, DRAWS = 6, 12, 8
ROWS, N, DIM = 1, 5, 8
HALVES = ("s", "f")
"""The sublayers of a layer: self-attention and the feed-forward layer."""
_TOP, _TALL, _SIDE, _END = 42, 36, 30, 17.0


class Call(NamedTuple):
    """A layer that ran, or one of its ``HALVES``; layers of one ``weights`` share parameters."""

    layer: int
    half: str
    weights: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.half or str(self.layer + 1)


class Book:
    """Calls of layers in their order, and what was saved: inside each call, and before it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inside: list[int] = []
        self.before: list[int] = [0]
        self.open, self.rounds = False, 1
        self._seen: dict[int, Tensor] = {}

    def begin(self, call: Call) -> None:
        self.calls.append(call)
        self.inside.append(0)
        self.before.append(0)
        self.open = True

    def end(self) -> None:
        self.open = False

    def close(self) -> None:
        """Let go of what was saved, which is counted."""
        self._seen.clear()

    def save(self, saved: Tensor) -> Tensor:
        place = saved.untyped_storage().data_ptr()
        if not isinstance(saved, nn.Parameter) and place not in self._seen:
            self._seen[place] = saved
            kept = self.inside if self.open else self.before
            kept[-1] += saved.numel()
        return saved

    def skipped(self) -> list[int]:
        """The layers that did not run, where the others ran once and in their order."""
        ran = [call.layer for call in self.calls]
        once = ran == sorted({*ran}) and not any(call.half for call in self.calls)
        return [layer for layer in range(LAYERS) if layer not in ran] if once and ran else []

    def with_gaps(self) -> None:
        """Put the layers that did not run in their places."""
        for layer in self.skipped():
            self.calls.insert(layer, Call(layer, "", ()))
            self.inside.insert(layer, 0)
            self.before.insert(layer, 0)

    def in_layers(self) -> None:
        """Put the halves of layers together where they run in the usual order, and rounds through
        all layers in one."""
        ran = [(call.layer, call.half) for call in self.calls]
        for parts in (HALVES, ("",)):
            usual = [(layer, half) for layer in range(LAYERS) for half in parts]
            rounds = len(ran) // len(usual)
            if ran and ran == usual * rounds:
                self._fold(rounds, len(parts))

    def _fold(self, rounds: int, parts: int) -> None:
        """Into one call for each layer; of so many ``parts`` in each of the ``rounds``."""
        inside, before = [0] * LAYERS, [0] * LAYERS
        for at in range(len(self.calls)):
            layer, part = at // parts % LAYERS, at % parts
            inside[layer] += self.inside[at] + (self.before[at] if part else 0)
            before[layer] += 0 if part else self.before[at]
        first = self.calls[: LAYERS * parts : parts]
        self.calls = [call._replace(half="") for call in first]
        self.inside, self.before = inside, [*before, self.before[-1]]
        self.rounds = rounds


class Layer(nn.Module):
    """Two branches on the stream, as a depth sees a layer."""

    padding = None
    start = 0

    def __init__(self, number: int, book: Book, weights: tuple[int, ...]) -> None:
        super().__init__()
        self.number, self.book, self.weights = number, book, weights
        made = [nn.Parameter(0.05 * torch.randn(DIM, DIM)) for _ in HALVES]  # contracts
        self.matrices = nn.ParameterList(made)

    def forward(self, x: Tensor) -> Tensor:
        self.book.begin(Call(self.number, "", self.weights))
        for matrix in self.matrices:
            x = x + torch.tanh(x @ matrix)
        self.book.end()
        return x

    @property
    def branches(self) -> Sequence[Branch]:
        return [self._branch(half) for half in HALVES]

    def _branch(self, half: str) -> Branch:
        matrix = self.matrices[HALVES.index(half)]

        def run(x: Tensor) -> Tensor:
            self.book.begin(Call(self.number, half, self.weights))
            out = torch.tanh(x @ matrix)
            self.book.end()
            return out

        return Branch(run, (matrix,))


def look(name: str) -> Book:
    """One forward pass of the depth in training; where it leaves out layers at random, one in which
    it does."""
    return deepcopy(_looked(name))


@remembered
def _looked(name: str) -> Book:
    books = []
    with torch.random.fork_rng(devices=[]):
        for seed in range(DRAWS):
            torch.manual_seed(seed)
            books.append(_booked(name))
            if books[-1].skipped():
                return books[-1]
    return books[0]


def _booked(name: str) -> Book:
    book = Book()
    takes = parameters_of(catalog.card(name).build)
    sizes: dict[str, Any] = {"dim": DIM, "layers": LAYERS}
    given = {key: value for key, value in sizes.items() if key in takes}
    way: Any = catalog.build(name, **given).train()
    sets = way.sets(LAYERS) if hasattr(way, "sets") else (range(LAYERS),)
    weights = zip(*sets, strict=True)
    layers = [Layer(at, book, shared) for at, shared in enumerate(weights)]
    x = torch.randn(ROWS, N, DIM, requires_grad=True)
    with saved_tensors_hooks(book.save, _same):
        way(x, layers)
    book.in_layers()
    book.close()
    return book


def _same(saved: Tensor) -> Tensor:
    return saved


def draw(card: Card, theme: Theme) -> Sketch:
    book = look(card.name)
    whole = max(look("plain").inside)
    words = _words(card, book, whole)
    skipped = book.skipped()
    book.with_gaps()
    calls = book.calls[:MOST]
    halves = any(call.half for call in calls)
    what = "sublayers: s attention, f feed-forward layer" if halves else "layers, as they run"
    if book.rounds > 1:
        what = f"layers, run {book.rounds} times until nothing changes"
    drawing = sheet(112, theme, f"{LAYERS * (1 + halves)} {what}")
    step = (WIDE - 2 * _END) / max(len(calls), 1)
    side = min(_SIDE, step * 0.62)
    x, middle = _END, _TOP + _TALL / 2
    for at, call in enumerate(calls):
        drawing.line([(x, middle), (x + step - side, middle)], theme.quiet, 1.5)
        _kept_before(drawing, x + (step - side) / 2, middle, book.before[at])
        x += step - side
        earlier = [i for i in range(at) if _same_weights(calls[i], call)]
        if call.layer in skipped:
            _gap(drawing, x, side, middle, call.name)
        else:
            kept = book.inside[at] / whole * (1 + halves)
            _box(drawing, x, side, call.name, kept, bool(earlier))
        if earlier:
            _back(drawing, x + side / 2, x + side / 2 - (at - earlier[-1]) * step)
        x += side
    if book.rounds > 1:
        _back(drawing, x - side / 2, _END + step - side / 2)
    drawing.line([(x, middle), (x + _END, middle)], theme.quiet, 1.5)
    _kept_before(drawing, x + _END / 2, middle, book.before[len(calls)])
    if len(book.calls) > MOST:
        more = f"and so on: {len(book.calls)} calls in all"
        drawing.text(more, WIDE - 8, 12, size=SMALL, quiet=True, anchor="end")
    parts = len(drawing.parts)
    _key(drawing)
    return Sketch(drawing, words, key=len(drawing.parts) - parts)


def _same_weights(one: Call, other: Call) -> bool:
    return one.weights == other.weights and one.half == other.half


def _box(drawing: Drawing, x: float, side: float, name: str, kept: float, again: bool) -> None:
    theme = drawing.theme
    drawing.box(x, _TOP, side, _TALL, theme.panel)
    full = _TALL * min(kept, 1)
    if full > 0.5:
        drawing.box(x, _TOP + _TALL - full, side, full, SERIES[0])
    drawing.frame(x, _TOP, side, _TALL, theme.quiet, 1 if again else 2)
    ink = "#ffffff" if kept > 0.6 else theme.ink
    drawing.text(name, x + side / 2, _TOP + _TALL / 2, anchor="middle", colour=ink)


def _gap(drawing: Drawing, x: float, side: float, middle: float, name: str) -> None:
    """A layer that was left out: the stream goes past it."""
    quiet, low = drawing.theme.quiet, _TOP + _TALL
    corners = [(x, _TOP), (x + side, _TOP), (x + side, low), (x, low), (x, _TOP)]
    drawing.line(corners, quiet, 1, "3 3")
    drawing.line([(x, middle), (x + side, middle)], quiet, 1.5)
    drawing.text(name, x + side / 2, _TOP + 9, size=SMALL, anchor="middle", quiet=True)


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
    drawing.text("not kept", 197, y, size=SMALL, quiet=True)
    drawing.line([(262, y), (282, y)], SERIES[1], 1.5)
    drawing.text("same weights", 288, y, size=SMALL, quiet=True)


def _words(card: Card, book: Book, whole: float) -> str:
    claims: Any = card.claims
    halves = any(call.half for call in book.calls)
    whole /= 1 + halves
    inside = sum(each > whole / 2 for each in book.inside)
    places = sum(each > 0 for each in book.before)
    sets = len({(call.weights, call.half) for call in book.calls})
    calls = len(book.calls) * book.rounds
    shared = f" of {counted(sets, 'set', 'sets')} of weights" if sets < calls else ""
    skipped = book.skipped()
    if skipped:
        shared += f", {counted(len(skipped), 'is', 'are')} left out"
    if book.rounds > 1:
        shared = f", {book.rounds} rounds through the same layers"
    what = f"The sublayers of {LAYERS} layers" if halves else f"{LAYERS} layers"
    return (
        f"{what} run in {counted(calls, 'call', 'calls')}{shared}. The forward pass keeps what is "
        f"inside {inside or 'none'} of them, and the stream at "
        f"{counted(places, 'other place', 'other places').replace('none', 'no')} "
        f"(claimed: {in_plain_text(claims.kept)} elements)."
    )
