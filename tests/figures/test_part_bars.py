"""Bars of parts and points of heads: where they stand, what is left out, what is said."""

import math

import numpy as np
import pytest

from attnlab.figures.head_scatter import head_scatter
from attnlab.figures.part_bars import part_bars

PARTS = {"embedding": [0.5, 0.1], "head 0.0": [-1.0, -0.4], "head 1.1": [4.0, 2.0]}


def bars(**given):
    return part_bars(**{"parts": PARTS, "title": "Who writes the answer"} | given)


def test_bars_reach_from_zero_to_the_mean_and_the_last_is_the_sum() -> None:
    upward, downward, total, spread, means, words = bars().data
    assert list(upward.x)[:2] == [0, 0.3]
    assert list(upward.x)[3:5] == [0, 3.0]
    assert list(downward.x)[:2] == [0, pytest.approx(-0.7)]
    assert list(downward.y)[:2] == [1, 1]
    assert list(total.x)[:2] == [0, pytest.approx(2.6)]
    assert list(total.y)[:2] == [3, 3]
    assert list(spread.x)[-3:-1] == [1.7, 3.5]  # of the sums of each text
    assert len({upward.line.color, downward.line.color, total.line.color}) == 3
    assert [text.strip() for text in words.text] == ["+0.30", "-0.70", "+3.00", "+2.60"]
    assert list(means.x)[-1] == pytest.approx(2.6)


def test_single_numbers_have_no_spread() -> None:
    picture = bars(parts={"a": 1.0, "b": 2})
    assert len(picture.data) == 4
    assert picture.rows == [
        {"part": "a", "mean": 1.0}, {"part": "b", "mean": 2.0}, {"part": "sum", "mean": 3.0}
    ]  # fmt: skip


def test_the_smallest_of_many_parts_are_one_bar() -> None:
    parts = {f"head {at}": [float(at)] for at in range(9)}
    rows = bars(parts=parts, most=4).rows
    assert [row["part"] for row in rows] == ["head 6", "head 7", "head 8", "all 6 others", "sum"]
    assert rows[3]["mean"] == 15
    assert rows[4]["mean"] == 36
    assert len(bars(parts=parts, most=9).rows) == 10


def test_the_description_names_the_largest_and_what_is_against() -> None:
    said = bars().description
    assert "3 parts, which sum to +2.6. Largest: head 1.1 +3; embedding +0.3" in said
    assert "Most against it: head 0.0 -0.7." in said
    assert "against" not in bars(parts={"a": 1.0}).description
    said = bars(parts={"a": 1.0, "b": -3.0, "c": -0.5}).description
    assert "sum to -2.5. Largest: b -3; c -0.5; a +1. Most against it: a +1." in said
    assert "<svg" in bars(theme="dark").svg()


def test_bad_parts() -> None:
    with pytest.raises(ValueError, match='a part called "sum"'):
        bars(parts={"sum": 1.0, "a": 2.0})
    with pytest.raises(ValueError, match="equally many numbers each"):
        bars(parts={"a": [1.0, 2.0], "b": [1.0]})
    with pytest.raises(ValueError, match="most should be at least 1"):
        bars(most=0)


# ---- heads as points

HEADS = {
    "0.0": (np.linspace(0, 1, 11), [0.2] * 11),
    "0.1": ([0.5, math.nan, 0.7], [0.1, 0.3, 0.2]),
    "1.0": ([math.nan] * 3, [0.1, 0.3, 0.2]),
}
KINDS = {"0.0": "previous token", "0.1": "mixed", "1.0": "induction"}


def scatter(**given):
    right = {"heads": HEADS, "across": "previous", "up": "first", "title": "Heads"}
    return head_scatter(**right | {"kinds": KINDS} | given)


def test_points_are_medians_and_arms_reach_from_decile_to_decile() -> None:
    arms, first, second, names = scatter().data
    assert list(names.text) == ["0.0", "0.1"]
    assert min(names.y) > 0.2
    assert list(arms.x)[:2] == [pytest.approx(0.1), pytest.approx(0.9)]
    assert list(arms.y)[:2] == [0.2, 0.2]
    assert (list(first.x), list(first.y)) == ([0.5], [0.2])
    assert (list(second.x), list(second.y)) == ([0.6], [0.2])
    assert [trace.name for trace in (first, second)] == ["previous token", "mixed"]
    assert first.marker.symbol != second.marker.symbol
    assert first.marker.color != second.marker.color


def test_a_head_without_numbers_has_no_point_and_it_is_said() -> None:
    picture = scatter()
    assert [row["head"] for row in picture.rows] == ["0.0", "0.1"]
    assert "1 head has no number" in picture.description
    assert picture.rows[0]["previous, 10 % to 90 %"] == "0.1 to 0.9"
    assert "spread most over the texts in head 0.0, by 0.8" in picture.description
    with pytest.raises(ValueError, match="no head with a number for both axes"):
        scatter(heads={"1.0": HEADS["1.0"]})


def test_without_kinds_all_are_alike() -> None:
    picture = scatter(kinds=None, heads={"0.0": (1, 2.0), "0.1": (3, 4.0)})
    assert len(picture.data) == 3
    assert list(picture.data[1].x) == [1, 3]
    assert "<svg" in picture.svg()


def test_bad_heads() -> None:
    with pytest.raises(ValueError, match="lacks"):
        scatter(kinds={"0.0": "mixed"})
    with pytest.raises(TypeError, match="should have two statistics"):
        scatter(heads={"0.0": [1.0]})


def boxes(picture):
    """(name, left, right, low, high) of each name in pixels, and the points."""
    page, names = picture.layout, picture.data[-1]
    across, up = (
        (axis.range[1] - axis.range[0], size)
        for axis, size in (
            (page.xaxis, page.width - page.margin.l - page.margin.r),
            (page.yaxis, page.height - page.margin.t - page.margin.b),
        )
    )
    found = []
    for name, x, y in zip(names.text, names.x, names.y, strict=True):
        middle, height = x * across[1] / across[0], y * up[1] / up[0]
        half = 3 * len(name) - 1.0  # at least so wide, in type of 10 pixels
        found.append((name, middle - half, middle + half, height - 5, height + 5))
    points = [
        (x * across[1] / across[0], y * up[1] / up[0])
        for trace in picture.data[1:-1]
        for x, y in zip(trace.x, trace.y, strict=True)
    ]
    return found, points


def test_names_cover_no_other_name_and_no_point() -> None:
    crowd = {f"{at // 4}.{at % 4}": (0.4 + 0.003 * at, 0.2 + 0.002 * at) for at in range(8)}
    picture = scatter(kinds=None, heads=crowd | {"9.8": (0.0, 0.0), "9.9": (1.0, 1.0)})
    found, points = boxes(picture)
    names = [name for name, *_ in found]
    assert {"9.8", "9.9"} < set(names), "where there is room, a name stands"
    assert len(names) < 10, "in this crowd some have none"
    assert [row["head"] for row in picture.rows] == [*crowd, "9.8", "9.9"]
    for at, (_, left, right, low, high) in enumerate(found):
        for _, other_left, other_right, other_low, other_high in found[:at]:
            apart = right <= other_left or other_right <= left
            assert apart or high <= other_low or other_high <= low
        assert not any(left < x < right and low < y < high for x, y in points)
