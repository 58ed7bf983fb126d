"""Sparse Transformer: its factors by hand, its limits, its counts, its heads, its memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import FORMS, PatternAttention
from attnlab.core.sparse.layout import layout
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.sparse_transformer import SparseTransformerOptions

Form = Callable[..., Tensor]
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(h: int = 3, n: int = 17) -> list[Tensor]:
    return [torch.randn(2, h, n, e, dtype=torch.float64) for e in (5, 5, 7)]


def factors(
    stride: int, kind: str = "strided", columns: int = 1, window: str = "paper", turn: int = 0
) -> tuple[Pattern, Pattern]:
    options: dict[str, Any] = {"kind": kind, "columns": columns, "window": window}
    near, far = SparseTransformerOptions(stride=stride, **options).factors(turn)
    return near.causal(), far.causal()


def pattern(heads: int = 1, **options: Any) -> Pattern:
    return SparseTransformerOptions(**options).pattern(heads=heads)


def rows(seen: Pattern, n: int) -> list[list[int]]:
    return [seen.row(i, n).tolist() for i in range(n)]


def test_factors_by_hand() -> None:
    near, far = factors(3, "strided")
    assert rows(near, 6)[5] == [2, 3, 4, 5]  # the formula: l + 1 positions
    assert rows(far, 6) == [[0], [1], [2], [0, 3], [1, 4], [2, 5]]
    assert rows(factors(3, "strided", window="code")[0], 6)[5] == [3, 4, 5]
    near, far = factors(4, "fixed", 2)
    assert rows(near, 6) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [4], [4, 5]]
    assert rows(far, 6) == [[], [], [2], [2, 3], [2, 3], [2, 3]]  # nobody has residue 4 … nor 0
    assert rows(factors(4, "fixed", 1, turn=2)[1], 7)[6] == [1, 5]


# ---- identities: S1 limits, S2 counts, S3 reach, S4 gathered


@pytest.mark.parametrize("n", [1, 2, 7, 13])
def test_a_stride_of_the_whole_sequence_is_dense(n: int) -> None:
    dense = patterns.causal().dense(n)
    for stride in (n, n + 1, 4 * n):
        for kind in ("strided", "fixed"):
            assert torch.equal(factors(stride, kind)[0].dense(n), dense)
            assert torch.equal(pattern(stride=stride, kind=kind).dense(n), dense)
        assert torch.equal(factors(stride, "strided")[1].dense(n), torch.eye(n).bool())


def test_the_papers_window_is_dense_one_stride_earlier() -> None:
    dense = patterns.causal().dense(7)
    assert torch.equal(factors(6, "strided", window="paper")[0].dense(7), dense)
    assert not torch.equal(factors(6, "strided", window="code")[0].dense(7), dense)


def test_other_dense_ends() -> None:
    dense = patterns.causal().dense(13)
    assert torch.equal(factors(1, "strided")[1].dense(13), dense)
    assert torch.equal(pattern(stride=5, kind="fixed", columns=5).dense(13), dense)
    assert not torch.equal(pattern(stride=5, kind="fixed", columns=4).dense(13), dense)


@forms
@pytest.mark.parametrize("kind", ["strided", "fixed"])
def test_a_long_stride_is_full_causal_attention(form: Form, kind: str) -> None:
    q, k, v = made()
    expected = full.naive(q, k, v, mask=patterns.causal())
    torch.testing.assert_close(form(q, k, v, mask=pattern(stride=17, kind=kind)), expected)


def test_pairs_of_a_layer_of_enwik8() -> None:
    assert pattern(stride=128, kind="fixed", columns=32).count(12288) == 19_470_336
    assert patterns.causal().count(12288) == 75_503_616


@pytest.mark.parametrize("window", ["paper", "code"])
@pytest.mark.parametrize("stride", [1, 2, 5, 23])
def test_strided_reaches_the_whole_past_in_two_layers(stride: int, window: str) -> None:
    near, far = factors(stride, "strided", window=window)
    reached = patterns.receptive_field([near, far], 23, 2, residual=False)
    assert torch.equal(reached.after[1], patterns.causal().dense(23))


def test_fixed_reaches_the_whole_past_only_with_what_was_known() -> None:
    near, far = factors(5, "fixed", 2)
    two = patterns.receptive_field([near, far], 23, 2, residual=False).after[1]
    past = patterns.causal().dense(23)
    assert torch.equal(near.dense(23) | two, past)
    assert not two[7, 6]  # its own block, before the summaries: not through the second factor
    assert patterns.receptive_field([near, far], 23, 2).complete_past


def test_blocked_pays_for_its_pairs() -> None:
    """Not for the n²/2 of dense causal attention; strides are short in their own order."""
    n = 4096
    for kind, columns in (("strided", 1), ("fixed", 8)):
        seen = pattern(stride=64, kind=kind, columns=columns)
        assert layout(seen, n, n).pairs < 3 * seen.count(n) < n * n / 4


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_distinct_sub_blocks_share_out_a_block(columns: int) -> None:
    """S4: H = l / c heads partition the block; the next head begins anew."""
    heads = 6 // columns
    far = [factors(6, "fixed", columns, turn=a)[1].dense(23) for a in range(heads)]
    assert torch.equal(sum(x.int() for x in far), patterns.causal().dense(23).int())
    again = factors(6, "fixed", columns, turn=heads)
    assert again == factors(6, "fixed", columns, turn=0)


# ---- heads


def test_heads_take_factors_as_they_are_told() -> None:
    chosen = SparseTransformerOptions(stride=5, kind="fixed", columns=2)
    near, far = chosen.factors()
    options: dict[str, Any] = {"stride": 5, "kind": "fixed", "columns": 2}

    def of_heads(heads: int, **more: Any) -> list[Pattern]:
        allowed = SparseTransformerOptions(**options, **more).allowed(heads)
        return [allowed.of_head(a) for a in range(heads)]

    assert chosen.allowed(3) == near | far
    assert [SparseTransformerOptions(**options, layer=r).allowed(1) for r in range(3)] == [
        near,
        far,
        near,
    ]
    assert of_heads(3, separate=True) == [near, far, near]
    second = chosen.factors(turn=1)[1]
    assert of_heads(3, distinct=True) == [near | far, near | second, near | far]
    assert of_heads(4, separate=True, distinct=True) == [near, far, near, second]
    assert pattern(**options) == (near | far).causal()


@forms
def test_rows_before_the_first_summary_are_zero(form: Form) -> None:
    """Where adding −10⁹ would give them the mean of everything, the future included."""
    q, k, v = (x.requires_grad_() for x in made())
    out = form(q, k, v, mask=pattern(stride=5, kind="fixed", columns=2, layer=1))
    assert (out[:, :, :3] == 0).all()
    assert (out[:, :, 3:] != 0).all()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert torch.isfinite(gradient).all()


@forms
def test_separate_heads_are_heads_of_their_own(form: Form) -> None:
    q, k, v = made()
    out = form(q, k, v, mask=pattern(stride=4, separate=True, heads=3))
    for head, factor in enumerate((0, 1, 0)):
        mask = factors(4)[factor]
        expected = full.naive(q, k, v, mask=mask)[:, head]
        torch.testing.assert_close(out[:, head], expected)


# ---- the module


def module(*, causal: bool = True, **options: Any) -> PatternAttention:
    layer = attnlab.build("sparse_transformer", dim=12, heads=3, causal=causal, **options)
    assert isinstance(layer, PatternAttention)
    return layer.double()


@pytest.mark.parametrize("form", FORMS)
def test_its_map_is_the_softmax_over_the_pattern(form: str) -> None:
    layer = module(form=form, stride=5, kind="fixed", columns=2, separate=True)
    x = torch.randn(2, 13, 12, dtype=torch.float64)
    q, k, _ = layer.heads.project(x)
    scores = (q @ k.mT / 2).masked_fill(~layer.pattern.dense(13), -torch.inf)
    mixing = mixing_matrix(layer, x)
    assert mixing.exact
    expected = scores.softmax(-1).nan_to_num()
    torch.testing.assert_close(mixing.matrix, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"kind": "strided"}, list(range(23))),
        ({"kind": "strided", "layer": 0}, [18, 19, 20, 21, 22]),
        ({"kind": "fixed"}, [4, 9, 14, 19, 20, 21, 22]),
        ({"kind": "fixed", "columns": 2, "layer": 1}, [3, 4, 8, 9, 13, 14, 18, 19]),
        (
            {"kind": "fixed", "distinct": True},
            [2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19, 20, 21, 22],
        ),
    ],
)
def test_decoding_keeps_what_can_still_be_seen(options: dict[str, Any], kept: list[int]) -> None:
    layer = module(stride=5, **options)
    x = torch.randn(2, 29, 12, dtype=torch.float64)
    expected, state, parts = layer(x), None, []
    for piece in x[:, :23].split([7, 1, 1, 11, 1, 2], dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    assert state is not None
    assert state.places.tolist() == kept
    assert state.past.keys.shape == (2, 3, len(kept), 4)
    for token in x[:, 23:].split(1, dim=1):
        out, state = layer.step(token, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected)


def test_a_step_leaves_the_state_it_was_given() -> None:
    layer = module(stride=3, kind="fixed")
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    _, state = layer.step(x[:, :5])
    first = layer.step(x[:, 5:], state)[0]
    assert torch.equal(layer.step(x[:, 5:], state)[0], first)
    with pytest.raises(ValueError, match="the cache holds 2 sequences, but 1 came"):
        layer.step(x[:1, 5:], state)


# ---- wrong arguments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "stride"}, "there is no kind 'stride'; did you mean 'strided'"),
        (
            {"window": "papers"},
            "there is no window 'papers'; did you mean 'paper'",
        ),
        ({"stride": 0}, "stride should be at least 1, got 0"),
        ({"stride": 0, "kind": "fixed"}, "stride should be at least 1, got 0"),
        ({"stride": 4, "columns": 2}, 'the strided kind has no summary columns: .* kind="fixed"'),
        ({"distinct": True}, "the strided kind has no summary columns"),
        ({"stride": 4, "kind": "fixed", "columns": 5}, "5 summary columns do not fit into blocks"),
        ({"stride": 4, "kind": "fixed", "columns": 0}, "columns should be at least 1, got 0"),
        ({"kind": "fixed", "window": "code"}, "the fixed kind has blocks, no window"),
        ({"layer": 1, "separate": True}, "layer by layer, separate=True head by head: choose one"),
        ({"layer": -1}, "layer should be at least 0, got -1"),
        (
            {"stride": 5, "kind": "fixed", "columns": 3, "distinct": True},
            "a block of 5 holds one set of 3 summary columns only",
        ),
    ],
)
def test_wrong_options_are_answered_in_sentences(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pattern(**options, heads=3)
    with pytest.raises(ValueError, match=said):
        module(**options)


def test_other_wrong_calls() -> None:
    with pytest.raises(ValueError, match="needs 2 heads, one for each factor, got 1"):
        pattern(separate=True)
    with pytest.raises(ValueError, match="needs 2 heads, one for each factor, got 1"):
        PatternAttention(12, 1, SparseTransformerOptions(separate=True))
    with pytest.raises(ValueError, match="always causal"):
        module(causal=False)
    with pytest.raises(TypeError, match=r"stride should be a whole number, got 2\.5"):
        pattern(stride=2.5)  # type: ignore[arg-type]
