"""The attention view as a static picture of what is chosen in it, drawn in Python alone.

It reads the same bytes as the front end, and applies the same rules (hidden first token, value
norms, threshold, lines per token).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import max_pool2d

from attnlab.figures.drawing import Drawing
from attnlab.figures.theme import CIVIDIS, SIGNED, THEMES, blend
from attnlab.lens.sources.layer_names import short_name
from attnlab_widgets.picture_image import indexed, parts, patch, shaded, summed
from attnlab_widgets.quantization import allowed, decode, unkept

_WIDE, _HIGH = 992, 440  # of the picture, which a notebook shows as it is; of its panels
_MARGIN, _TOP = 14, 92
_MATRIX = 400
_ROW = 20
_BESIDE, _APART = 12, 5  # the column of what a row leaves of one, and its distance
_LABEL = 0.36  # of the width of the lines, for the tokens of a side
_SERIES = ("#0072b2", "#d55e00")
_SERIES_DARK = ("#56b4e9", "#f08a3c")
_SIGNED_DARK = ("#8cc8ff", "#2f7fc1", "#22262d", "#c8661a", "#ffbe85")  # as in src/lib/colours.js


@dataclass
class Maps:
    """The maps of a recording under what is chosen."""

    view: Any

    def one(self, layer: int, head: int) -> np.ndarray:
        shown = self.view.shown
        if shown == "difference":
            return self._read(1, layer, head) - self._read(0, layer, head)
        return self._read(int(shown == "second"), layer, head)

    def hidden(self, layer: int, head: int) -> np.ndarray | None:
        """The pairs (n, m) that the mask does not allow; None where no mask is known."""
        which = {"first": [0], "second": [1], "difference": [0, 1]}[self.view.shown]
        shape = self.view._recording["layers"][layer]
        found = []
        for one in which:
            header = self.view._recording["blocks"][self.view.step][one][layer]
            if "mask" not in header:
                return None
            size = shape["n"], shape["m"]
            found.append(~allowed(header["mask"], self.view._data, head, *size))
        return np.logical_and.reduce(found)

    def left(self, layer: int, head: int) -> np.ndarray | None:
        """(n,) what each row of the shown weights leaves of one; None where that is nothing."""
        view = self.view
        if view.shown == "difference" or view.hide_first or view.value_weighted:
            return None
        header = view._recording["blocks"][view.step][int(view.shown == "second")][layer]
        if "left" not in header:
            return None
        shape = view._recording["layers"][layer]["h"], view._recording["layers"][layer]["n"]
        return np.asarray(_reader(view._data, header["left"])("<f4", shape)[head])

    def _read(self, which: int, layer: int, head: int) -> np.ndarray:
        recording = self.view._recording
        header = recording["blocks"][self.view.step][which][layer]
        shape = recording["layers"][layer]
        h, n, m = shape["h"], shape["n"], shape["m"]
        part = _reader(self.view._data, header["at"])
        norms = part("<f4", (h, m))[head] if header["norms"] else None
        weighted = self.view.value_weighted and norms is not None
        if header["whole"]:
            maps = _whole(part, h, n, m, head, header)
            sums = (maps @ norms if weighted else maps.sum(axis=1))[:, None]
        else:
            maps, sums = _kept(part, h, n, m, head, header, weighted)
        if weighted:
            maps = maps * norms
        if self.view.hide_first:
            sums = sums - maps[:, :1]
            maps[:, 0] = 0
        if weighted or self.view.hide_first:
            maps = maps / np.where(sums > 1e-12, sums, 1)
        return np.asarray(maps)


def _reader(data: bytes, at: int) -> Any:
    def part(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal at
        found = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape)
        at += found.nbytes + -found.nbytes % 4
        return found

    return part


def _whole(part: Any, h: int, n: int, m: int, head: int, header: dict[str, Any]) -> np.ndarray:
    first, scales = part("<f4", (h, n))[head], part("<f4", (h, n))[head]
    maps = decode(part("u1", (h, n, m))[head], scales, header["signed"])
    maps[:, 0] = first
    return maps


def _kept(
    part: Any, h: int, n: int, m: int, head: int, header: dict[str, Any], weighted: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For long inputs: the weights that were kept, and the sums of the whole rows."""
    k, side = header["kept"], header["side"]
    first, plain = (part("<f4", (h, n))[head] for _ in range(2))
    by_norms = part("<f4", (h, n))[head] if header["norms"] else plain
    scales, _ = part("<f4", (h, n))[head], part("<f4", (h, -(-n // side)))
    columns = [part("u1", (h, n, k))[head] for _ in range(header["planes"])]
    places, codes = unkept(columns, part("u1", (h, n, k))[head])
    maps = np.zeros((n, m), np.float32)
    kept = decode(codes, scales, header["signed"])
    np.put_along_axis(maps, places, kept, axis=1)
    maps[:, 0] = first
    return maps, (by_norms if weighted else plain)[:, None]


def draw(view: Any) -> Drawing:
    """All heads, the chosen one as lines (of an image: over its patches) and as a matrix, and what
    was done to the weights."""
    theme = THEMES["dark" if view.theme == "dark" else "light"]
    drawing = Drawing(_WIDE, _TOP + _HIGH + 58, theme)
    drawing.text(_title(view), _MARGIN, 24, size=15, bold=True)
    still = _Still(drawing, view)
    drawing.text(_changes(view) or still.sentence(), _MARGIN, 48, size=13)
    at = still.heads(_MARGIN, 290)
    middle = still.image if still.grid("k") else still.lines
    middle(at + 24, _WIDE - _MARGIN - _MATRIX - 20)
    still.matrix(_WIDE - _MARGIN - _MATRIX)
    return drawing


_COLUMN, _GRID, _CHOSEN = 480, 150, 290


def beside(title: str, views: Sequence[tuple[str, Any]]) -> Drawing | None:
    """The heads of several views and the chosen one of each, side by side; None without a view."""
    shown = [(name, view) for name, view in views if view is not None]
    if not shown:
        return None
    theme = THEMES["dark" if shown[0][1].theme == "dark" else "light"]
    drawing = Drawing(_MARGIN + _COLUMN * len(shown), 120 + _CHOSEN, theme)
    drawing.text(title, _MARGIN, 26, size=16, bold=True)
    for at, (name, view) in enumerate(shown):
        _one_beside(drawing, name, view, _MARGIN + at * _COLUMN)
    return drawing


def _one_beside(drawing: Drawing, name: str, view: Any, x: float) -> None:
    still, layers = _Still(drawing, view), view._recording["layers"]
    drawing.text(name, x, 58, size=13)
    drawing.text(_title(view), x + _GRID + 16, 82, quiet=True, size=11)
    drawing.text("all heads", x, 82, quiet=True, size=11)
    step = min(44, _GRID / max(layer["h"] for layer in layers), _CHOSEN / len(layers))
    for at, layer in enumerate(layers):
        for head in range(layer["h"]):
            place = (x + head * step, 96 + at * step, step - 4, step - 4)
            still.map(at, head, 40, place)
            if (at, head) == (view.layer, _head(view)):
                left, top, wide, high = place
                drawing.frame(left - 1.5, top - 1.5, wide + 3, high + 3, _SERIES[1], 2)
    n, m = still.chosen.shape
    cell = _CHOSEN / max(n, m)
    place = (x + _GRID + 16, 96, max(8.0, m * cell), max(8.0, n * cell))
    still.map(view.layer, _head(view), 1024, place)


def _head(view: Any) -> int:
    """The one that is shown: the last, where the layer has fewer than the one chosen in another."""
    return int(min(view.head, view._recording["layers"][view.layer]["h"] - 1))


def _title(view: Any) -> str:
    names = view._recording["names"]
    which = {"first": names[0], "second": names[1], "difference": f"{names[1]} − {names[0]}"}
    compared = f" · {which[view.shown]}" if view._recording["compared"] else ""
    step = view._recording["steps"][view.step]
    steps = f" · training step {step}" if step else ""
    title = view._recording["layers"][view.layer]["title"] or f"layer {view.layer}"
    return f"{title[0].upper()}{title[1:]} · head {_head(view)}{compared}{steps}"


def _changes(view: Any) -> str:
    done = ["weighted by value norms"] * view.value_weighted
    done += ["first token hidden"] * view.hide_first
    return f"Not the raw weights: {', '.join(done)}; rows renormalised to sum to 1." if done else ""


def _levels(maps: np.ndarray, largest: float, signed: bool) -> np.ndarray:
    share = np.sqrt(np.clip(np.abs(maps) / (largest or 1), 0, 1))
    place = 127 + 127 * np.sign(maps) * share if signed else 254 * share
    return np.asarray(np.rint(place).astype(int))


def _pooled(maps: np.ndarray, most: int) -> np.ndarray:
    """At most ``most`` cells a side, each the weight of largest size in its block."""
    step = -(-max(maps.shape) // most)
    if step == 1:
        return maps
    both = [
        max_pool2d(torch.from_numpy(np.ascontiguousarray(x))[None], step, ceil_mode=True)[0].numpy()
        for x in (maps, -maps)
    ]
    return np.where(both[0] >= both[1], both[0], -both[1])


def _strongest(row: np.ndarray, view: Any) -> list[int]:
    size = np.abs(row)
    order = np.argsort(-size, kind="stable")
    order = order[: view.top_k] if view.top_k else order
    least = view.threshold * size.max()
    return [int(j) for j in order if size[j] >= least and size[j] > 0]


def _word(text: str, most: int = 16) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass
class _Still:
    """The parts of the picture, each drawn where it is told."""

    drawing: Drawing
    view: Any

    def __post_init__(self) -> None:
        view = self.view
        self.layers = view._recording["layers"]
        self.shape = self.layers[view.layer]
        self.signed = view._recording["signed"] or view.shown == "difference"
        dark = self.drawing.theme is THEMES["dark"]
        scale = (_SIGNED_DARK if dark else SIGNED) if self.signed else CIVIDIS
        self.palette = [blend(scale, i / 254) for i in range(255)]
        self.series = _SERIES_DARK if dark else _SERIES
        self.maps = Maps(view)
        self.chosen = self.maps.one(view.layer, _head(view))
        self.hidden = self.maps.hidden(view.layer, _head(view))
        n = self.chosen.shape[0]
        self.query = view.query if view.query is not None and view.query < n else None

    def token(self, side: str, at: int) -> str:
        place = self.shape[side]
        return str(self.view._recording["tokens"][place["set"]][place["start"] + at][0])

    def grid(self, side: str) -> dict[str, int] | None:
        """The grid of the patches that the tokens of a side are; None where they are none."""
        grids = self.view._recording.get("grids")
        return grids[self.shape[side]["set"]] if grids else None

    def row(self, query: int) -> np.ndarray:
        """(m,) what a query attends to; the mean over the vectors of a patch that has several."""
        own = parts(self.grid("q"), len(self.chosen))
        return np.asarray(self.chosen[next(each for each in own if query in each)].mean(0))

    def sentence(self) -> str:
        """What the pinned query attends to: of a patch of several vectors to all together."""
        if self.query is None:
            return ""
        given = self.row(self.query)
        keys, row = parts(self.grid("k"), len(given)), np.array(summed(self.grid("k"), given))
        found = [
            f"{self.token('k', keys[at][0]).lstrip('␣')} {row[at]:.2f}".replace("-", "−")
            for at in np.argsort(-np.abs(row), kind="stable")[:3]
            if abs(row[at]) >= 0.02 * np.abs(row).max() > 0
        ]
        return f"{self.token('q', self.query).lstrip('␣')} attends to {', '.join(found)}"

    def map(
        self, layer: int, head: int, most: int, box: tuple[float, ...], top: float | None = None
    ) -> None:
        """A head's map; where nothing that a cell shows may be attended to, it is hatched. ``top``
        is the end of the scale, if it is not the largest weight."""
        x, y, w, h = box
        small = _pooled(self.maps.one(layer, head), most)
        largest = float(np.abs(small).max()) if top is None else top
        self.drawing.map(_levels(small, largest, self.signed), self.palette, x, y, w, h)
        hidden = self.maps.hidden(layer, head)
        if hidden is not None:
            masked = _pooled((~hidden).astype(np.float32), most) == 0
            self.drawing.hatch(masked & (small == 0), x, y, w, h)

    def heads(self, x: float, wide: float) -> float:
        """In a row for each layer; gives where they end."""
        most = max(layer["h"] for layer in self.layers)
        lead = 56 if any(layer["title"] for layer in self.layers) else 28
        side = int(min(130, (wide - lead) / most - 4, (_HIGH - 4) / len(self.layers) - 4))
        side = max(10, side)
        for at, layer in enumerate(self.layers):
            y = _TOP + at * (side + 4)
            name = short_name(layer["title"], at)
            self.drawing.text(name, x + lead - 6, y + side / 2, anchor="end", quiet=True, size=11)
            for head in range(layer["h"]):
                left = x + lead + head * (side + 4)
                self.map(at, head, 96, (left, y, side, side))
                if (at, head) == (self.view.layer, _head(self.view)):
                    self.drawing.frame(left - 1.5, y - 1.5, side + 3, side + 3, _SERIES[1], 3)
                if at == 0:
                    middle = left + side / 2
                    self.drawing.text(
                        str(head), middle, _TOP - 12, anchor="middle", quiet=True, size=11
                    )
        return x + lead + most * (side + 4)

    def lines(self, x: float, end: float) -> None:
        """Queries and keys over the whole height, labelled where there is room."""
        n, m = self.chosen.shape
        pitch = min(_ROW, _HIGH / max(n, m))
        left, right = (x + _LABEL * (end - x), end - _LABEL * (end - x))
        queries = range(n) if self.query is None else [self.query]
        hits = {i: _strongest(self.chosen[i], self.view) for i in queries}
        pinned = {} if self.query is None else {"q": [self.query], "k": hits[self.query]}
        if self.query is not None and self.hidden is not None:
            column = self.hidden[self.query][:, None]
            self.drawing.hatch(column, right, _TOP, end - right, m * pitch)
        for side, count, at, anchor in (("q", n, left - 6, "end"), ("k", m, right + 6, "start")):
            first = pinned.get(side, [])
            for i in _labelled(count, pitch, first):
                y = _TOP + (i + 0.5) * pitch
                text = _word(self.token(side, i), 13)
                self.drawing.text(text, at, y, anchor=anchor, quiet=i not in first, size=11)
        largest = float(np.abs(self.chosen).max()) or 1
        for i, keys in hits.items():
            for j in keys:
                y0, y1 = (_TOP + (at + 0.5) * pitch for at in (i, j))
                bend = (right - left) * 0.4
                points = ((left, y0), (left + bend, y0), (right - bend, y1), (right, y1))
                colour = self.series[int(self.chosen[i, j] > 0) if self.signed else 0]
                width = 0.6 + min(6, pitch / 2) * abs(float(self.chosen[i, j])) / largest
                self.drawing.curve(points, colour, width)

    def image(self, x: float, end: float) -> None:
        """The image, bright where the pinned query attends to, or all queries on the mean."""
        image, keys, queries = self.view._recording["image"], self.grid("k"), self.grid("q")
        weights = self.chosen.mean(0) if self.query is None else self.row(self.query)
        wide = min(end - x, (_HIGH - 40) * image["width"] / image["height"])
        box = (x, _TOP, wide, wide * image["height"] / image["width"])
        self.drawing.map(*indexed(shaded(image["url"], keys or {}, weights)), *box)
        who = "the queries on the mean attend" if self.query is None else "the query attends"
        if queries and self.query is not None and (place := patch(queries, self.query, box)):
            left, top, w, h = place
            self.drawing.frame(left, top, w, h, _SERIES[1], 2)
            who = "the framed patch attends"
        below = _TOP + box[3] + 18
        self.drawing.text("bright: what " + who + " to", x, below, quiet=True, size=11)

    def matrix(self, x: float) -> None:
        n, m = self.chosen.shape
        words = [self.token("q", i) for i in range(min(n, 400))]
        label = 6.4 * min(13, max(map(len, words)))
        rest = self.maps.left(self.view.layer, _head(self.view))
        beside = 0 if rest is None else _BESIDE + _APART
        cell = min((_MATRIX - label - 8 - beside) / m, (_HIGH - label) / n)
        wide, high = max(8.0, m * cell), max(8.0, n * cell)
        left, top = x + label + 8 + beside, _TOP + label
        largest = float(np.abs(self.chosen).max())
        if rest is not None:
            largest = max(largest, float(rest.max()))
            self._column(rest, largest, left - beside, top, high)
        self.map(self.view.layer, _head(self.view), 1024, (left, top, wide, high), largest)
        self.drawing.frame(left - 0.5, top - 0.5, wide + 1, high + 1, self.drawing.theme.grid)
        for i in _labelled(n, high / n, [] if self.query is None else [self.query]):
            look = {"anchor": "end", "quiet": i != self.query, "size": 11}
            at = left - beside - 6
            self.drawing.text(_word(words[i], 13), at, top + (i + 0.5) * high / n, **look)
        for j in _labelled(m, wide / m, []):
            across = left + (j + 0.5) * wide / m
            word = _word(self.token("k", j), 13)
            self.drawing.text(word, across, top - 6, quiet=True, turned=True, size=11)
        low = top + high + 16
        _scale(self.drawing, self.palette, left, low, largest, self.signed)
        if self.hidden is not None:
            self.drawing.hatch(np.ones((1, 1)), left + 222, low, 22, 10)
            self.drawing.text("masked", left + 250, low + 5, quiet=True, size=11)

    def _column(self, rest: np.ndarray, largest: float, x: float, y: float, high: float) -> None:
        """What each row leaves of one, apart from the map and on its scale."""
        levels = _levels(_pooled(rest[:, None], 1024), largest, self.signed)
        self.drawing.map(levels, self.palette, x, y, _BESIDE, high)
        self.drawing.frame(x - 0.5, y - 0.5, _BESIDE + 1, high + 1, self.drawing.theme.grid)
        middle = x + _BESIDE / 2
        self.drawing.text("rest of 1", middle, y - 6, quiet=True, turned=True, size=11)


def _labelled(count: int, pitch: float, first: list[int]) -> list[int]:
    """The places that are labelled: those that must be, then at equal steps as room allows."""
    step = max(1, -(-12 // pitch)) if pitch < 12 else 1
    found = list(first)
    for i in range(0, count, int(step)):
        if i not in found and all(abs(i - other) * pitch >= 12 for other in found):
            found.append(i)
    return [i for i in found if i < count]


def _scale(
    drawing: Drawing, palette: list[str], x: float, y: float, largest: float, signed: bool
) -> None:
    drawing.map(np.arange(255)[None], palette, x, y, 200, 10)
    for share in (-1, 0, 1) if signed else (0, 0.5, 1):
        place = (share + 1) / 2 if signed else share
        value = np.sign(share) * share**2 * largest
        anchor = "start" if place == 0 else "end" if place == 1 else "middle"
        text = f"{value:+.2g}" if signed and value else f"{value:.2g}"
        drawing.text(
            text.replace("-", "−"), x + 200 * place, y + 22, anchor=anchor, quiet=True, size=11
        )
