"""What depends on where a sequence ends, what is drawn from what is left, what begins later."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.core import patterns
from attnlab.core.patterns import Pattern, edges, local, random, read, strided
from attnlab.core.patterns.by_table import Documents
from attnlab.core.sparse.layout import layout

ITEMS = st.sampled_from(
    [
        *(local(0), local(2), strided(3), edges(2, of="row"), edges(1, 2, of="column")),
        *(random(2, 5), random(3, 1, among=~local(1)), patterns.causal(), ~strided(2)),
    ]
)
SHIFTED = st.builds(
    lambda p, q, start, size: (p | q).shifted(start) | q.blocks(size).shifted(2 * start),
    *(ITEMS, ITEMS, st.integers(0, 9), st.integers(1, 4)),
)


def test_edges_by_hand() -> None:
    assert edges(1, 2, of="column").dense(5)[0].int().tolist() == [1, 0, 0, 1, 1]
    assert edges(1, of="row").dense(3)[:, 2].int().tolist() == [1, 0, 0]
    assert torch.equal(edges(2, 2, of="row").dense(3), torch.ones(3, 3).bool())  # they meet
    assert not edges(0, of="row").dense(3).any()
    assert edges(0, 5, of="row").dense(3).all()


def test_shifted_by_hand() -> None:
    pattern = (~local(0)).shifted(2)
    expected = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert pattern.dense(4).int().tolist() == expected
    assert not pattern.dense(2).any()
    assert local(1).shifted(0) == local(1)
    # Positions 2, 4, 6 are, from 3 on, 1 and 3: steps that begin before the start are no steps.
    assert strided(2).shifted(3).cover(range(2, 7, 2), range(4, 7, 2)) is None


@settings(deadline=None, max_examples=80)
@given(SHIFTED, st.integers(1, 41), st.data())
def test_covers_layouts_and_text_agree_with_the_pairs(
    pattern: Pattern, m: int, data: st.DataObject
) -> None:
    sized, dense = pattern.sized(m), pattern.dense(m)
    i, j = (data.draw(st.integers(0, m - 1)) for _ in range(2))
    rows = range(i, data.draw(st.integers(i + 1, m)), data.draw(st.integers(1, 3)))
    columns = range(j, data.draw(st.integers(j + 1, m)), data.draw(st.integers(1, 3)))
    block, cover = dense[list(rows)][:, list(columns)], sized.cover(rows, columns)
    assert torch.equal(sized.block(rows, columns), block)
    if cover is not None:
        assert (block == cover).all()
    assert torch.equal(layout(pattern, m, m, 4).dense(), dense)
    assert torch.equal(read(pattern.code).dense(m), dense)
    assert torch.equal(read(pattern.key).dense(m), dense)


@pytest.mark.parametrize("m", [1, 2, 3, 13, 97])
def test_what_is_drawn_is_allowed_different_and_enough(m: int) -> None:
    among = ~(local(1) | edges(1, 1, of="column"))
    drawn, allowed = random(3, 7, among=among).dense(m), among.dense(m)
    assert not (drawn & ~allowed).any()
    assert torch.equal(drawn.sum(-1), allowed.sum(-1).clamp(max=3))


def test_draws_are_fair_and_seeded() -> None:
    """Over many seeds each of the allowed keys is drawn equally often."""
    among = ~local(1)
    often = sum(random(2, seed, among=among).dense(7).int() for seed in range(600))
    expected = among.dense(7) * 2 / among.dense(7).sum(-1, keepdim=True) * 600
    assert (often - expected).abs().max() < 75  # six standard deviations
    assert torch.equal(random(2, 3, among=among).dense(7), random(2, 3, among=among).dense(7))
    assert not torch.equal(random(2, 3, among=among).dense(97), random(2, 4, among=among).dense(97))


def test_a_method_binds_more_tightly_than_not() -> None:
    for pattern in ((~local(1)).blocks(2), (~local(1)).shifted(2), ~local(1).blocks(2)):
        assert read(pattern.code) == pattern
    assert (~local(1)).blocks(2).code == "(~local(1)).blocks(2)"


def test_a_shifted_pattern_of_one_length_is_refused_for_another() -> None:
    pattern = Documents(torch.tensor([0, 0, 1])).shifted(2)
    assert pattern.dense(5)[2:, 2:].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    with pytest.raises(ValueError, match="ids are for 3 keys, but there are 4"):
        pattern.dense(6)


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match='edges are of a "row" or of a "column", got \'both\''):
        edges(1, of="both")
    with pytest.raises(ValueError, match="first should be at least 0, got -1"):
        edges(-1, 2, of="row")
    with pytest.raises(ValueError, match="starts should be at least 0, got -2"):
        local(1).shifted(-2)
    with pytest.raises(ValueError, match="give each head a random pattern of its own"):
        random(1, among=patterns.per_head(local(1), local(2)))
    with pytest.raises(ValueError, match="differs between sequences"):
        random(1, among=patterns.padding(torch.ones(2, 5).bool())).dense(5)


IDS = torch.stack((torch.arange(23) // 8, torch.arange(23) // 11))


@pytest.mark.parametrize(
    "pattern",
    [
        patterns.document(IDS),
        patterns.document(IDS[0]),
        patterns.per_head(local(3), patterns.causal(), patterns.document(IDS[1])),
        patterns.per_head(patterns.document(IDS), ~local(9)),
    ],
    ids=str,
)
def test_a_block_is_full_or_empty_where_it_is_in_every_head_and_sequence(pattern: Pattern) -> None:
    dense = pattern.dense(23).flatten(0, -3) if pattern.dense(23).dim() > 2 else pattern.dense(23)
    known = 0
    for rows in (range(i, min(i + size, 23)) for size in (1, 4, 7) for i in range(0, 23, size)):
        for columns in (range(j, min(j + 4, 23)) for j in range(0, 23, 4)):
            block, cover = dense[..., rows, :][..., columns], pattern.cover(rows, columns)
            known += cover is not None
            assert cover is not True or block.all()
            assert cover is not False or not block.any()
    assert known > 5


def test_one_position_sees_and_several_see() -> None:
    assert patterns.places([0], "row").description == "0 attends to every position"
    assert patterns.places([0, 3], "row").description == "0, 3 attend to every position"
    assert edges(1, of="row").description == "the first attends to every position"
    assert edges(1, 1, of="row").description == "the first and the last attend to every position"
    assert edges(0, 2, of="column").description == "all attend to the last 2"
    assert patterns.prefix(1).description == "each position attends to the first"
