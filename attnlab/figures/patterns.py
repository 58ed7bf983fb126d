"""Patterns drawn: who may see whom, block by block, head by head, layer by layer, and how many.

A pattern is drawn as one tiny bitmap, whatever its length, so that a notebook stays light. Blocks
are told apart by their look, not by colour alone: an empty one is hatched, a full one is framed,
and a mixed one shows its cells.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from attnlab.core.patterns import Pattern, ReceptiveField, receptive_field
from attnlab.figures.arrays import booleans
from attnlab.figures.curves import cost_curves
from attnlab.figures.labels import escaped, tick_step
from attnlab.figures.layout import (
    add_player,
    axis,
    bare_axis,
    hatching,
    layout,
    note,
    text_width,
)
from attnlab.figures.picture import Picture, Row
from attnlab.figures.svg import png
from attnlab.figures.theme import CIVIDIS, SERIES, Theme, colours, theme_name

Mask = NDArray[np.bool_]
LARGEST = 512
LARGEST_REACH = 128
MOST_FRAMES = 32
MOST_PANELS = 16
_INK, _LINE, _FRAME = SERIES[0], "#808080", "#ffffff"
_SIDE = 430


def pattern_map(
    pattern: Pattern | Any,
    n: int,
    *,
    title: str,
    block: int | None = None,
    theme: str | None = None,
) -> Picture:
    """Who of n positions may see whom, with the boundaries of blocks of ``block`` positions.

    ``pattern`` may also be a mask (n, n), True = may attend. Blocks have a size of their own by
    default: the power of two that gives eight to sixteen of them.
    """
    mask, blocks = _drawable("pattern", pattern, n, block)
    theme = theme_name(theme)
    look = colours(theme)
    page = _one_panel(look, title, n)
    page["images"] = _overlays(mask, blocks, "x", "y", theme, _SIDE)
    page["annotations"] = [_legend(look)]
    return Picture(
        list(_hovered(blocks, "x", "y")),
        page,
        description=f"{_closed(title)} {_said(mask, blocks)} {_described(pattern)}".strip(),
        rows=_rows(mask),
        theme=theme,
    )


def head_patterns(
    patterns: Pattern | Sequence[Pattern],
    n: int,
    *,
    title: str,
    names: Sequence[str] | None = None,
    block: int | None = None,
    theme: str | None = None,
) -> Picture:
    """A small panel for each head (of a ``per_head`` pattern) or each pattern of a list.

    ``names`` say what the panels show; by default they are heads 0, 1, 2, …
    """
    several = _several(patterns)
    said = [f"head {h}" for h in range(len(several))] if names is None else list(names)
    if len(said) != len(several):
        raise ValueError(f"`names` has {len(said)} names for {len(several)} patterns")
    panels = [_drawable(name, one, n, block) for name, one in zip(said, several, strict=True)]
    theme = theme_name(theme)
    page = _panels(colours(theme), title, said, [mask for mask, _ in panels])
    traces: list[go.Scatter] = []
    for at, (mask, blocks) in enumerate(panels):
        axes = _numbered("x", at), _numbered("y", at)
        page["images"] += _overlays(mask, blocks, *axes, theme, _panel(len(panels)))
        traces += _hovered(blocks, *axes)
    description = f"{_closed(title)} {len(panels)} patterns of {n} positions. " + " ".join(
        f"{name}: {_said(mask, blocks)}" for name, (mask, blocks) in zip(said, panels, strict=True)
    )
    rows = [_head_row(name, *panel) for name, panel in zip(said, panels, strict=True)]
    return Picture(traces, page, description=description, rows=rows, theme=theme)


def reach_film(
    patterns: Pattern | Sequence[Pattern],
    n: int,
    *,
    layers: int,
    title: str,
    residual: bool = True,
    theme: str | None = None,
) -> Picture:
    """Which inputs can influence which outputs after one layer, two, … ``layers``: a slider.

    The layers take their patterns in turn. A cell tells the first layer after which its input
    arrives; the slider also works on a page without a kernel.
    """
    if not 1 <= n <= LARGEST_REACH:
        raise ValueError(f"reach is drawn for 1 to {LARGEST_REACH} positions, got n={n}")
    if not 1 <= layers <= MOST_FRAMES:
        raise ValueError(f"reach is drawn for 1 to {MOST_FRAMES} layers, got layers={layers}")
    known = receptive_field(patterns, n, layers, residual=residual)
    after = np.stack([frame.numpy() for frame in known.after])
    first = np.where(after.any(0), after.argmax(0) + 1, 0)
    theme = theme_name(theme)
    look = colours(theme)
    page = _reach_page(look, title, n, layers)
    stops = list(range(1, layers + 1))
    add_player(page, look, stops, "after layer")
    cells = [_arrived(np.where(frame, first, 0), layers) for frame in after]
    frames = [
        go.Frame(name=str(stop), data=[{"type": "heatmap", "z": z}])
        for stop, z in zip(stops, cells, strict=True)
    ]
    trace = go.Heatmap(
        z=cells[-1],
        coloraxis="coloraxis",
        hovertemplate="output %{y}<br>input %{x}<extra></extra>",
    )
    return Picture(
        [trace],
        page,
        frames,
        description=f"{_closed(title)} {_reach_words(known, n, layers)}",
        rows=_reach_rows(after),
        theme=theme,
    )


def density_curves(
    patterns: Mapping[str, Pattern | Callable[[int], Pattern]],
    lengths: Sequence[int],
    *,
    title: str,
    theme: str | None = None,
) -> Picture:
    """The share of the pairs that each pattern allows against the length, both axes logarithmic.

    A pattern whose numbers follow the length is given as a function of it: ``lambda n:
    local(isqrt(n))``. Slope −1 is a cost that grows with n, slope 0 one that grows with n². Pairs
    are counted block by block: lengths may be long.
    """
    if not patterns:
        raise ValueError('`patterns` is empty: give at least one, such as {"window": local(8)}')
    series = {
        name: [(n, _density(name, one, n)) for n in lengths] for name, one in patterns.items()
    }
    quantity = "share of the pairs that may be seen"
    return cost_curves(series, quantity=quantity, title=title, theme=theme)


# what may be drawn


@dataclass(frozen=True)
class _Blocks:
    """The pairs in each block of a mask, and how many fit."""

    size: int
    length: int
    pairs: NDArray[np.int64]
    cells: NDArray[np.int64]

    @property
    def full(self) -> Mask:
        return np.asarray(self.pairs == self.cells)

    @property
    def empty(self) -> Mask:
        return np.asarray(self.pairs == 0)

    @property
    def mixed(self) -> Mask:
        return ~self.full & ~self.empty

    def ends(self, at: Any) -> tuple[Any, Any]:
        """The first and the last position of the blocks at these places."""
        return at * self.size, np.minimum((at + 1) * self.size, self.length) - 1


def _drawable(name: str, pattern: Any, n: int, block: int | None) -> tuple[Mask, _Blocks]:
    if not isinstance(n, int) or not 1 <= n <= LARGEST:
        raise ValueError(f"a pattern is drawn for 1 to {LARGEST} positions, got n={n}")
    mask = _mask(name, pattern, n)
    size = max(1, 2 ** (n // 8).bit_length() // 2) if block is None else block
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"`block` should be a whole number of at least 1, got {block!r}")
    return mask, _blocks(mask, size)


def _mask(name: str, pattern: Any, n: int) -> Mask:
    if not isinstance(pattern, Pattern):
        return booleans(name, pattern, (n, n))
    dense = pattern.dense(n)
    if dense.dim() > 2:
        raise ValueError(
            f"{pattern} differs between heads or sequences: draw it with head_patterns, or one of "
            "them, as in pattern.of_head(0)"
        )
    return np.asarray(dense.numpy())


def _several(patterns: Pattern | Sequence[Pattern]) -> list[Pattern]:
    if isinstance(patterns, Pattern):
        heads = patterns.heads()
        patterns = [patterns] if heads is None else [patterns.of_head(h) for h in range(heads)]
    if not 1 <= len(patterns) <= MOST_PANELS:
        raise ValueError(f"one to {MOST_PANELS} patterns have room, got {len(patterns)}")
    return list(patterns)


def _blocks(mask: Mask, size: int) -> _Blocks:
    starts = np.arange(0, len(mask), size)

    def summed(cells: Any) -> Any:
        rows = np.add.reduceat(cells.astype(np.int64), starts, axis=0)
        return np.add.reduceat(rows, starts, axis=1)

    return _Blocks(size, len(mask), summed(mask), summed(np.ones_like(mask)))


def _density(name: str, pattern: Pattern | Callable[[int], Pattern], n: int) -> float:
    found = pattern if isinstance(pattern, Pattern) else pattern(n)
    share = found.density(n)
    if share == 0:
        raise ValueError(f"{name!r} allows no pair at n = {n}, which no log axis can show")
    return share


# how it is drawn


def _overlays(
    mask: Mask, blocks: _Blocks, x: str, y: str, theme: str, side: float
) -> list[dict[str, Any]]:
    """The cells with their blocks' lines, and the hatching of empty blocks."""
    n = len(mask)
    drawings = [_cells(mask, blocks, x, y, n / side)]
    hidden = np.kron(blocks.empty, np.ones((blocks.size, blocks.size), bool))[:n, :n]
    return [*drawings, hatching(hidden, x, y, theme)] if hidden.any() else drawings


