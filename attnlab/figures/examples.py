"""What a task looks like: tokens in a strip, an image as the sequence that a model reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_texts
from attnlab.core.arrays import Array, booleans, numbers, tokens_for
from attnlab.core.integers import check_integer
from attnlab.figures.labels import escaped, labels, visible
from attnlab.figures.layout import axis, bare_axis, layout, note, text_width
from attnlab.figures.picture import Picture
from attnlab.figures.theme import MONO, SERIES, Theme, colours, theme_name

MOST_TOKENS = 512
WIDTH = 720
LOSS_COUNTS = "the loss counts here"
GREYS = ("#f5f5f5", "#d0d0d0", "#a8a8a8", "#808080", "#565656", "#2f2f2f", "#0b0b0b")


def token_strip(
    tokens: Sequence[Any],
    *,
    title: str,
    scored: Any = None,
    mark: str = LOSS_COUNTS,
    targets: Sequence[Any] | None = None,
    theme: str | None = None,
) -> Picture:
    """A sequence as boxes in reading order; scored positions are framed and carry a mark.

    ``scored`` (n,) bool: the positions that are framed; ``mark`` is what the caption says of them.
    ``targets`` (n,): what the model is to answer
    there, written under the box (shown at scored positions only, where ``scored`` is given).
    """
    check_texts(title=title, mark=mark)
    tokens = check_list("tokens", tokens)
    count = len(tokens)
    tokens = tokens_for("tokens", tokens, count, "positions")
    if not tokens:
        raise ValueError("`tokens` is empty: there is no sequence to draw")
    if count > MOST_TOKENS:
        raise ValueError(f"`tokens` has {count}; at most {MOST_TOKENS} can be seen: give a part")
    if scored is None and mark != LOSS_COUNTS:
        raise ValueError("`mark` is said of framed positions: give them as `scored`")
    counts = np.zeros(count, bool) if scored is None else booleans("scored", scored, (count,))
    if targets is not None:
        targets = tokens_for("targets", targets, count, "positions of `tokens`")
    wanted = counts if scored is not None else np.ones(count, bool)
    answers = ["" if targets is None or not wanted[i] else targets[i] for i in range(count)]
    theme = theme_name(theme)
    look = colours(theme)
    boxes, lines = _boxes(tokens, answers, tall=targets is not None)
    step = 62 if targets is not None else 42
    height = lines * step + 96
    page = layout(
        look,
        title,
        width=WIDTH,
        height=height,
        margin={"l": 12, "r": 12, "t": 44, "b": 52},
        xaxis={"visible": False, "range": [-2, WIDTH - 26], "fixedrange": True},
        yaxis={"visible": False, "range": [lines * step, 0], "fixedrange": True},
        plot_bgcolor=look.paper,
        annotations=[_strip_note(look, mark if scored is not None else "", targets is not None)],
    )
    traces = [
        _outline(boxes[~counts], look.quiet, look.panel, 1),
        _outline(boxes[counts], SERIES[1], look.panel, 2.5),
        _marks(boxes[counts]),
        _token_texts(boxes, tokens, look),
        _answers(boxes, answers),
    ]
    rows = [
        {
            "position": i,
            "token": visible(token),
            "scored": "yes" if counts[i] else "no",
            **({} if targets is None else {"target": visible(answers[i]) if wanted[i] else ""}),
        }
        for i, token in enumerate(tokens)
    ]
    return Picture(
        [trace for trace in traces if trace is not None],
        page,
        description=_strip_description(title, tokens, counts, mark if scored is not None else ""),
        rows=rows,
        theme=theme,
    )


def image_sequence(image: Any, *, title: str, patch: int = 1, theme: str | None = None) -> Picture:
    """A grey image (height, width) and, under it, the sequence that a model reads.

    ``patch`` = 1 reads pixel by pixel, row by row; larger patches are read in the same order, each
    as one vector. Numbers show the order of reading.
    """
    check_texts(title=title)
    image = numbers("image", image, "height width")
    height, width = image.shape
    patch = check_integer("`patch`", patch, at_least=1)
    if height % patch or width % patch:
        raise ValueError(
            f"`patch` should divide both sides of the image ({height} × {width}), got {patch}"
        )
    if image.size > 4096:
        raise ValueError(f"`image` is {height} × {width}; at most 64 × 64 pixels can be read here")
    theme = theme_name(theme)
    look = colours(theme)
    strip = _strip(image, patch)
    traces = [_grey(image, "x", "y"), _grey(strip, "x2", "y2")]
    count = (height // patch) * (width // patch)
    what = "pixels" if patch == 1 else f"patches of {patch} × {patch} pixels"
    rows = [
        {"image row": i, "values": " ".join(f"{value:.3g}" for value in line)}
        for i, line in enumerate(image)
    ]
    return Picture(
        traces,
        _image_layout(look, title, image.shape, strip.shape, patch, f"{count} {what}"),
        description=f"{title}. An image of {height} by {width} pixels, from {image.min():g} "
        f"(light) to {image.max():g} (dark), read row by row as a sequence of {count} {what}.",
        rows=rows,
        theme=theme,
    )


# tokens


def _boxes(tokens: Sequence[Any], answers: Sequence[Any], *, tall: bool) -> tuple[Array, int]:
    """Left, right and middle line of each box, wrapped like text; and how many lines."""
    left, line, room, step = 0.0, 0, WIDTH - 28, 62 if tall else 42
    boxes = []
    for token, answer in zip(tokens, answers, strict=True):
        answer = "" if answer == "" else visible(answer)
        longest = max(text_width(visible(token), 13.5), text_width(answer, 12))
        wide = max(26, longest + 12)
        if left + wide > room and left:
            left, line = 0.0, line + 1
        boxes.append((left, left + wide, line * step + 20))
        left += wide + 5
    return np.round(np.array(boxes), 1), line + 1


def _outline(boxes: Array, colour: str, fill: str, width: float) -> go.Scatter | None:
    """All boxes of one kind as one trace of separate rectangles."""
    if not len(boxes):
        return None
    left, right, middle = boxes.T[..., None]
    gap = np.full_like(left, np.nan)
    x = np.hstack([left, right, right, left, left, gap]).ravel()
    up, down = middle - 14, middle + 14
    y = np.hstack([up, up, down, down, up, gap]).ravel()
    return go.Scatter(
        x=x.astype(np.float32),
        y=y.astype(np.float32),
        mode="lines",
        fill="toself",
        fillcolor=fill,
        line={"color": colour, "width": width},
        hoverinfo="skip",
    )


def _marks(boxes: Array) -> go.Scatter | None:
    """A triangle on the frame of each scored box, so that it differs not by colour alone."""
    if not len(boxes):
        return None
    return go.Scatter(
        x=((boxes[:, 0] + boxes[:, 1]) / 2).astype(np.float32),
        y=(boxes[:, 2] - 15).astype(np.float32),
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": SERIES[1]},
        hoverinfo="skip",
    )


def _token_texts(boxes: Array, tokens: Sequence[Any], look: Theme) -> go.Scatter:
    return go.Scatter(
        x=((boxes[:, 0] + boxes[:, 1]) / 2).astype(np.float32),
        y=boxes[:, 2].astype(np.float32),
        mode="text",
        text=labels(tokens),
        textfont={"family": MONO, "size": 13, "color": look.ink},
        customdata=np.arange(len(tokens), dtype=np.int32),
        hovertemplate="position %{customdata}<br>token %{text}<extra></extra>",
    )


def _answers(boxes: Array, answers: Sequence[Any]) -> go.Scatter | None:
    places = [i for i, answer in enumerate(answers) if answer != ""]
    if not places:
        return None
    return go.Scatter(
        x=((boxes[places, 0] + boxes[places, 1]) / 2).astype(np.float32),
        y=(boxes[places, 2] + 25).astype(np.float32),
        mode="text",
        text=labels([answers[i] for i in places]),
        textfont={"family": MONO, "size": 12, "color": SERIES[1]},
        customdata=np.array(places, dtype=np.int32),
        hovertemplate="position %{customdata}<br>target %{text}<extra></extra>",
    )


def _strip_note(look: Theme, mark: str, targets: bool) -> dict[str, Any]:
    caption = "read from left to right"
    caption += f" · ▼ framed: {escaped(mark)}" if mark else ""
    caption += " · below the box: the answer wanted" if targets else ""
    return note(look, caption, 0, 0, xanchor="left", yanchor="top", yshift=-12)


def _strip_description(title: str, tokens: Sequence[Any], counts: Array, mark: str) -> str:
    shown = " ".join(visible(token) for token in tokens[:40])
    more = " …" if len(tokens) > 40 else ""
    description = f"{title}. A sequence of {len(tokens)} tokens: {shown}{more}."
    if mark:
        places = np.flatnonzero(counts)
        listed = ", ".join(map(str, places[:20])) + (" …" if len(places) > 20 else "")
        description += f" Framed ({mark}): {len(places)} positions, {listed or 'none'}."
    return description


# images


def _strip(image: Array, patch: int) -> Array:
    """The patches side by side in reading order, a column of NaN between neighbours."""
    height, width = image.shape
    parts = image.reshape(height // patch, patch, width // patch, patch).swapaxes(1, 2)
    blocks = parts.reshape(-1, patch, patch)
    if patch == 1:
        return blocks.reshape(1, -1)
    gap = np.full((patch, 1), np.nan)
    return np.concatenate([part for block in blocks for part in (block, gap)], axis=1)[:, :-1]


def _grey(cells: Array, x: str, y: str) -> go.Heatmap:
    return go.Heatmap(
        z=cells.astype(np.float32),
        xaxis=x,
        yaxis=y,
        coloraxis="coloraxis",
        hoverongaps=False,
        xgap=1 if x == "x" else 0,
        ygap=1 if x == "x" else 0,
        hovertemplate="row %{y}, column %{x}<br>value %{z:.4~g}<extra></extra>"
        if x == "x"
        else "place %{x}<br>value %{z:.4~g}<extra></extra>",
    )


def _image_layout(
    look: Theme,
    title: str,
    shape: tuple[int, ...],
    strip: tuple[int, ...],
    patch: int,
    reading: str,
) -> dict[str, Any]:
    height, width = shape
    pixel = min(28, 230 / max(height, width))
    wide = WIDTH - 66 - 30
    thin = max(18.0, min(64.0, wide * strip[0] / strip[1]))
    inner = height * pixel + 46 + thin
    lines = _cuts(shape, patch) + _strip_cuts(strip, patch)
    edges: dict[str, Any] = {"type": "linear", "fixedrange": True}
    return layout(
        look,
        title,
        width=WIDTH,
        height=inner + 48 + 44,
        margin={"l": 66, "r": 30, "t": 48, "b": 44},
        coloraxis={
            "colorscale": [[i / (len(GREYS) - 1), grey] for i, grey in enumerate(GREYS)],
            "showscale": False,
        },
        xaxis=bare_axis(
            look, range=[-0.5, width - 0.5], domain=[0, round(width * pixel / wide, 5)], **edges
        ),
        yaxis=axis(
            look,
            range=[height - 0.5, -0.5],
            showgrid=False,
            ticks="",
            **_reading(shape, patch),
            domain=[round(1 - height * pixel / inner, 5), 1],
            **edges,
        ),
        xaxis2=axis(
            look,
            f"the sequence: {reading}",
            range=[-0.5, strip[1] - 0.5],
            domain=[0, 1],
            anchor="y2",
            showgrid=False,
            **_places(strip, patch),
            **edges,
        ),
        yaxis2=bare_axis(
            look,
            range=[strip[0] - 0.5, -0.5],
            domain=[0, round(thin / inner, 5)],
            anchor="x2",
            **edges,
        ),
        shapes=lines,
    )


def _reading(shape: tuple[int, ...], patch: int) -> dict[str, Any]:
    """Ticks beside the image rows: the number of the first token of each."""
    rows = range(0, shape[0] // patch, max(1, shape[0] // patch // 16))
    return {
        "tickmode": "array",
        "tickvals": [row * patch + (patch - 1) / 2 for row in rows],
        "ticktext": [f"{row * (shape[1] // patch)} →" for row in rows],
    }


def _places(strip: tuple[int, ...], patch: int) -> dict[str, Any]:
    """The ticks of the sequence: position numbers, which skip the columns between patches."""
    pitch = patch + 1 if patch > 1 else 1
    count = (strip[1] + 1) // pitch if patch > 1 else strip[1]
    step = max(1, count // 8)
    return {
        "tickmode": "array",
        "tickvals": [i * pitch + (patch - 1) / 2 for i in range(0, count, step)],
        "ticktext": [str(i) for i in range(0, count, step)],
    }


def _cuts(shape: tuple[int, ...], patch: int) -> list[dict[str, Any]]:
    """The lines between patches in the image."""
    if patch == 1:
        return []
    height, width = shape
    line = {"type": "line", "xref": "x", "yref": "y", "line": {"color": SERIES[1], "width": 2}}
    upright = [
        {**line, "x0": x - 0.5, "x1": x - 0.5, "y0": -0.5, "y1": height - 0.5}
        for x in range(patch, width, patch)
    ]
    level = [
        {**line, "x0": -0.5, "x1": width - 0.5, "y0": y - 0.5, "y1": y - 0.5}
        for y in range(patch, height, patch)
    ]
    return upright + level


def _strip_cuts(strip: tuple[int, ...], patch: int) -> list[dict[str, Any]]:
    """The same lines in the sequence."""
    if patch == 1:
        return []
    line = {"type": "line", "xref": "x2", "yref": "y2", "line": {"color": SERIES[1], "width": 2}}
    return [
        {**line, "x0": x, "x1": x, "y0": -0.5, "y1": strip[0] - 0.5}
        for x in range(patch, strip[1], patch + 1)
    ]
