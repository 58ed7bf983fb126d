"""The checks of single numbers in lessons 40 to 63: each mistake gets its own sentence."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from attnlab.exercises import (
    Verdict,
    check_chain_pairs,
    check_collected_bytes,
    check_equal_lengths,
    check_root_value,
    check_slowest_turn,
    check_table_width,
    check_uniform_row,
    check_uniform_share,
    check_unused_rows,
)

# Each check with ways to the right number, and with what is wrong and a part of its sentence.
CASES: dict[Callable[[object], Verdict], tuple[tuple[float, ...], dict[float, str]]] = {
    check_slowest_turn: (
        (2 * math.pi / 0.001, 6283),
        {
            1000: "turned by 1 radian",
            2 * math.pi: "the fastest pair",
            360 / 0.001: "2π, not 360",
            10_000: "is the base",
            2 * math.pi / 1e-4: "not 0.0001",
        },
    ),
    check_unused_rows: (
        (2 * 16 + 1 - 17,),
        {
            15: "row 2k is one",
            17: "attends to itself",
            33: "whole table",
            0: "never meets a later key",
        },
    ),
    check_table_width: (
        (int(1600 * 48 / 1648), max(r for r in range(48) if 1600 * r + 48 * r < 1600 * 48)),
        {
            46.6: "equally large",
            47: "counts as well",
            48: "on top",
            1599: "width of a row",
            24: "Half the width",
        },
    ),
    check_root_value: (
        (((2 + 6) / 2 + (3 + 4 + 6) / 3) / 2,),
        {
            ((2 + 6) / 1 + (3 + 4 + 6) / 2) / 2: "missing from the counts",
            4 + 13 / 3: "number of leaves",
            (2 + 6 + 3 + 4 + 6) / 5: "thrown together",
            (6 + 2 + 4 + 3) / 4: "stands on both branches",
            3.5: "is not above this leaf",
            13 / 3: "two leaves",
        },
    ),
    check_chain_pairs: (
        (64 * 64 + sum(2 * i + 1 for i in range(1, 64)),),
        {
            4801: "balanced",
            8191 - 4096: "rows of the nodes",
            8191 - 63: "own subtree",
            64 * 64 + sum(i + 1 for i in range(1, 64)): "nodes below a node",
            64 * 64: "rows of the leaves",
            127**2: "all pairs",
        },
    ),
    check_equal_lengths: (
        ((18 / 2) ** 0.5,),
        {9: "ratio", 1 / 3: "other direction", 1 / 9: "wrong way round", 6: "afterwards"},
    ),
    check_uniform_share: (
        ((1 / 3 + 2 / 5) / 2,),
        {
            2 / 5: "the last x alone",
            1 / 3 + 2 / 5: "Divide by their number",
            (1 / 3 + 2 / 5) / 5: "do not count",
            (1 / 2 + 3 / 4) / 2: "attends to itself",
            (1 / 3 + 1 / 5) / 2: "two induction keys",
            1 / 3: "at place 2 alone",
        },
    ),
    check_uniform_row: (
        (13 / 14**2,),
        {
            14 / 14**2: "own patch",
            13 / (14**2 - 1): "divide by n",
            15 / 16**2: "side of a patch",
            7 / 64: "grid of the digits",
            223 / 224**2: "Those are pixels",
            13: "how many patches",
        },
    ),
    check_collected_bytes: (
        (2_500 * 12 * 12 * 2 * 64 * 2,),
        {
            2_500 * 12 * 12 * 64 * 2: "Queries AND keys",
            2_500 * 12 * 12 * 2 * 64 * 4: "float32",
            2_500 * 12 * 2 * 64 * 2: "one layer",
            2_500 * 2 * 64 * 2: "one head",
        },
    ),
}


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_the_right_number_is_right(check: Callable[[object], Verdict]) -> None:
    for answer in CASES[check][0]:
        verdict = check(answer)
        assert verdict.right, verdict.message
    assert not check(...).right


@pytest.mark.parametrize(
    ("check", "answer", "words"),
    [
        pytest.param(check, answer, words, id=f"{check.__name__}-{words}")
        for check, (_, wrong) in CASES.items()
        for answer, words in wrong.items()
    ],
)
def test_a_wrong_number_is_named(check: Any, answer: float, words: str, refuses: Any) -> None:
    refuses(check(answer), words)