def _cells(mask: Mask, blocks: _Blocks, x: str, y: str, pixel: float) -> dict[str, Any]:
    """One drawing: a bitmap with a pixel per pair, lines between blocks, frames in full ones."""
    n = len(mask)
    data = b64encode(png(np.where(mask, 0, -1), [_INK])).decode()
    lines = "".join(f"M{at} 0V{n}M0 {at}H{n}" for at in range(0, n + 1, blocks.size))
    frames = "".join(_framed(blocks, i, j, 3 * pixel) for i, j in np.argwhere(blocks.full))
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {n} {n}" width="{40 * n}" '
        f'height="{40 * n}" preserveAspectRatio="none"><image width="{n}" height="{n}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}"/><g fill="none"><path d="{lines}" stroke="{_LINE}" '
        f'stroke-width="{pixel:.3f}"/><path d="{frames}" stroke="{_FRAME}" '
        f'stroke-width="{1.5 * pixel:.3f}"/></g></svg>'
    )
    return {
        "source": "data:image/svg+xml," + quote(drawing, safe=" =:/'(),;+"),
        "xref": x,
        "yref": y,
        "x": -0.5 - 1e-6,  # plotly takes two images at one place for the same, and drops one
        "y": -0.5,
        "sizex": n,
        "sizey": n,
        "sizing": "stretch",
        "layer": "above",
    }


