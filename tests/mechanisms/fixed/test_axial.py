"""Axial attention: its lines by hand, its limits (L3), its reach, the shift, its map."""

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
from attnlab.mechanisms.fixed.axial import CARD, AxialOptions, LinesAndColumns, down

by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = 23) -> list[Tensor]:
    return [torch.randn(2, 3, n, e, dtype=torch.float64) for e in (5, 5, 7)]


def pattern(*, causal: bool = False, heads: int = 1, **options: Any) -> Pattern:
    return AxialOptions(**options).pattern(causal=causal, heads=heads)


def both(height: int, width: int) -> Tensor:
    """The cells of a grid: does j share its line, its column, with i?"""
    cell = torch.arange(height * width)
    line, column = cell // width, cell % width
    return torch.stack([column[:, None] == column, line[:, None] == line])


def test_axes_are_numpys() -> None:
    for axis in (0, 1):
        expected = both(5, 7)[axis]
        assert torch.equal(pattern(width=7, axis=axis).dense(35), expected)
        assert torch.equal(patterns.axial((5, 7), axis).dense(35), expected)
        assert torch.equal(pattern(width=7, axis=axis, causal=True).dense(35), expected.tril())


def test_an_unfinished_line_is_a_short_one() -> None:
    assert pattern(width=5).row(11, 13).tolist() == [10, 11, 12]
    assert pattern(width=5, axis=0).row(4, 13).tolist() == [4, 9]


