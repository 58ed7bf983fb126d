"""Lesson 12's checks: the rectangle around a pixel, and one axis of an image."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.core import patterns
from attnlab.exercises import Verdict, check_axis, check_neighbourhood
from attnlab.mechanisms.fixed.axial import Axes


def near(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    lines, across = i // width - j // width, i % width - j % width
    return (lines.abs() <= rows) & (across.abs() <= columns)


def near_by_loops(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    def sees(a: int, b: int) -> bool:
        (up, left), (down, right) = divmod(a, width), divmod(b, width)
        return abs(up - down) <= rows and abs(left - right) <= columns

    return torch.tensor([[sees(a, b) for b in j[0].tolist()] for a in i[:, 0].tolist()])


def near_by_squares(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    """The library's square of the larger radius, cut down."""
    height = len(i) // width
    square = patterns.local_2d((height, width), max(rows, columns)).dense(len(i))
    return square & near(i, j, width, rows, columns)


def shares(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return i // width == j // width if axis == 1 else i % width == j % width


def shares_by_the_page(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return Axes(width=width, axis=axis).pattern().dense(len(i))


def shares_by_distance(i: Tensor, j: Tensor, width: int, axis: int) -> Tensor:
    return (i - j) % width == 0 if axis == 0 else i // width == j // width


RIGHT: list[tuple[Callable[..., Verdict], Callable[..., Tensor]]] = [
    (check_neighbourhood, near),
    (check_neighbourhood, near_by_loops),
    (check_neighbourhood, near_by_squares),
    (check_neighbourhood, lambda *given: near(*given).float()),
    (check_axis, shares),
    (check_axis, shares_by_the_page),
    (check_axis, shares_by_distance),
    (check_axis, lambda *given: shares(*given).int()),
]


def wrapped(i: Tensor, j: Tensor, width: int, rows: int, columns: int) -> Tensor:
    steps = {a * width + b for a in range(-rows, rows + 1) for b in range(-columns, columns + 1)}
    return torch.isin(i - j, torch.tensor(sorted(steps)))


NEAR_WRONG: dict[str, tuple[str, Any]] = {
    "wrapped": ("wraps around", wrapped),
    "total": ("total widths", lambda i, j, w, r, c: near(i, j, w, r // 2, c // 2)),
    "exchanged": ("are exchanged", lambda i, j, w, r, c: near(i, j, w, c, r)),
    "row and column": (
        "are exchanged",
        lambda i, j, w, r, c: ((i % w - j % w).abs() <= r) & ((i // w - j // w).abs() <= c),
    ),
    "height": ("divide by the height", lambda i, j, w, r, c: near(i, j, len(i) // w, r, c)),
    "strip": ("That is a strip", lambda i, j, w, r, c: (i - j).abs() <= c),
    "long strip": ("longer strip", lambda i, j, w, r, c: (i - j).abs() <= r * w + c),
    "or": (
        "cross of bands",
        lambda i, j, w, r, c: ((i // w - j // w).abs() <= r) | ((i % w - j % w).abs() <= c),
    ),
    "rows": ("Only the rows", lambda i, j, w, r, c: (i // w - j // w).abs() <= r),
    "columns": ("Only the columns", lambda i, j, w, r, c: (i % w - j % w).abs() <= c),
    "no sign": (
        "The absolute value of the distances is missing",
        lambda i, j, w, r, c: (i // w - j // w <= r) & (i % w - j % w <= c),
    ),
    "short": (
        "One pixel is missing on each side",
        lambda i, j, w, r, c: near(i, j, w, r - 1, c - 1),
    ),
    "diamond": (
        "a diamond",
        lambda i, j, w, r, c: (i // w - j // w).abs() + (i % w - j % w).abs() <= max(r, c),
    ),
    "past": ("the past only", lambda i, j, w, r, c: near(i, j, w, r, c) & (j <= i)),
    "blind": ("No pixel sees itself", lambda i, j, w, r, c: near(i, j, w, r, c) & (i != j)),
    "row": ("Wrong shape", lambda i, j, w, r, c: near(i, j, w, r, c)[0]),
    "None": ("`return`", lambda i, j, w, r, c: None),
    "other": ("where 0 is right", lambda i, j, w, r, c: near(i, j, w, r + 1, c)),
    "in place": (
        "`i` changed in place",
        lambda i, j, w, r, c: near(i.clone(), j, w, r, c) | (i.add_(1) < 0),
    ),
}

AXIS_WRONG: dict[str, tuple[str, Any]] = {
    "exchanged": ("axes are exchanged", lambda i, j, w, axis: shares(i, j, w, 1 - axis)),
    "line": ("the result is always the line", lambda i, j, w, axis: shares(i, j, w, 1)),
    "column": ("the result is always the column", lambda i, j, w, axis: shares(i, j, w, 0)),
    "cross": ("a cross", lambda i, j, w, axis: shares(i, j, w, 0) | shares(i, j, w, 1)),
    "itself": ("the pixel itself", lambda i, j, w, axis: i == j),
    "window": (
        "a window, not a line",
        lambda i, j, w, axis: (i - j).abs() < w if axis else (i - j) % w == 0,
    ),
    "height": ("divide by the height", lambda i, j, w, axis: shares(i, j, len(i) // w, axis)),
    "past": ("the past only", lambda i, j, w, axis: shares(i, j, w, axis) & (j <= i)),
    "blind": ("No pixel sees itself", lambda i, j, w, axis: shares(i, j, w, axis) & (i != j)),
    "raised": ("raised ZeroDivisionError", lambda i, j, w, axis: 1 // 0),
    "None": ("`return`", lambda i, j, w, axis: None),
    "other": ("numbers are not", lambda i, j, w, axis: shares(i, j, 2 * w, axis)),
    "in place": (
        "`j` changed in place",
        lambda i, j, w, axis: shares(i, j.clone(), w, axis) | (j.add_(1) < 0),
    ),
}

TABLES = [(check_neighbourhood, NEAR_WRONG), (check_axis, AXIS_WRONG)]
WRONG = [(check, *pair) for check, table in TABLES for pair in table.values()]


@pytest.mark.parametrize(("check", "solution"), RIGHT)
def test_written_differently_is_right(check: Callable, solution: Callable) -> None:
    verdict = check(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("check", "words", "solution"), WRONG, ids=[w[1] for w in WRONG])
def test_mistakes_by_name(
    check: Callable, words: str, solution: Any, refuses: Callable[..., None]
) -> None:
    refuses(check(solution), words)


@pytest.mark.parametrize(("check", "table"), TABLES)
def test_messages_differ(check: Callable, table: dict, tells_apart: Callable) -> None:
    tells_apart(check, table)
