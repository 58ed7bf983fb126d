"""Who works and who waits: the times of several processes, one line each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from attnlab.core.arguments import check_list, check_mapping, check_number, check_texts
from attnlab.core.arrays import Array
from attnlab.core.suggest import check_choice
from attnlab.figures.curves import packed
from attnlab.figures.labels import escaped
from attnlab.figures.layout import axis, label_width, layout, note, text_width
from attnlab.figures.picture import Picture, Row
from attnlab.figures.theme import SERIES, Theme, colours, theme_name

KINDS = ("work", "wait")
LINE, TOP, BETWEEN, BELOW, PAGE = 26, 62, 34, 104, 720

Times = Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]


def process_timeline(
    panels: Times, *, title: str, unit: str = "ms", theme: str | None = None
) -> Picture:
    """A thick bar where a process works, a thin dotted line where it waits for another one.

    ``panels`` maps a name to processes, and each process to (kind, start, end) in their order: kind
    is "work" or "wait", times are in ``unit``. Each panel begins at its first start; all have one
    scale. Where nothing is drawn, a process does neither.
    """
    check_texts(title=title, unit=unit)
    example = '{"contiguous": {"process 0": [("work", 0, 2.5), ("wait", 2.5, 4)]}}'
    found = {}
    for panel, processes in check_mapping("panels", panels, example).items():
        given = check_mapping(panel, processes, '{"process 0": [("work", 0, 2.5)]}')
        times = {
            name: [_span(name, one) for one in check_list(name, x)] for name, x in given.items()
        }
        starts = [start for spans in times.values() for _, start, _ in spans]
        if not starts:
            raise ValueError(f"{panel!r} should hold a time of at least one process")
        found[panel] = {
            name: [(kind, start - min(starts), end - min(starts)) for kind, start, end in spans]
            for name, spans in times.items()
        }
    theme = theme_name(theme)
    look = colours(theme)
    traces = [
        _trace(kind, processes, place, kind in KINDS[:1], look)
        for place, processes in enumerate(found.values())
        for kind in KINDS
    ]
    for number, trace in enumerate(traces):
        trace.showlegend = number < len(KINDS)
    rows = [row for panel, each in found.items() for row in _rows(panel, each, unit)]
    sentences = " ".join(
        f"{row['panel']}, {row['process']}: works {row[f'work ({unit})']} {unit}, waits "
        f"{row[f'wait ({unit})']}."
        for row in rows
    )
    description = f"{title}. Work and waiting of each process, in {unit}. {sentences}"
    page = _page(look, title, unit, found)
    return Picture(traces, page, description=description, rows=rows, theme=theme)


def _span(name: str, given: object) -> tuple[str, float, float]:
    parts = check_list(f"a time of {name}", given)
    if len(parts) != 3:
        raise ValueError(f"a time of {name!r} should be (kind, start, end), got {len(parts)} parts")
    kind, *ends = parts
    check_choice(f"the kind of a time of {name!r}", kind, KINDS)
    start, end = (check_number(f"a time of {name}", one) for one in ends)
    if end < start:
        raise ValueError(f"a time of {name!r} ends at {end:g}, before it starts at {start:g}")
    return kind, start, end


def _trace(
    kind: str, processes: Mapping[str, Any], place: int, thick: bool, look: Theme
) -> go.Scatter:
    """All bars of one kind in one panel, as one broken line."""
    x: list[float] = []
    y: list[float] = []
    for height, spans in enumerate(processes.values()):
        for which, start, end in spans:
            if which == kind:
                x += [start, end, np.nan]
                y += [height, height, np.nan]
    style = {"color": SERIES[0], "width": 14} if thick else {"color": look.quiet, "width": 2}
    return go.Scatter(
        x=packed(np.array(x)),
        y=packed(np.array(y)),
        name="works" if thick else "waits for another process",
        mode="lines",
        line=style | {"dash": "solid" if thick else "dot"},
        hoverinfo="skip",
        xaxis=f"x{place + 1 if place else ''}",
        yaxis=f"y{place + 1 if place else ''}",
    )


def _page(look: Theme, title: str, unit: str, found: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for processes in found.values() for name in processes]
    left = 20 + round(max(label_width(escaped(name)) for name in names))
    heights = [LINE * len(processes) for processes in found.values()]
    inner = sum(heights) + BETWEEN * (len(heights) - 1)
    page = layout(
        look,
        title,
        width=max(PAGE, text_width(title, 16.5) + 16),
        height=TOP + inner + BELOW,
        margin={"l": left, "r": 24, "t": TOP, "b": BELOW},
    )
    page |= {"showlegend": True, "annotations": []}
    page["legend"] = {
        "orientation": "h", "x": 0, "xanchor": "left", "y": -52 / inner, "yanchor": "top",
        "font": {"size": 12, "color": look.ink}, "bgcolor": "rgba(0,0,0,0)",
    }  # fmt: skip
    last = max(end for each in found.values() for spans in each.values() for *_, end in spans)
    above = float(inner)
    for place, (panel, processes) in enumerate(found.items()):
        number = str(place + 1) if place else ""
        ends = [(above - heights[place]) / inner, above / inner]
        bottom = place == len(found) - 1
        page[f"xaxis{number}"] = axis(
            look,
            f"time since the first start ({unit})" if bottom else "",
            range=[-0.01 * last, 1.01 * last] if last else [-1, 1],
            anchor=f"y{number}",
            showticklabels=bottom,
        )
        page[f"yaxis{number}"] = axis(
            look,
            range=[len(processes) - 0.5, -0.5],
            domain=[max(0.0, ends[0]), ends[1]],
            tickmode="array",
            tickvals=list(range(len(processes))),
            ticktext=[escaped(name) for name in processes],
            anchor=f"x{number}",
            showgrid=False,
        )
        page["annotations"].append(
            note(look, f"<b>{escaped(panel)}</b>", 0, ends[1], xanchor="left", yanchor="bottom")
        )
        above -= heights[place] + BETWEEN
    return page


def _rows(panel: str, processes: Mapping[str, Any], unit: str) -> list[Row]:
    found: list[Row] = []
    for name, spans in processes.items():
        lengths: dict[str, Array] = {
            kind: np.array([end - start for which, start, end in spans if which == kind])
            for kind in KINDS
        }
        sums = {f"{kind} ({unit})": float(f"{lengths[kind].sum():.3g}") for kind in KINDS}
        found.append({"panel": panel, "process": name} | sums)
    return found
