"""The algebra of patterns: laws, blocks of pairs, and what each primitive says and allows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.core import patterns as p
from attnlab.core.patterns import Intervals, Pattern
from attnlab.core.sparse.layout import layout

small = st.integers(1, 9)
PRIMITIVES = st.one_of(
    st.just(p.full()),
    st.just(p.causal()),
    st.builds(p.local, st.integers(0, 9)),
    st.builds(p.strided, small),
    st.builds(p.dilated, st.integers(0, 4), small),
    small.flatmap(lambda size: st.builds(p.fixed, st.just(size), st.integers(1, size))),
    st.builds(p.global_, st.lists(st.sampled_from([0, -1]), min_size=1, max_size=3)),
    st.builds(p.prefix, small),
    st.builds(p.random, st.integers(0, 4), st.integers(0, 99)),
    st.builds(p.block_diagonal, small),
)
PATTERNS = st.recursive(
    PRIMITIVES,
    lambda inner: st.one_of(
        st.builds(Pattern.__and__, inner, inner),
        st.builds(Pattern.__or__, inner, inner),
        st.builds(Pattern.__invert__, inner),
        st.builds(Pattern.blocks, inner, small),
        st.builds(Pattern.causal, inner),
    ),
    max_leaves=5,
)
LENGTHS = st.integers(2, 70)
quick = settings(max_examples=60, deadline=None)


def pairs(n: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n)[:, None], torch.arange(n)[None, :]


@quick
@given(PATTERNS, LENGTHS, LENGTHS, st.sampled_from([None, 3, 16]))
def test_layout_covers_exactly_the_dense_predicate(
    pattern: Pattern, n: int, m: int, block: int | None
) -> None:
    n, m = min(n, m), max(n, m)
    assert torch.equal(layout(pattern, n, m, block).dense(), pattern.dense(n, m))


@quick
@given(PATTERNS, LENGTHS)
def test_count_is_that_of_the_dense_mask(pattern: Pattern, n: int) -> None:
    assert pattern.count(n) == pattern.dense(n).sum()
    assert pattern.density(n) == pytest.approx(float(pattern.dense(n).float().mean()))


@quick
@given(PATTERNS, LENGTHS, st.data())
def test_blocks_of_pairs_are_what_they_are_said_to_be(
    pattern: Pattern, n: int, data: st.DataObject
) -> None:
    """Full is full and empty is empty, for any two arithmetic progressions of positions."""
    pattern, intervals = pattern.sized(n), []
    for _ in range(2):
        first = data.draw(st.integers(0, n - 1))
        intervals.append(
            range(first, data.draw(st.integers(first + 1, n)), data.draw(st.integers(1, 5)))
        )
    cover, pairs = pattern.cover(*intervals), pattern.block(*intervals)
    if cover is not None:
        assert (pairs == cover).all()


@quick
@given(PATTERNS, LENGTHS, st.data())
def test_single_pairs_are_known(pattern: Pattern, n: int, data: st.DataObject) -> None:
    """On one row and one column nothing is left to look at."""
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    known = pattern.sized(n).cover(range(i, i + 1), range(j, j + 1))
    assert known == bool(pattern.dense(n)[i, j])


@quick
@given(PATTERNS, PATTERNS, LENGTHS)
def test_de_morgan_idempotence_and_causal_closure(a: Pattern, b: Pattern, n: int) -> None:
    assert torch.equal((~(a & b)).dense(n), (~a | ~b).dense(n))
    assert torch.equal((~(a | b)).dense(n), (~a & ~b).dense(n))
    assert torch.equal((a & a).dense(n), a.dense(n))
    assert torch.equal((a | a).dense(n), a.dense(n))
    assert torch.equal((~~a).dense(n), a.dense(n))
    assert torch.equal((a & (a | b)).dense(n), a.dense(n))
    past = a.causal()
    assert torch.equal(past.causal().dense(n), past.dense(n))
    assert not past.dense(n).triu(1).any()
    assert torch.equal(past.dense(n) | a.dense(n), a.dense(n))


@quick
@given(PATTERNS, LENGTHS)
def test_the_code_of_a_pattern_reads_as_the_pattern(pattern: Pattern, n: int) -> None:
    for text in (pattern.code, pattern.key):
        assert torch.equal(p.read(text).dense(n), pattern.dense(n))
    assert p.read(pattern.code) == p.read(pattern.key) == pattern


@quick
@given(PATTERNS, LENGTHS, st.data())
def test_row(pattern: Pattern, n: int, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, n - 1))
    assert pattern.row(i, n).tolist() == pattern.dense(n)[i].nonzero().flatten().tolist()


# ---- each primitive against its own sentence


@pytest.mark.parametrize("n", [1, 2, 12, 31])
def test_primitives_are_their_formulas(n: int) -> None:
    i, j = pairs(n)
    formulas = {
        p.local(3): (i - j).abs() <= 3,
        p.dilated(2, 3): ((i - j).abs() <= 6) & ((i - j) % 3 == 0),
        p.strided(4): (i - j) % 4 == 0,
        p.summaries(5, 2): (j % 5 >= 3).expand(n, n),
        p.fixed(5, 2): (i // 5 == j // 5) | (j % 5 >= 3),
        p.block_diagonal(4): i // 4 == j // 4,
        p.local(1).blocks(4): (i // 4 - j // 4).abs() <= 1,
        p.global_([0, -1]): (i == 0) | (j == 0) | (i == n - 1) | (j == n - 1),
        p.hub(): (i == 0) | (j == 0),
        p.causal() | p.prefix(4): (j <= i) | (j < 4),
    }
    for pattern, mask in formulas.items():
        assert torch.equal(pattern.dense(n), mask), pattern


def test_grids() -> None:
    width = 7
    y, x = torch.arange(35) // width, torch.arange(35) % width
    same_row, same_column = (c[:, None] == c[None, :] for c in (y, x))
    assert torch.equal(p.axial((5, 7), 1).dense(35), same_row)
    assert torch.equal(p.axial((5, 7), 0).dense(35), same_column)
    near = ((y[:, None] - y).abs() <= 2) & ((x[:, None] - x).abs() <= 2)
    assert torch.equal(p.local_2d((5, 7), 2).dense(35), near)
    z, y, x = torch.unravel_index(torch.arange(60), (3, 4, 5))
    middle = (z[:, None] == z) & (x[:, None] == x)
    assert torch.equal(p.axial((3, 4, 5), 1).dense(60), middle)
    assert torch.equal(p.axial((3, 4, 5), -2).dense(60), middle)
    for pattern in (p.local_2d((40, 30), 2), p.axial((40, 30), 0), p.axial((10, 12, 10), 1)):
        assert torch.equal(layout(pattern, 1200, 1200).dense(), pattern.dense(1200))
        assert layout(pattern, 1200, 1200).pairs < 1200 * 1200 / 3


@pytest.mark.parametrize("n", [13, 1500])
def test_random_draws_different_keys_for_each_query(n: int) -> None:
    mask = p.random(5, seed=3).dense(n)
    assert (mask.sum(-1) == 5).all()
    assert torch.equal(mask, p.random(5, seed=3).dense(n))
    assert not torch.equal(mask, p.random(5, seed=4).dense(n))
    assert (
        abs(mask.float().mean(0).std() / mask.float().mean()) < 3
    )  # no key is drawn by all queries
    assert p.random(99).dense(7).all()


def test_documents_see_themselves() -> None:
    ids = torch.tensor([0, 0, 0, 4, 4, 7, 7, 7, 7])
    assert torch.equal(p.document(ids).dense(9), ids[:, None] == ids)
    both = torch.stack([ids, ids.flip(0)])
    pattern = p.document(both)
    assert torch.equal(pattern.dense(9)[:, 0], both[:, :, None] == both[:, None])
    assert pattern.cover(range(0, 2), range(5, 9)) is not True
    assert p.document(ids).cover(range(0, 3), range(3, 9)) is False
    assert p.document(ids).cover(range(5, 9), range(6, 9)) is True


def test_heads_may_differ() -> None:
    pattern = p.per_head(p.local(1), p.strided(3)).causal()
    assert pattern.dense(8).shape == (2, 8, 8)
    assert torch.equal(pattern.dense(8)[1], p.strided(3).causal().dense(8))
    assert (pattern.heads(), p.local(1).heads()) == (2, None)
    assert (~pattern | p.causal()).blocks(2).of_head(0).dense(8).shape == (8, 8)


def test_listed_keys() -> None:
    table = torch.tensor([[0, 2], [1, -1], [-1, -1]])
    expected = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=torch.bool)
    pattern = p.listed(table)
    assert torch.equal(pattern.dense(3), expected)
    assert torch.equal(layout(pattern.blocks(2), 6, 6).dense(), pattern.blocks(2).dense(6))
    assert p.read(pattern.key) is pattern


def test_intervals_of_blocks_and_their_hull() -> None:
    blocks = Intervals.blocks(3, 12, 4)
    assert (blocks.first.tolist(), blocks.last.tolist()) == ([3, 7, 11], [6, 10, 11])
    assert blocks.step.tolist() == [1, 1, 0]
    hull = Intervals.hull(torch.tensor([[9, 1, 5], [2, 2, 2]]))
    assert (hull.first.tolist(), hull.last.tolist(), hull.step.tolist()) == ([1, 2], [9, 2], [4, 0])


# ---- the receptive field


def test_the_receptive_field_of_a_window_grows_by_its_radius() -> None:
    known = p.local(2).receptive_field(12, 3)
    i, j = pairs(12)
    for layer, frame in enumerate(known.after, 1):
        assert torch.equal(frame, (i - j).abs() <= 2 * layer)
    assert known.layers is None
    assert not known.complete
    assert p.local(2).receptive_field(12, 9).layers == 6
    assert p.local(2).receptive_field(12, 9).complete


def test_the_receptive_field_of_layers_in_turn() -> None:
    """1 asks 0, 2 asks 1: in this order 2 knows 0 after two layers, in the other after three."""
    first, second = (p.places([i], of="row") & p.places([i - 1], of="column") for i in (1, 2))
    assert p.receptive_field([first, second], 3, 2).after[1][2, 0]
    late = p.receptive_field([second, first], 3, 2)
    assert not late.after[1][2, 0]
    assert late.layers is None  # the next layer adds something, though the one after it does not
    assert p.receptive_field([second, first], 3, 5).layers == 3


def test_the_receptive_field_of_axes_in_turn_and_of_a_hub() -> None:
    rows, columns = p.axial((4, 5), 1), p.axial((4, 5), 0)
    assert p.receptive_field([rows, columns], 20, 2).complete
    assert not p.receptive_field([rows, columns], 20, 1).complete
    assert p.hub(3).receptive_field(9, 4).layers == 2
    lone = p.strided(3).causal().receptive_field(9, 9)
    assert lone.layers == 1
    assert not lone.complete_past
    assert p.local(1).causal().receptive_field(9, 9).complete_past
    assert not p.local(1).causal().receptive_field(9, 9).complete
    assert not (~p.full()).receptive_field(3, 1, residual=False).after[0].any()


# ---- wrong calls


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: p.local(-1), "radius should be at least 0, got -1"),
        (lambda: p.strided(0), "stride should be at least 1"),
        (lambda: p.prefix(0), "length should be at least 1"),
        (lambda: p.fixed(4, 5), "5 summary columns do not fit into blocks of 4"),
        (lambda: p.blocks(0), "the size of a block should be at least 1"),
        (lambda: p.axial((2, 3), 2), "has no axis 2"),
        (lambda: p.axial((2, 0), 0), "positive whole numbers"),
        (lambda: p.local_2d((2, 3), 1).dense(7), "2 × 3 has 6 positions, but the sequence has 7"),
        (lambda: p.global_([9]).dense(9), "position 9 is outside of a sequence of 9"),
        (lambda: p.local(1).row(9, 9), "position 9 is outside"),
        (lambda: p.local(1).dense(0), "at least one query"),
        (lambda: p.per_head(), "a pattern for each head"),
        (lambda: p.document(torch.zeros(4, dtype=torch.long)).dense(5), "for 4 keys, but there"),
        (lambda: p.listed(torch.zeros(4, 1, dtype=torch.long)).dense(5), "for 4 positions, but"),
        (lambda: p.local(1).receptive_field(4, 0), "layers should be at least 1"),
        (lambda: p.per_head(p.local(1)).count(4), "count them apart"),
        (lambda: p.places([0], "diagonal"), 'of a "row" or of a "column"'),
        (lambda: p.random(2).allows(*pairs(3)), "drawn for a length"),
        (lambda: p.places([0, -1], "row").allows(*pairs(3)), "ends depends on its length"),
        (lambda: p.hub(-1).cover(range(3), range(3)), "ends depends on its length"),
        (lambda: p.read("locl(2)"), "did you mean 'local'"),
        (lambda: p.read("local(2"), "cannot read the pattern"),
        (lambda: p.read("local(2) + full()"), "cannot contain"),
        (lambda: p.read("local(radius=2, colour=3)"), "colour"),
        (lambda: p.read("__import__('os')"), "no pattern '__import__'"),
        (lambda: p.read("3"), "is not a pattern"),
        (lambda: p.read("local(2) & 3"), "'3' is not a pattern"),
    ],
)
def test_wrong_patterns_are_refused_in_sentences(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


def test_a_fraction_is_no_radius() -> None:
    with pytest.raises(TypeError, match="radius should be a whole number"):
        p.local(1.5)  # type: ignore[arg-type]