def _framed(blocks: _Blocks, i: int, j: int, inset: float) -> str:
    """A rectangle just inside a block, none where the block is too small for one."""
    (top, bottom), (left, right) = blocks.ends(i), blocks.ends(j)
    high, wide = bottom + 1 - top - 2 * inset, right + 1 - left - 2 * inset
    if min(high, wide) <= 2 * inset:
        return ""
    return f"M{left + inset:.2f} {top + inset:.2f}h{wide:.2f}v{high:.2f}h{-wide:.2f}z"


def _hovered(blocks: _Blocks, x: str, y: str) -> Iterator[go.Scatter]:
    """Nothing to see, but to point at: what each block is, in words."""
    for name in ("full", "mixed", "empty"):
        i, j = np.nonzero(getattr(blocks, name))
        if not len(i):
            continue
        (top, bottom), (left, right) = blocks.ends(i), blocks.ends(j)
        numbers = [top, bottom, left, right, blocks.pairs[i, j], blocks.cells[i, j]]
        yield go.Scatter(
            x=((left + right) / 2).astype(np.float32),
            y=((top + bottom) / 2).astype(np.float32),
            customdata=np.stack(numbers, 1).astype(np.int32),
            mode="none",
            name=name,
            xaxis=x,
            yaxis=y,
            hovertemplate=(
                "queries %{customdata[0]} to %{customdata[1]}<br>keys %{customdata[2]} to "
                f"%{{customdata[3]}}<br>{name}: %{{customdata[4]}} of %{{customdata[5]}} pairs"
                "<extra></extra>"
            ),
        )


