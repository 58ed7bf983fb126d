"""Static pictures of plotly figures, as SVG, drawn in Python alone.

For pages without plotly (nbconvert, print, papers): no browser and no kaleido. It draws what the
other modules use (heat maps, lines, markers, text, bars, legend, colour bar), from the same plotly
figure that the browser gets.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any

import numpy as np

from attnlab.core.markup import escape
from attnlab.figures import svg
from attnlab.figures.scales import nice_step
from attnlab.figures.theme import blend

_DASH = {"dash": "9 5", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "14 6"}


def draw(figure: Any, description: str) -> str:
    """The figure as one SVG element with its description as alternative text."""
    layout = figure.layout
    return svg.document(
        _body(figure),
        layout.width,
        layout.height,
        description=description,
        paper=layout.paper_bgcolor,
    )


def page(figure: Any, description: str) -> str:
    """The static picture as HTML; frames get a slider that needs no kernel and no library."""
    drawn = draw(figure, description)
    if not figure.frames:
        return f"<div>{drawn}</div>"
    last = len(figure.frames) - 1
    along = figure.layout.sliders[0].currentvalue.prefix  # escaped already
    words = [stop.label for stop in figure.layout.sliders[0].steps]
    names = escape(str(words))
    move = (
        "const v=this.value,r=this.closest('div');"
        "r.querySelectorAll('[data-frame]')"
        ".forEach(g=>g.style.display=g.dataset.frame===v?'':'none');"
        f"r.querySelector('output').textContent={names}[v]"
    )
    return (
        f'<div>{drawn}<p><label>{along}<input type="range" min="0" max="{last}" '
        f'value="{last}" oninput="{move}"></label> '
        f"<output>{escape(words[last])}</output></p></div>"
    )


def plain(text: str) -> str:
    """A plotly label as the text that it shows."""
    return unescape(re.sub(r"</?[a-z]+>", "", text))


@dataclass(frozen=True)
class _Axis:
    """One plotly axis and its position on the page: ``start`` and ``end`` in pixels."""

    spec: Any
    start: float
    end: float

    def at(self, value: float) -> float:
        value = np.log10(value) if self.spec.type == "log" else value
        low, high = self.spec.range
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if self.spec.tickvals is not None:
            return list(zip(self.spec.tickvals, self.spec.ticktext, strict=True))
        low, high = sorted(self.spec.range)
        step = nice_step((high - low) / 6)
        values = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
        return [(float(value), f"{value + 0.0:.6g}") for value in values]


def _body(figure: Any) -> Iterator[str]:
    layout = figure.layout
    panels = list(dict.fromkeys((t.xaxis or "x", t.yaxis or "y") for t in figure.data))
    for x, y in panels:
        yield from _backdrop(layout, x, y)
    for x, y in panels:
        yield from _grid(_axis(layout, x), _axis(layout, y))
    for trace in figure.data:
        x, y = _axis(layout, trace.xaxis or "x"), _axis(layout, trace.yaxis or "y")
        yield from _DRAWERS[trace.type](figure, trace, x, y)
    for image in layout.images:
        yield _image(layout, image)
    for shape in layout.shapes:
        yield _line_shape(layout, shape)
    for x, y in panels:
        yield from _axes(layout, x, y)
    for annotation in layout.annotations:
        yield _note(layout, annotation)
    if layout.showlegend:
        yield from _legend(figure)
    if any(trace.type == "heatmap" for trace in figure.data) and layout.coloraxis.colorbar.tickvals:
        yield from _colour_bar(layout)
    title = layout.title
    yield _text(
        title.text, 8, 18, size=title.font.size, fill=title.font.color, anchor="start", bold=True
    )


def _area(layout: Any) -> tuple[float, float, float, float]:
    """Left, top, width and height of the plot area."""
    margin = layout.margin
    return (
        margin.l,
        margin.t,
        layout.width - margin.l - margin.r,
        layout.height - margin.t - margin.b,
    )


def _axis(layout: Any, name: str) -> _Axis:
    spec = layout[f"{name[0]}axis{name[1:]}"]
    left, top, wide, high = _area(layout)
    low, up = spec.domain or (0, 1)
    if name[0] == "x":
        return _Axis(spec, left + low * wide, left + up * wide)
    return _Axis(spec, top + (1 - low) * high, top + (1 - up) * high)


def _hidden(axis: _Axis) -> bool:
    return axis.spec.visible is False


# what is drawn behind and around the traces


def _backdrop(layout: Any, x: str, y: str) -> Iterator[str]:
    across, down = _axis(layout, x), _axis(layout, y)
    box = across.start, down.end, across.end - across.start, down.start - down.end
    yield svg.rectangle(*box, fill=layout.plot_bgcolor)


def _image(layout: Any, image: Any) -> str:
    x, y = _axis(layout, image.xref), _axis(layout, image.yref)
    return (
        f'<image href="{escape(image.source)}" x="{x.start:.1f}" y="{y.end:.1f}" '
        f'width="{x.end - x.start:.1f}" height="{y.start - y.end:.1f}" preserveAspectRatio="none"/>'
    )


def _grid(x: _Axis, y: _Axis) -> Iterator[str]:
    for axis, other, upright in ((x, y, True), (y, x, False)):
        if _hidden(axis) or axis.spec.showgrid is False:
            continue
        for value, _ in axis.ticks():
            place = axis.at(value)
            ends = (place, other.start, place, other.end)
            yield svg.line(
                *(ends if upright else (other.start, place, other.end, place)), axis.spec.gridcolor
            )


def _line_shape(layout: Any, shape: Any) -> str:
    x, y = _axis(layout, shape.xref), _axis(layout, shape.yref)
    ends = x.at(shape.x0), y.at(shape.y0), x.at(shape.x1), y.at(shape.y1)
    return svg.line(*ends, shape.line.color, shape.line.width)


def _axes(layout: Any, x_name: str, y_name: str) -> Iterator[str]:
    x, y = _axis(layout, x_name), _axis(layout, y_name)
    if _hidden(x):
        return
    box = x.start, y.end, x.end - x.start, y.start - y.end
    yield svg.rectangle(*box, outline=x.spec.linecolor)
    if x.spec.showticklabels is not False:
        yield from _x_labels(x, y)
    if y.spec.showticklabels is not False:
        yield from _y_labels(x, y)


def _x_labels(x: _Axis, y: _Axis) -> Iterator[str]:
    above = x.spec.side == "top"
    turned = x.spec.tickangle == -90
    edge = y.end - 5 if above else y.start + 15
    depth = 14.0
    for value, label in x.ticks():
        place = x.at(value)
        depth = max(depth, len(plain(label)) * 6.6 if turned else 14)
        look = {"size": 11, "fill": x.spec.tickfont.color}
        if turned:
            yield _text(label, place + 4, edge, anchor="start", turn=-90, **look)
        else:
            yield _text(label, place, edge, **look)
    middle = (x.start + x.end) / 2
    edge = y.end - depth - 14 if above else y.start + 36
    yield _text(x.spec.title.text, middle, edge, fill=x.spec.title.font.color)


def _y_labels(x: _Axis, y: _Axis) -> Iterator[str]:
    longest = 0.0
    for value, label in y.ticks():
        longest = max(longest, len(plain(label)) * 6.6)
        look = {"size": 11, "fill": y.spec.tickfont.color, "anchor": "end"}
        yield _text(label, x.start - 6, y.at(value) + 4, **look)
    middle = (y.start + y.end) / 2
    place = max(13.0, x.start - longest - 18)
    yield _text(y.spec.title.text, place, middle, fill=y.spec.title.font.color, turn=-90)


def _note(layout: Any, note: Any) -> str:
    left, top, wide, high = _area(layout)
    x = left + note.x * wide + (note.xshift or 0)
    y = top + (1 - note.y) * high - (note.yshift or 0)
    y += {"top": 10, "middle": 4, "bottom": -2}[note.yanchor]
    anchor = {"left": "start", "center": "middle", "right": "end"}[note.xanchor]
    written = _text(note.text, x, y, size=note.font.size, fill=note.font.color, anchor=anchor)
    if note.bordercolor is None:
        return written
    wide = 0.56 * note.font.size * len(note.text) + 8  # a framed note begins at its left
    frame = svg.rectangle(
        x - 4, y - note.font.size - 1, wide, 17, fill=note.bgcolor, outline=note.bordercolor
    )
    return frame + written


def _text(label: str | None, x: float, y: float, **look: Any) -> str:
    """A plotly label; ``look`` goes to ``svg.text``."""
    if not label:
        return ""
    parts = [escape(plain(part), quote=False) for part in re.split(r"<sup>(.*?)</sup>", label)]
    content = parts[0]
    for raised, after in zip(parts[1::2], parts[2::2], strict=True):
        lowered = f'<tspan dy="5">&#8203;</tspan>{after}' if after else ""
        content += f'<tspan dy="-5" font-size="9">{raised}</tspan>{lowered}'
    return svg.text(content, x, y, **look)


def _stroke(points: list[svg.Point], line: Any, fill: str | None = None) -> str:
    width = 2 if line.width is None else line.width
    return svg.polyline(points, line.color, width, dash=_DASH.get(line.dash, ""), fill=fill or "")


def _legend(figure: Any) -> Iterator[str]:
    layout = figure.layout
    left, top, _, high = _area(layout)
    shown = [trace for trace in figure.data if trace.showlegend is not False]
    for i, trace in enumerate(shown):
        y = top + (1 - layout.legend.y) * high + 12 + 20 * i
        if "lines" in (trace.mode or "lines"):
            yield _stroke([(left, y), (left + 34, y)], trace.line)
        if "markers" in (trace.mode or ""):
            yield _marker(trace.marker, left + 17, y)
        yield _text(trace.name, left + 42, y + 4, fill=layout.legend.font.color, anchor="start")


def _colour_bar(layout: Any) -> Iterator[str]:
    left, top, wide, high = _area(layout)
    axis, bar = layout.coloraxis, layout.coloraxis.colorbar
    x, length = left + wide + bar.xpad, bar.len
    y = top + (high - length) / 2
    palette = _palette(axis, 100)
    yield svg.bitmap(np.arange(99, -1, -1)[:, None], palette, x, y, bar.thickness, length)
    for value, label in zip(bar.tickvals, bar.ticktext, strict=True):
        share = (value - axis.cmin) / (axis.cmax - axis.cmin)
        place = y + (1 - share) * length + 4
        fill = bar.tickfont.color
        yield _text(label, x + bar.thickness + 4, place, size=11, fill=fill, anchor="start")
    yield _text(bar.title.text, x + 66, y + length / 2, fill=layout.font.color, turn=90)


# traces


def _palette(axis: Any, count: int) -> list[str]:
    """The colours of so many values at even distances, along the stops of a colour axis."""
    stops, scale = zip(*axis.colorscale, strict=True)
    shares = np.interp(np.linspace(0, 1, count), stops, np.linspace(0, 1, len(stops)))
    return [blend(scale, float(share)) for share in shares]


def _heatmap(figure: Any, trace: Any, x: _Axis, y: _Axis) -> Iterator[str]:
    films = [frame.data[0].z for frame in figure.frames] or [trace.z]
    for number, cells in enumerate(films):
        drawn = _map(figure.layout.coloraxis, cells, x, y)
        if len(films) == 1:
            yield drawn
            continue
        hidden = "" if number == len(films) - 1 else ' style="display:none"'
        yield f'<g data-frame="{number}"{hidden}>{drawn}</g>'


def _map(colours: Any, cells: Any, x: _Axis, y: _Axis) -> str:
    values = np.asarray(cells, float)
    low, high = colours.cmin, colours.cmax
    if low is None:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
    share = np.clip((values - low) / ((high - low) or 1), 0, 1)
    stops, scale = zip(*colours.colorscale, strict=True)
    place = np.interp(np.nan_to_num(share), stops, np.linspace(0, 1, len(stops)))
    levels = np.maximum(np.round(place * 254), (share > 0) & (low == 0))  # 0 is for zero alone
    levels = np.where(np.isnan(share), -1, levels).astype(int)
    palette = [blend(scale, at / 254) for at in range(255)]
    left, right = x.at(-0.5), x.at(values.shape[1] - 0.5)
    top, bottom = y.at(-0.5), y.at(values.shape[0] - 0.5)
    return svg.bitmap(levels, palette, left, top, right - left, bottom - top)


def _scatter(figure: Any, trace: Any, x: _Axis, y: _Axis) -> Iterator[str]:
    mode = trace.mode
    pairs = list(zip(trace.x, trace.y, strict=True))
    if "lines" in mode:
        for piece in _pieces(pairs):
            places = [(x.at(a), y.at(b)) for a, b in piece]
            yield _stroke(places, trace.line, trace.fillcolor if trace.fill else None)
    if "markers" in mode:
        for a, b in pairs:
            yield _marker(trace.marker, x.at(a), y.at(b))
    if "text" in mode:
        anchor = "end" if trace.textposition == "middle left" else "middle"
        look = {"size": trace.textfont.size, "fill": trace.textfont.color, "anchor": anchor}
        for (a, b), label in zip(pairs, trace.text, strict=True):
            yield _text(label, x.at(a), y.at(b) + 4, **look)


def _marker(marker: Any, x: float, y: float) -> str:
    return svg.marker(marker.symbol, x, y, marker.size, marker.color)


def _pieces(pairs: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    piece: list[tuple[Any, Any]] = []
    for pair in pairs:
        if np.isnan(pair[0]) or np.isnan(pair[1]):
            if piece:
                yield piece
            piece = []
        else:
            piece.append(pair)
    if piece:
        yield piece


def _bars(figure: Any, trace: Any, x: _Axis, y: _Axis) -> Iterator[str]:
    half = trace.width / 2
    for value, row, label in zip(trace.x, trace.y, trace.text, strict=True):
        top, bottom = sorted((y.at(row - half), y.at(row + half)))
        start, end = x.at(0), x.at(value)
        yield svg.rectangle(start, top, end - start, bottom - top, fill=trace.marker.color)
        middle = (top + bottom) / 2 + 4
        yield _text(label, end + 5, middle, size=11, fill=trace.textfont.color, anchor="start")


_DRAWERS = {"heatmap": _heatmap, "scatter": _scatter, "bar": _bars}
