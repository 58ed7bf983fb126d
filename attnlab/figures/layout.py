"""The layout that all figures share: paper, title, font and axes.

Template, size and ranges are set explicitly, because plotly's defaults differ between versions. So
the static picture and the tests see the same figure as the browser.
"""

from collections.abc import Sequence
from html import unescape
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from attnlab.figures.labels import escaped
from attnlab.figures.theme import FONT, HATCHING, Theme, colours


def layout(
    look: Theme, title: str, *, width: float, height: float, margin: dict[str, float], **more: Any
) -> dict[str, Any]:
    """A plotly layout with the caller's title."""
    return {
        "template": "none",
        "width": round(width),
        "height": round(height),
        "margin": {**{side: round(size) for side, size in margin.items()}, "pad": 0},
        "paper_bgcolor": look.paper,
        "plot_bgcolor": look.panel,
        "font": {"family": FONT, "size": 12, "color": look.ink},
        "title": {
            "text": f"<b>{escaped(title)}</b>",
            "font": {"size": 15, "color": look.ink},
            "x": 0.01,
            "xanchor": "left",
            "y": 1 - 18 / height,
            "yanchor": "middle",
        },
        "hoverlabel": {
            "bgcolor": look.panel,
            "bordercolor": look.quiet,
            "font": {"color": look.ink, "family": FONT},
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": HATCHING["light"][1]},
        "showlegend": False,
        **more,
    }


def axis(look: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with a visible line, ticks in a muted colour and no zero line."""
    return {
        "title": {"text": escaped(title), "font": {"size": 12, "color": look.ink}, "standoff": 6},
        "tickfont": {"size": 11, "color": look.quiet, **more.pop("tickfont", {})},
        "gridcolor": look.grid,
        "linecolor": look.quiet,
        "tickcolor": look.quiet,
        "zeroline": False,
        "showline": True,
        "mirror": True,
        "automargin": False,
        **more,
    }


def bare_axis(look: Theme, **more: Any) -> dict[str, Any]:
    """An axis without labels: a frame around a small picture, or nothing at all."""
    return axis(look, showgrid=False, showticklabels=False, ticks="", mirror="all", **more)


def note(look: Theme, text: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    """A line of text at a place of the paper, (0, 0) being the lower left of the plot area."""
    return {
        "text": text,
        "x": x,
        "y": y,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 11, "color": look.quiet},
        **more,
    }


def untrained_note(look: Theme, x: float, y: float, **places: Any) -> dict[str, Any]:
    """The label of what is shown with weights that nobody trained."""
    frame = {"bordercolor": look.quiet, "borderwidth": 1, "borderpad": 2, "bgcolor": look.panel}
    return note(look, "untrained", x, y, xanchor="left", **frame, **places)


def say_untrained(page: dict[str, Any], look: Theme) -> None:
    """The label at the right end of the title's line, with room for it."""
    label, margin = 66, page["margin"]
    more = max(0, round(text_width(unescape(page["title"]["text"])[7:], 15) + 24 + label))
    more = max(0, more - page["width"])
    page["width"] += more
    margin["r"] += more
    shift = {"xshift": margin["r"] - label, "yshift": margin["t"] - 18, "yanchor": "middle"}
    page["annotations"].append(untrained_note(look, 1, 1, **shift))


def hatching(
    hidden: NDArray[np.bool_],
    x_axis: str,
    y_axis: str,
    theme: str,
    *,
    only: NDArray[np.bool_] | None = None,
    lines: int = 26,
) -> dict[str, Any]:
    """Hatching of the hidden cells (n, m) of a map: diagonal lines, ``lines`` along its side.

    It is one small drawing, whatever the number of cells, which keeps notebooks small. Where
    ``only`` (n, m) is True, a cell is the only key of its query: a frame on paper covers it.
    """
    n, m = hidden.shape
    pitch = max(n, m) / lines
    ground, line = HATCHING[theme]
    paper, thin = colours(theme).paper, min(0.12, 0.006 * max(n, m))  # of a cell
    framed = [] if only is None else np.argwhere(only).tolist()
    covers = "".join(f"M{j - 0.02:.2f} {i - 0.02:.2f}h1.04v1.04h-1.04z" for i, j in framed)
    frames = f'<path d="{covers}" fill="{paper}"/>' if framed else ""
    frames += "".join(
        f'<rect x="{j + 0.1:.1f}" y="{i + 0.1:.1f}" width=".8" height=".8" fill="none" '
        f'stroke="{line}" stroke-width="{thin:.2f}"/>'
        for i, j in framed
    )
    drawing = (
        '<svg id="hatching" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {m} {n}" width="{m * 40}" '
        f'height="{n * 40}" preserveAspectRatio="none"><defs><pattern id="h" width="{pitch:.3f}" '
        f'height="{pitch:.3f}" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0H{pitch:.3f}V{pitch:.3f}H0z" fill="{ground}"/><path d="M0 0V{pitch:.3f}" '
        f'stroke="{line}" stroke-width="{pitch * 0.6:.3f}"/></pattern></defs>'
        f'<path d="{_outline(hidden)}" fill="url(#h)"/>{frames}</svg>'
    )
    return {
        "source": "data:image/svg+xml," + quote(drawing, safe=" =:/'()"),
        "xref": x_axis,
        "yref": y_axis,
        "x": -0.5,
        "y": -0.5,
        "sizex": m,
        "sizey": n,
        "sizing": "stretch",
        "layer": "above",
    }


def add_player(
    page: dict[str, Any],
    look: Theme,
    steps: Sequence[Any],
    along: str,
    words: Sequence[str] | None = None,
) -> None:
    """Slider and play button below a map, with a stop for each frame of the figure.

    ``words`` are the labels of the stops where they say more than the step.
    """
    quick = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}
    inner = page["height"] - page["margin"]["t"] - page["margin"]["b"]
    below = page["margin"]["b"] + 84
    page["height"] += 84
    page["title"]["y"] = 1 - 18 / page["height"]
    page["margin"]["b"] = below
    top = -(below - 84) / inner
    wide = page["width"] - page["margin"]["l"] - page["margin"]["r"]
    start = min(0.5, 60 / wide)  # to the right of the button, on a narrow map as well
    stops = [
        {"method": "animate", "label": word, "args": [[str(step)], quick]}
        for step, word in zip(steps, words or list(map(str, steps)), strict=True)
    ]
    page["sliders"] = [
        {
            "steps": stops,
            "active": len(steps) - 1,
            "x": start,
            "len": 1 - start,
            "y": top,
            "yanchor": "top",
            "pad": {"t": 8, "b": 0},
            "currentvalue": {
                "prefix": f"{escaped(along)} ",
                "font": {"size": 13, "color": look.ink},
            },
            "font": {"size": 10, "color": look.quiet},
            "bgcolor": look.grid,
            "bordercolor": look.quiet,
            "tickcolor": look.quiet,
        }
    ]
    play = {"frame": {"duration": 350, "redraw": True}, "fromcurrent": False}
    page["updatemenus"] = [
        {
            "type": "buttons",
            "showactive": False,
            "direction": "left",
            "x": 0,
            "xanchor": "left",
            "y": top,
            "yanchor": "top",
            "pad": {"t": 34, "r": 8},
            "bgcolor": look.panel,
            "bordercolor": look.quiet,
            "font": {"color": look.ink, "size": 12},
            "buttons": [{"label": "▶", "method": "animate", "args": [None, play]}],
        }
    ]


def _outline(hidden: NDArray[np.bool_]) -> str:
    """The hidden cells as rectangles of an SVG path, one per run of cells in a row."""
    pieces = []
    for i, row in enumerate(hidden):
        edges = np.flatnonzero(np.diff(np.r_[0, row.astype(np.int8), 0]))
        for start, end in edges.reshape(-1, 2).tolist():
            pieces.append(f"M{start} {i}h{end - start}v1h{start - end}z")
    return "".join(pieces)


def text_width(text: str, size: float = 12) -> float:
    """About how many pixels wide a plain text is, estimated a little too wide."""
    return len(text) * size * 0.6


def label_width(label: str, size: float = 12) -> float:
    """The width of an escaped label, in which an HTML entity is displayed as one character."""
    return text_width(unescape(label), size)
