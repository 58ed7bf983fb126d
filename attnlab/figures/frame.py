"""The frame that all figures share: paper, title, font, axes; everything explicit.

Nothing is left to plotly's defaults, which differ between versions: neither template, nor size,
nor range. So the still picture and the tests see the same figure as the browser.
"""

from html import unescape
from typing import Any
from urllib.parse import quote

from attnlab.figures.labels import harmless
from attnlab.figures.theme import FONT, HATCH, Theme


def layout(
    look: Theme, title: str, *, width: float, height: float, margin: dict[str, float], **more: Any
) -> dict[str, Any]:
    """A plotly layout with this title (one message, the caller's words)."""
    return {
        "template": "none",
        "width": round(width),
        "height": round(height),
        "margin": {**{side: round(size) for side, size in margin.items()}, "pad": 0},
        "paper_bgcolor": look.paper,
        "plot_bgcolor": look.panel,
        "font": {"family": FONT, "size": 12, "color": look.ink},
        "title": {
            "text": f"<b>{harmless(title)}</b>",
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
        "showlegend": False,
        **more,
    }


def axis(look: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """An axis with a visible line, quiet ticks and no zero line."""
    return {
        "title": {"text": harmless(title), "font": {"size": 12, "color": look.ink}, "standoff": 6},
        "tickfont": {"size": 11, "color": look.quiet},
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
    return axis(look, showgrid=False, showticklabels=False, ticks="", **more)


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


def hatching(x_axis: str, y_axis: str, columns: int, rows: int) -> dict[str, Any]:
    """Diagonal lines behind a map: they show wherever the map has no cell."""
    drawing = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="480"><defs>'
        '<pattern id="h" width="9" height="9" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><path d="M0 0V9" stroke="{HATCH}" stroke-width="3"/>'
        '</pattern></defs><rect width="480" height="480" fill="url(#h)"/></svg>'
    )
    return {
        "source": "data:image/svg+xml," + quote(drawing, safe=" =:/'()"),
        "xref": x_axis,
        "yref": y_axis,
        "x": -0.5,
        "y": -0.5,
        "sizex": columns,
        "sizey": rows,
        "sizing": "stretch",
        "layer": "below",
    }


def text_width(text: str, size: float = 12) -> float:
    """Roughly how many pixels a label takes; entities count as the one character they show."""
    return len(unescape(text)) * size * 0.6