def test_pairs_of_a_grid() -> None:
    """n (H + W) for both axes."""
    counted = sum(pattern(width=7, axis=axis).count(77) for axis in (0, 1))
    assert counted == 77 * (11 + 7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", CARD.variants, ids=str)
def test_pairs_of_any_length(options: dict[str, Any], causal: bool) -> None:
    """s cells of a line or column have s² pairs, and s (s + 1) / 2 causally."""
    width, seen = options["width"], pattern(causal=causal, heads=3, **options)
    for n in (1, 2, 3, 7, 16, 31, 64, 97):
        cells = torch.arange(n)
        sizes = ((cells % width).bincount(), (cells // width).bincount())
        first = options.get("axis", 1)
        for head in range(seen.heads() or 1):
            s = sizes[(first + head) % 2]
            expected = (s * (s + 1) // 2 if causal else s**2).sum()
            each = seen.of_head(head)
            assert each.dense(n).sum() == each.count(n) == expected, (n, head)


def test_a_line_and_then_a_column_reach_everybody() -> None:
    line, column = pattern(width=7), pattern(width=7, axis=0)
    for stack in ([line, column], [column, line]):
        reached = patterns.receptive_field(stack, 35, 2, residual=False)
        assert reached.after[1].all()
        assert not reached.after[0].all()
    assert not patterns.receptive_field([line, line], 35, 2).complete


def test_masked_axes_do_not_reach_the_whole_past() -> None:
    """Which is why the generator has an outer stack and a shift."""
    stack = [pattern(width=7, axis=axis, causal=True) for axis in (1, 0)]
    reached = patterns.receptive_field(stack, 35, 4)
    assert not reached.complete_past
    assert not reached.after[-1][8, 3]  # above to the right


def test_blocked_pays_for_its_pairs() -> None:
    for axis in (0, 1):
        seen = pattern(width=64, axis=axis)
        assert layout(seen, 4096, 4096).pairs == seen.count(4096)


# ---- L3: limits


@by_form
def test_one_line_is_full_attention(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    for causal, mask in ((False, None), (True, patterns.causal())):
        expected = full.naive(q, k, v, mask=mask)
        for width, axis in ((23, 1), (1, 0)):
            seen = pattern(causal=causal, width=width, axis=axis)
            torch.testing.assert_close(form(q, k, v, mask=seen), expected)


@by_form
def test_across_a_single_line_a_cell_sees_itself(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    torch.testing.assert_close(form(q, k, v, mask=pattern(width=23, axis=0)), v)
    torch.testing.assert_close(form(q, k, v, mask=pattern(width=1, axis=1)), v)


# ---- heads and modules


@by_form
def test_heads_take_turns(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    out = form(q, k, v, mask=pattern(width=5, axis=0, split=True, heads=3))
    for head, axis in enumerate((0, 1, 0)):
        seen = pattern(width=5, axis=axis)
        one = form(*(x[:, head : head + 1] for x in (q, k, v)), mask=seen)
        torch.testing.assert_close(out[:, head : head + 1], one)


@pytest.mark.parametrize("axis", [0, 1])
def test_map_is_the_masked_softmax(axis: int) -> None:
    layer = PatternAttention(12, 3, AxialOptions(width=5, axis=axis), causal=True).double()
    x = torch.randn(2, 23, 12, dtype=torch.float64)
    mixing = mixing_matrix(layer, x)
    q, k, _ = layer.heads.project(x)
    mask = pattern(width=5, axis=axis, causal=True).dense(23)
    scores = (q @ k.mT / 2).masked_fill(~mask, -torch.inf)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, scores.softmax(-1), rtol=0, atol=1e-6)


def influence(layer: torch.nn.Module, n: int) -> Tensor:
    """Which inputs each output of a module knows."""
    x = torch.randn(1, n, 12, dtype=torch.float64, requires_grad=True)
    rows = [torch.autograd.grad(layer(x)[0, i].sum(), x)[0][0] for i in range(n)]
    return torch.stack(rows).abs().sum(-1) > 0


@pytest.mark.parametrize("n", [20, 17])
def test_lines_and_columns_know_everything(n: int) -> None:
    known = influence(LinesAndColumns(12, 3, width=5).double(), n)
    whole = torch.ones(n, n, dtype=torch.bool)
    if n == 17:  # columns 2, 3 and 4 have no cell in the last line
        whole[:15, 15:] = (torch.arange(15) % 5 < 2)[:, None]
    assert torch.equal(known, whole)


@pytest.mark.parametrize("n", [20, 17])
def test_the_generator_knows_its_whole_past_and_no_more(n: int) -> None:
    known = influence(LinesAndColumns(12, 3, causal=True, width=5).double(), n)
    assert torch.equal(known, torch.ones(n, n, dtype=torch.bool).tril())


@pytest.mark.parametrize("form", FORMS)
def test_the_generator_decodes(form: str) -> None:
    layer = LinesAndColumns(12, 3, causal=True, width=5, form=form).double()
    x = torch.randn(2, 19, 12, dtype=torch.float64)
    parts, state = [], None
    for piece in x.split([3, 1, 1, 7, 1, 5, 1], dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x))
    assert state is not None
    assert state.line.shape[1] == 4


def test_the_generator_under_padding() -> None:
    layer = LinesAndColumns(12, 3, causal=True, width=5).double()
    x = torch.randn(1, 17, 12, dtype=torch.float64)
    out = layer(x, torch.arange(17)[None] < 13)
    torch.testing.assert_close(out[:, :13], layer(x[:, :13]))


def test_the_shift_moves_lines_down() -> None:
    x = torch.arange(1.0, 8)[None, :, None]
    assert down(x, 3).flatten().tolist() == [0, 0, 0, 1, 2, 3, 4]
    assert down(x, 9).flatten().tolist() == [0] * 7


def test_lines_and_columns_compile_whole() -> None:
    for causal in (False, True):
        layer = LinesAndColumns(12, 3, causal=causal, width=5).double()
        x = torch.randn(2, 17, 12, dtype=torch.float64)
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), layer(x))


def test_decoding_along_a_line_forgets_the_lines_before() -> None:
    for axis, kept in ((1, [10, 11, 12]), (0, list(range(13)))):
        layer = PatternAttention(12, 3, AxialOptions(width=5, axis=axis), causal=True)
        _, state = layer.step(torch.randn(2, 13, 12))
        assert state.places.tolist() == kept


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 0}, "width should be at least 1, got 0"),
        ({"axis": 2}, r"axis is 0 \(along columns\) or 1 \(along lines\), got 2"),
        ({"split": True, "heads": 1}, "half of the heads to each axis: got heads=1"),
        ({"form": "tiled"}, "there is no form 'tiled'"),
    ],
)
def test_what_cannot_be_is_said(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        attnlab.build("axial", **{"dim": 12, "heads": 3, **options})


@pytest.mark.parametrize(
    "module", [PatternAttention(12, 3, AxialOptions()), LinesAndColumns(12, 3)]
)
def test_only_a_causal_layer_decodes(module: Any) -> None:
    with pytest.raises(ValueError, match="causal=True"):
        module.step(torch.randn(2, 1, 12))
