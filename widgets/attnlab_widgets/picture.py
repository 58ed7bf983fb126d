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

from attnlab.figures.theme import CIVIDIS, SIGNED, THEMES, blend
from attnlab_widgets.drawing import Drawing
from attnlab_widgets.layer_names import short_name
from attnlab_widgets.quantization import allowed, decode, unkept

_MARGIN, _GAP, _TOP = 24, 48, 96
_LABEL = 104  # pixels for a token
_ROW = 20
_MOST_ROWS = 24  # tokens drawn with lines
_MAP = 420
_SERIES = ("#0072b2", "#d55e00")


@dataclass
class Maps:
    """The maps of a recording under what is chosen."""

    view: Any

    def one(self, layer: int, head: int) -> np.ndarray:
        shown = self.view.shown
        if shown == "difference":
            return self._read(1, layer, head) - self._read(0, layer, head)
        return self._read(int(shown == "second"), layer, head)

    def hidden(self, layer: int, head: int) -> np.ndarray:
        """(n, m): which pairs the mask forbids; those are hatched."""
        recording = self.view._recording
        which = int(self.view.shown == "second")
        mask = recording["blocks"][self.view.step][which][layer].get("mask")
        n, m = recording["layers"][layer]["n"], recording["layers"][layer]["m"]
        if mask is None:
            return np.zeros((n, m), bool)
        return ~allowed(mask, self.view._data, head, n, m)

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
    """All heads, the chosen one as lines and as a matrix, and what was done to the weights."""
    theme = THEMES["dark" if view.theme == "dark" else "light"]
    layers = view._recording["layers"]
    shape = layers[view.layer]
    signed = view._recording["signed"] or view.shown == "difference"
    palette = [blend(SIGNED if signed else CIVIDIS, i / 254) for i in range(255)]
    maps = Maps(view)
    most = max(layer["h"] for layer in layers)
    side = max(14, min(56, 420 // most))
    heads_wide = most * (side + 4) + 32
    high = max(len(layers) * (side + 4), _MAP + _LABEL, _MOST_ROWS * _ROW) + _TOP + 64
    lines_at = _MARGIN + heads_wide + _GAP
    matrix_at = lines_at + 420 + _GAP
    drawing = Drawing(matrix_at + _LABEL + _MAP + _MARGIN, high, theme)
    drawing.text(_title(view), _MARGIN, 28, size=15)
    done = _changes(view)
    if done:
        drawing.text(done, _MARGIN, 50)
    _heads(drawing, view, maps, palette, signed, side)
    chosen = maps.one(view.layer, _head(view))
    _lines(drawing, view, chosen, shape, lines_at, signed)
    _matrix(drawing, view, chosen, shape, matrix_at, palette, signed)
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
    maps, layers = Maps(view), view._recording["layers"]
    signed = view._recording["signed"] or view.shown == "difference"
    palette = [blend(SIGNED if signed else CIVIDIS, i / 254) for i in range(255)]
    drawing.text(name, x, 58, size=13)
    drawing.text(_title(view), x + _GRID + 16, 82, quiet=True, size=11)
    drawing.text("all heads", x, 82, quiet=True, size=11)
    step = min(44, _GRID / max(layer["h"] for layer in layers), _CHOSEN / len(layers))
    for at, layer in enumerate(layers):
        for head in range(layer["h"]):
            small = _pooled(maps.one(at, head), 40)
            place = (x + head * step, 96 + at * step, step - 4, step - 4)
            drawing.map(_levels(small, float(np.abs(small).max()), signed), palette, *place)
            _hatched(drawing, maps.hidden(at, head), place, 40)
            if (at, head) == (view.layer, _head(view)):
                left, top, wide, high = place
                drawing.frame(left - 1.5, top - 1.5, wide + 3, high + 3, _SERIES[1], 2)
    chosen = maps.one(view.layer, _head(view))
    n, m = chosen.shape
    cell = _CHOSEN / max(n, m)
    place = (x + _GRID + 16, 96, max(8.0, m * cell), max(8.0, n * cell))
    drawing.map(_levels(chosen, float(np.abs(chosen).max()), signed), palette, *place)
    _hatched(drawing, maps.hidden(view.layer, _head(view)), place, 1024)


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


def _hatched(
    drawing: Drawing, hidden: np.ndarray, place: tuple[float, float, float, float], most: int
) -> None:
    """Hatches what is masked; where the map is pooled, blocks of masked pairs only."""
    if not hidden.any():
        return
    step = -(-max(hidden.shape) // most)
    rows, columns = (-(-side // step) * step for side in hidden.shape)
    whole = np.ones((rows, columns), bool)
    whole[: hidden.shape[0], : hidden.shape[1]] = hidden
    blocks = whole.reshape(rows // step, step, columns // step, step)
    drawing.hatch(np.asarray(blocks.all((1, 3))), *place)


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


def _heads(
    drawing: Drawing, view: Any, maps: Maps, palette: list[str], signed: bool, side: int
) -> None:
    for at, layer in enumerate(view._recording["layers"]):
        y = _TOP + at * (side + 4)
        drawing.text(
            short_name(layer["title"], at),
            _MARGIN + 24,
            y + side / 2,
            anchor="end",
            quiet=True,
            size=11,
        )
        for head in range(layer["h"]):
            x = _MARGIN + 32 + head * (side + 4)
            small = _pooled(maps.one(at, head), 96)
            levels = _levels(small, float(np.abs(small).max()), signed)
            drawing.map(levels, palette, x, y, side, side)
            _hatched(drawing, maps.hidden(at, head), (x, y, side, side), 96)
            if (at, head) == (view.layer, _head(view)):
                drawing.frame(x - 1.5, y - 1.5, side + 3, side + 3, _SERIES[1], 3)
            if at == 0:
                drawing.text(
                    str(head), x + side / 2, _TOP - 12, anchor="middle", quiet=True, size=11
                )


def _label(view: Any, place: dict[str, int], at: int) -> str:
    return str(view._recording["tokens"][place["set"]][place["start"] + at][0])


def _lines(
    drawing: Drawing, view: Any, chosen: np.ndarray, shape: dict[str, Any], x: int, signed: bool
) -> None:
    n, m = chosen.shape
    pinned = view.query if view.query is not None and view.query < n else None
    start = 0 if pinned is None else max(0, pinned - _MOST_ROWS // 2)
    start = max(0, min(start, max(n, m) - _MOST_ROWS))
    stop = start + _MOST_ROWS
    left, right = x + _LABEL, x + 420 - _LABEL
    for i in range(start, min(stop, max(n, m))):
        y = _TOP + (i - start + 0.5) * _ROW
        if i < n:
            drawing.text(_label(view, shape["q"], i), left - 6, y, anchor="end", quiet=i != pinned)
        if i < m:
            drawing.text(_label(view, shape["k"], i), right + 6, y, quiet=True)
    queries = range(start, min(stop, n)) if pinned is None else [pinned]
    largest = float(np.abs(chosen).max()) or 1
    for i in queries:
        for j in _strongest(chosen[i], view):
            if not start <= j < stop or not start <= i < stop:
                continue
            y0, y1 = (_TOP + (at - start + 0.5) * _ROW for at in (i, j))
            bend = (right - left) * 0.4
            points = ((left, y0), (left + bend, y0), (right - bend, y1), (right, y1))
            colour = _SERIES[int(chosen[i, j] > 0)] if signed else _SERIES[0]
            drawing.curve(points, colour, 0.6 + 6 * abs(float(chosen[i, j])) / largest)
    shown = min(stop, max(n, m))
    if (start, shown) != (0, max(n, m)):
        more = f"tokens {start} to {shown - 1} of {max(n, m)}"
        drawing.text(more, left, _TOP + (_MOST_ROWS + 0.8) * _ROW, quiet=True, size=11)


def _strongest(row: np.ndarray, view: Any) -> list[int]:
    size = np.abs(row)
    order = np.argsort(-size, kind="stable")
    order = order[: view.top_k] if view.top_k else order
    least = view.threshold * size.max()
    return [int(j) for j in order if size[j] >= least and size[j] > 0]


def _matrix(
    drawing: Drawing,
    view: Any,
    chosen: np.ndarray,
    shape: dict[str, Any],
    x: int,
    palette: list[str],
    signed: bool,
) -> None:
    n, m = chosen.shape
    cell = _MAP / max(n, m)
    wide, high = max(8.0, m * cell), max(8.0, n * cell)
    left, top = x + _LABEL, _TOP + _LABEL - 24
    largest = float(np.abs(chosen).max())
    drawing.map(_levels(_pooled(chosen, 1024), largest, signed), palette, left, top, wide, high)
    _hatched(drawing, Maps(view).hidden(view.layer, _head(view)), (left, top, wide, high), 1024)
    drawing.frame(left - 0.5, top - 0.5, wide + 1, high + 1, drawing.theme.grid)
    step = max(1, -(-max(n, m) // 28))
    for i in range(0, n, step):
        y = top + (i + 0.5) * high / n
        drawing.text(_label(view, shape["q"], i), left - 6, y, anchor="end", quiet=True, size=11)
    for j in range(0, m, step):
        across = left + (j + 0.5) * wide / m
        drawing.text(_label(view, shape["k"], j), across, top - 6, quiet=True, turned=True, size=11)
    _scale(drawing, palette, left, top + high + 20, largest, signed)


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