def _one_panel(look: Theme, title: str, n: int) -> dict[str, Any]:
    width = max(_SIDE + 96, text_width(title, 16.5) + 16)
    margin: dict[str, float] = {"l": 72, "r": width - _SIDE - 72, "t": 84, "b": 40}
    return layout(
        look,
        title,
        width=width,
        height=_SIDE + 124,
        margin=margin,
        hovermode="closest",
        hoverdistance=-1,
        xaxis=axis(look, "keys", side="top", range=[-0.5, n - 0.5], **_ticks(n)),
        yaxis=axis(look, "queries", range=[n - 0.5, -0.5], **_ticks(n)),
    )


def _ticks(n: int) -> dict[str, Any]:
    step = max(tick_step(n), tick_step(5 * n) // 2)
    places = list(range(0, n, step))
    return {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [str(place) for place in places],
        "showgrid": False,
        "ticks": "",
        "tickangle": 0,
    }


def _legend(look: Theme) -> dict[str, Any]:
    words = "blue: may be seen · framed: full block · hatched: empty block"
    return note(look, words, 0, 0, yanchor="top", xanchor="left", yshift=-10)


def _panel(count: int) -> int:
    return 220 if count <= 4 else 150


def _panels(look: Theme, title: str, names: Sequence[str], masks: list[Mask]) -> dict[str, Any]:
    side, gap, above, n = _panel(len(masks)), 20, 26, len(masks[0])
    across = min(4, len(masks))
    down = -(-len(masks) // across)
    wide, high = across * (side + gap) - gap, down * (side + above) - above
    width = max(wide + 40, text_width(title, 16.5) + 16)
    margin: dict[str, float] = {"l": 20, "r": width - wide - 20, "t": 70, "b": 36}
    page = layout(
        look,
        title,
        width=width,
        height=high + 106,
        margin=margin,
        hovermode="closest",
        hoverdistance=-1,
    )
    page["images"], page["annotations"] = [], [_legend(look)]
    for at, (name, mask) in enumerate(zip(names, masks, strict=True)):
        left, top = at % across * (side + gap) / wide, 1 - at // across * (side + above) / high
        ends = {"x": [-0.5, n - 0.5], "y": [n - 0.5, -0.5]}
        place = {"x": (left, left + side / wide), "y": (top - side / high, top)}
        for letter, other in ("xy", "yx"):
            page[f"{letter}axis{at + 1 if at else ''}"] = bare_axis(
                look,
                range=ends[letter],
                domain=[min(max(end, 0.0), 1.0) for end in place[letter]],
                anchor=_numbered(other, at),
                **({"matches": letter} if at else {}),
            )
        share = f"{escaped(name)} · {_percent(mask.mean())}"
        words = note(look, share, left, top, xanchor="left", yanchor="bottom", yshift=3)
        page["annotations"].append(words)
    return page


def _numbered(letter: str, at: int) -> str:
    return f"{letter}{at + 1}" if at else letter


def _arrived(first: NDArray[Any], layers: int) -> NDArray[np.uint8]:
    """The brighter the earlier; 0 is not there yet."""
    return np.where(first > 0, layers + 1 - first, 0).astype(np.uint8)


def _reach_page(look: Theme, title: str, n: int, layers: int) -> dict[str, Any]:
    page = _one_panel(look, title, n)
    page["xaxis"]["title"]["text"], page["yaxis"]["title"]["text"] = "inputs", "outputs"
    page["margin"]["r"] = max(page["margin"]["r"], 130)
    page["width"] = max(page["width"], _SIDE + 72 + 130)
    page["hovermode"] = "closest"
    shown = sorted({round(x) for x in np.linspace(1, layers, min(layers, 8))})
    page["coloraxis"] = {
        "colorscale": [[i / (len(CIVIDIS) - 1), colour] for i, colour in enumerate(CIVIDIS)],
        "cmin": 0,
        "cmax": layers,
        "colorbar": {
            "title": {"text": "arrives after layer", "side": "right", "font": {"size": 12}},
            "tickvals": [0, *(layers + 1 - layer for layer in reversed(shown))],
            "ticktext": ["not yet", *(str(layer) for layer in reversed(shown))],
            "tickfont": {"size": 11, "color": look.quiet},
            "thickness": 12,
            "lenmode": "pixels",
            "len": 240,
            "x": 1,
            "xpad": 14,
            "outlinewidth": 0,
        },
    }
    return page


# how it is said


def _said(mask: Mask, blocks: _Blocks) -> str:
    n, pairs = len(mask), int(mask.sum())
    words = (
        f"{pairs:,} of {n * n:,} pairs may be seen ({_percent(mask.mean())}). Of "
        f"{blocks.pairs.size} blocks of {blocks.size} positions {int(blocks.full.sum())} are full, "
        f"{int(blocks.mixed.sum())} mixed and {int(blocks.empty.sum())} empty."
    )
    blind = np.flatnonzero(~mask.any(1))
    if len(blind):
        who = f"Position {blind[0]} sees" if len(blind) == 1 else f"Positions {runs(blind)} see"
        words += f" {who} nothing."
    return words


def runs(places: Sequence[int] | NDArray[Any]) -> str:
    """Places as a short text: 0, 3–7."""
    parts: list[list[int]] = []
    for place in (int(p) for p in places):
        if parts and place == parts[-1][1] + 1:
            parts[-1][1] = place
        else:
            parts.append([place, place])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in parts)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _described(pattern: Any) -> str:
    if not isinstance(pattern, Pattern):
        return ""
    return f"In words: {pattern.description}."


def _rows(mask: Mask) -> list[Row]:
    return [
        {"query": i, "keys seen": int(row.sum()), "which": runs(np.flatnonzero(row)) or "none"}
        for i, row in enumerate(mask)
    ]


def _head_row(name: str, mask: Mask, blocks: _Blocks) -> Row:
    return {
        "pattern": name,
        "pairs": int(mask.sum()),
        "share": round(float(mask.mean()), 4),
        "full blocks": int(blocks.full.sum()),
        "mixed": int(blocks.mixed.sum()),
        "empty": int(blocks.empty.sum()),
        "positions that see nothing": runs(np.flatnonzero(~mask.any(1))) or "none",
    }


def _reach_words(known: ReceptiveField, n: int, layers: int) -> str:
    if known.complete:
        count = known.layers or next(
            L for L, frame in enumerate(known.after, 1) if bool(frame.all())
        )
        end = f"Everything is connected after {_layers(count)}."
    elif known.complete_past and known.layers is not None:
        end = f"Every output knows its whole past after {_layers(known.layers)}."
    elif known.layers is not None:
        end = f"After {_layers(known.layers)} further layers add nothing: some never meet."
    else:
        end = f"After {_layers(layers)} there is more to come."
    return (
        f"Which of {n} inputs can influence each of {n} outputs after 1 to {layers} layers. {end}"
    )


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _reach_rows(after: NDArray[np.bool_]) -> list[Row]:
    return [
        {
            "after layer": layer,
            "pairs connected": int(frame.sum()),
            "share": round(float(frame.mean()), 4),
            "fewest inputs of an output": int(frame.sum(1).min()),
            "most": int(frame.sum(1).max()),
        }
        for layer, frame in enumerate(after, 1)
    ]


def _closed(title: str) -> str:
    return title if title.endswith((".", "!", "?")) else f"{title}."
