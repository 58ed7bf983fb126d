"""Patterns: dense masks, algebra, and block covers that are never wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.core.patterns import Pattern, as_mask, causal, full, is_causal, padding, visible

REAL = torch.tensor([[True, True, False, True, False], [False, True, True, True, True]])

leaves = st.sampled_from([causal(), full(), ~causal(), ~full(), padding(REAL)])
compositions = st.recursive(
    leaves,
    lambda p: (
        st.builds(lambda a, b: a & b, p, p)
        | st.builds(lambda a, b: a | b, p, p)
        | st.builds(lambda a: ~a, p)
    ),
    max_leaves=6,
)


def test_causal_by_hand() -> None:
    assert causal().dense(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal().dense(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]  # the last two
    assert causal().dense(3, 1).int().tolist() == [[0], [0], [1]]


def test_padding_by_hand() -> None:
    mask = padding(REAL).dense(2, 5)
    assert mask.shape == (2, 1, 2, 5)
    assert (mask[0, 0] == REAL[0]).all()
    assert (mask[1, 0] == REAL[1]).all()


@settings(deadline=None, max_examples=60)
@given(compositions, compositions, st.integers(1, 5))
def test_algebra(a: Pattern, b: Pattern, n: int) -> None:
    def dense(pattern: Pattern) -> torch.Tensor:
        return pattern.dense(n, 5).expand(2, 1, n, 5)

    assert torch.equal(dense(a & b), dense(a) & dense(b))
    assert torch.equal(dense(a | b), dense(a) | dense(b))
    assert torch.equal(dense(~a), ~dense(a))
    assert torch.equal(dense(~(a & b)), dense(~a | ~b))
    assert torch.equal(dense(a & a), dense(a))


@settings(deadline=None, max_examples=60)
@given(compositions, st.data())
def test_cover_is_never_wrong(pattern: Pattern, data: st.DataObject) -> None:
    i, j = (data.draw(st.integers(0, 4)) for _ in range(2))
    rows = range(i, data.draw(st.integers(i + 1, 5)))
    columns = range(j, data.draw(st.integers(j + 1, 5)))
    block, cover = pattern.block(rows, columns), pattern.cover(rows, columns)
    assert torch.equal(
        block.expand(2, 1, len(rows), len(columns)),
        pattern.dense(5).expand(2, 1, 5, 5)[..., rows.start : rows.stop, j : columns.stop],
    )
    if cover is not None:
        assert (block == cover).all()


def test_cover_of_the_triangle_is_exact() -> None:
    assert causal().cover(range(4, 8), range(0, 5)) is True
    assert causal().cover(range(4, 8), range(8, 9)) is False
    assert causal().cover(range(4, 8), range(4, 8)) is None
    assert (~causal()).cover(range(4, 8), range(8, 9)) is True
    assert (causal() & ~causal()).cover(range(4, 8), range(8, 9)) is False


def test_neutral_elements() -> None:
    p = causal()
    assert p & full() is p
    assert full() & p is p
    assert p | full() is full()
    assert is_causal(p & full())
    assert not is_causal(p & padding(REAL))
    assert padding(None) is full()


def test_as_mask_has_no_mask_where_all_is_allowed() -> None:
    cpu = torch.device("cpu")
    assert as_mask(None, 3, 3, cpu) is None
    assert as_mask(full(), 3, 3, cpu) is None
    assert as_mask(causal(), 1, 7, cpu) is None  # the last position sees all
    assert torch.equal(as_mask(causal(), 2, 2, cpu), torch.ones(2, 2).tril().bool())


def test_words_compose() -> None:
    words = (causal() & padding(REAL)).description
    assert words == f"({causal().description}) and ({padding(REAL).description})"
    assert (~causal() | causal()).description.startswith("(not (each position attends to")


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="at least one query and one key, got n=0"):
        causal().dense(0)
    with pytest.raises(ValueError, match="padding is for 5 keys, but there are 7"):
        padding(REAL).dense(7)
    with pytest.raises(ValueError, match=r"`valid` should be Bool\[b m\]"):
        padding(REAL.float())
    with pytest.raises(ValueError, match="without a context"):
        visible(False, context_padding=REAL)


@pytest.mark.parametrize(
    "pattern",
    [
        padding(torch.ones(2, 7).bool()),
        causal() & padding(torch.ones(2, 7).bool()),
        ~padding(torch.ones(2, 7).bool()),
        padding(torch.ones(2, 7).bool()) | causal(),
    ],
)
def test_padding_of_another_length_is_refused_however_deep_it_stands(pattern: Pattern) -> None:
    pattern.dense(3, 7)
    for m in (5, 11):
        with pytest.raises(ValueError, match=f"padding is for 7 keys, but there are {m}"):
            pattern.dense(3, m)
        with pytest.raises(ValueError, match=f"padding is for 7 keys, but there are {m}"):
            as_mask(pattern, 3, m, torch.device("cpu"))
    with pytest.raises(ValueError, match="padding is for 2 sequences, but there are 3"):
        as_mask(pattern, 3, 7, torch.device("cpu"), b=3)


def test_a_pattern_combines_with_patterns_only() -> None:
    with pytest.raises(TypeError, match="joined with patterns"):
        causal() & torch.ones(3, 3).bool().tolist()
    with pytest.raises(TypeError, match="joined with patterns"):
        causal() | None
