"""Which inputs can influence which outputs after several layers of patterns: a map per layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from attnlab.core.arguments import check_flag, check_size, check_texts
from attnlab.core.patterns import Pattern, ReceptiveField, receptive_field
from attnlab.figures.labels import sentence
from attnlab.figures.layout import add_player
from attnlab.figures.pattern_drawing import SIDE, one_panel
from attnlab.figures.picture import Picture, Row
from attnlab.figures.scales import colour_bar
from attnlab.figures.theme import CIVIDIS, Theme, colours, theme_name

LARGEST = 128
MOST_FRAMES = 32


def receptive_field_film(
    patterns: Pattern | Sequence[Pattern],
    n: int,
    *,
    layers: int,
    title: str,
    residual: bool = True,
    theme: str | None = None,
) -> Picture:
    """Which inputs can influence which outputs after one layer, two, … ``layers``: a slider.

    The layers take their patterns in turn. The colour of a cell is the first layer after which its
    input can influence its output; the slider also works on a page without a kernel.
    """
    check_texts(title=title)
    check_flag("residual", residual)
    n, layers = (
        check_size("n", n, LARGEST, "positions"),
        check_size("layers", layers, MOST_FRAMES, "layers"),
    )
    known = receptive_field(patterns, n, layers, residual=residual)
    after = np.stack([frame.numpy() for frame in known.after])
    first = np.where(after.any(0), after.argmax(0) + 1, 0)
    theme = theme_name(theme)
    look = colours(theme)
    page = _page(look, title, n, layers)
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
        description=f"{sentence(title)} {_description(known, n, layers)}",
        rows=_rows(after),
        theme=theme,
    )


def _arrived(first: NDArray[Any], layers: int) -> NDArray[np.uint8]:
    """Values for the colour scale: brighter for earlier layers, 0 for not yet."""
    return np.where(first > 0, layers + 1 - first, 0).astype(np.uint8)


def _page(look: Theme, title: str, n: int, layers: int) -> dict[str, Any]:
    page = one_panel(look, title, n)
    page["xaxis"]["title"]["text"], page["yaxis"]["title"]["text"] = "inputs", "outputs"
    page["margin"]["r"] = max(page["margin"]["r"], 130)
    page["width"] = max(page["width"], SIDE + 72 + 130)
    page["hovermode"] = "closest"
    shown = sorted({round(x) for x in np.linspace(1, layers, min(layers, 8))})
    page["coloraxis"] = {
        "colorscale": [[i / (len(CIVIDIS) - 1), colour] for i, colour in enumerate(CIVIDIS)],
        "cmin": 0,
        "cmax": layers,
        "colorbar": colour_bar(
            look,
            "arrives after layer",
            [0, *(layers + 1 - layer for layer in reversed(shown))],
            ["not yet", *(str(layer) for layer in reversed(shown))],
            240,
        ),
    }
    return page


def _description(known: ReceptiveField, n: int, layers: int) -> str:
    if known.complete:
        count = known.layers or next(
            L for L, frame in enumerate(known.after, 1) if bool(frame.all())
        )
        end = f"Everything is connected after {_layers(count)}."
    elif known.complete_past and known.layers is not None:
        end = f"Every output depends on its whole past after {_layers(known.layers)}."
    elif known.layers is not None:
        end = f"After {_layers(known.layers)} more layers add nothing; some pairs stay unconnected."
    else:
        end = f"After {_layers(layers)} the receptive fields still grow."
    return (
        f"Which of {n} inputs can influence each of {n} outputs after 1 to {layers} layers. {end}"
    )


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _rows(after: NDArray[np.bool_]) -> list[Row]:
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
