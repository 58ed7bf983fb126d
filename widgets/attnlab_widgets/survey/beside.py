"""The times of a sweep as a picture: each layer beside fused full attention.

``python -m attnlab_widgets.survey --picture ROWS.jsonl PICTURE.svg`` draws what ``python -m
attnlab.measure sweep`` or ``gpu`` has written, on whatever machine.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from attnlab.figures.dots import score_dots
from attnlab.figures.picture import Picture
from attnlab.measure.summary import name


def beside_full_attention(rows: Iterable[Mapping[str, Any]]) -> Picture:
    """At the longest length that was timed, the time of each layer, forward and backward, over that
    of fused full attention in the same rounds: a dot for each round, the fastest layer first.

    ``rows`` are those of a sweep. Raises ValueError where none was timed beside full attention.
    """
    timed = [row for row in rows if row["pass"] == "both" and row["baseline_seconds"]]
    if not timed:
        raise ValueError("there is nothing to draw: no layer was timed beside full attention")
    longest = max(row["n"] for row in timed)
    last = [row for row in timed if row["n"] == longest]
    ratios: dict[str, Sequence[float]] = {
        name(row): [a / b for a, b in zip(row["seconds"], row["baseline_seconds"], strict=True)]
        for row in last
    }
    where = last[0]["machine"]
    return score_dots(
        {f"n = {longest:,}, {last[0]['dtype']}": dict(sorted(ratios.items(), key=_middle))},
        title="Forward and backward: below 1 is faster than fused full attention, "
        + f"on {where.get('GPU', where['processor'])}",
        quantity="time / that of fused full attention",
    )


def _middle(item: tuple[str, Sequence[float]]) -> float:
    return median(item[1])
