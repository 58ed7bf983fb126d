"""Patterns that are copied, as with the module that keeps them, mean the same."""

import copy

import pytest
import torch

from attnlab.core import patterns as p
from attnlab.core.patterns import Pattern
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.decoding import step


@pytest.mark.parametrize("pattern", [p.random(3), p.random(2).blocks(5)], ids=str)
def test_a_copy_draws_the_same(pattern: Pattern) -> None:
    copied = copy.deepcopy(pattern)
    assert copied == pattern
    assert copied.code == pattern.code
    assert torch.equal(copied.dense(31), pattern.dense(31))


def test_a_copy_of_a_table_has_a_key_of_its_own() -> None:
    pattern = p.listed(torch.randint(11, (11, 3)))
    copied = copy.deepcopy(pattern)
    assert p.read(copied.key) is copied
    assert p.read(pattern.key) is pattern
    assert torch.equal(copied.dense(11), pattern.dense(11))


def test_a_key_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no pattern is held under 987654"):
        p.read("held(987654)")


def test_a_key_listed_twice_is_one_key() -> None:
    pattern = p.listed(torch.tensor([[0, 0], [1, 2], [2, 2]]))
    assert pattern.cover(range(1), range(2)) is None


def test_a_table_of_other_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="for 8 positions, but there are 3"):
        p.listed(torch.zeros(8, 2, dtype=torch.long)).blocks(3).dense(9)


def test_a_table_decodes_step_by_step_and_forgets_what_no_later_row_lists() -> None:
    """While decoding, "all later queries" reach beyond the table: nothing is listed there."""
    table = torch.tensor([[i, i // 2, max(0, i - 3)] for i in range(11)])
    pattern = p.listed(table)
    q, k, v = torch.randn(3, 2, 1, 11, 5, dtype=torch.float64)
    parallel = masked_softmax(q @ k.mT / 5**0.5, pattern.dense(11)) @ v
    state, outs, kept = None, [], []
    for i in range(11):
        now = slice(i, i + 1)
        out, state = step(q[:, :, now], k[:, :, now], v[:, :, now], pattern, state)
        outs.append(out)
        kept.append(state.places.tolist())
    assert torch.allclose(torch.cat(outs, 2), parallel)
    wanted = [[j for j in range(i + 1) if (table[i + 1 :] == j).any()] for i in range(11)]
    assert kept == wanted
