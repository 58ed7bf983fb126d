"""Summary columns anywhere in their blocks: by hand, and what their covers know."""

import itertools

import pytest
import torch

from attnlab.core import patterns
from attnlab.core.patterns import Intervals, read, summaries
from attnlab.core.sparse.layout import layout


def test_sub_block_by_hand() -> None:
    row = summaries(5, 2, 1).dense(13)[0]
    assert row.nonzero().squeeze(-1).tolist() == [2, 3, 7, 8, 12]
    assert summaries(5, 2, 0) == summaries(5, 2)


@pytest.mark.parametrize("sizes", [(5, 2, 0), (5, 2, 1), (7, 1, 6), (7, 3, 2), (3, 3, 0), (1, 1)])
def test_covers_are_exact_for_runs_and_for_single_residues(sizes: tuple[int, ...]) -> None:
    pattern, n = summaries(*sizes), 23
    seen = pattern.dense(n)[0]
    for first, last in itertools.combinations_with_replacement(range(n), 2):
        for step in (1, sizes[0], 2 * sizes[0]):
            columns = range(first, last + 1, step)
            cover = pattern.cover(range(3, 5), columns)
            found = seen[list(columns)]
            expected = True if found.all() else None if found.any() else False
            assert cover is expected, (columns, cover)


def test_covers_of_other_steps_are_cautious() -> None:
    pattern, seen = summaries(7, 2, 3), summaries(7, 2, 3).dense(41)[0]
    for first, step, count in itertools.product(range(9), (2, 3, 5, 6), (2, 3, 7)):
        columns = range(first, first + step * count, step)
        found = seen[[j for j in columns if j < 41]]
        coverage = pattern.covers(Intervals.of(range(2)), Intervals.of(columns))
        assert not coverage.every or found.all()
        assert coverage.some or not found.any()


@pytest.mark.parametrize("sizes", [(7, 2, 3), (61, 31, 17)])
def test_layout_is_the_mask(sizes: tuple[int, int, int]) -> None:
    pattern = (patterns.block_diagonal(sizes[0]) | summaries(*sizes)).causal()
    assert torch.equal(layout(pattern, 97, 97).dense(), pattern.dense(97))


def test_it_is_read_from_its_own_code() -> None:
    for pattern in (summaries(7, 2), summaries(7, 2, 3)):
        assert read(pattern.code) == pattern
    assert (
        summaries(7, 2, 3).description
        == "each position attends to positions 2 to 3 of every block of 7"
    )


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 summary columns, 6 before the end, do not fit into"):
        summaries(7, 2, 6)
    with pytest.raises(ValueError, match="offset should be at least 0, got -1"):
        summaries(7, 2, -1)
    with pytest.raises(ValueError, match="8 summary columns do not fit into blocks of 7 positions"):
        summaries(7, 8)
