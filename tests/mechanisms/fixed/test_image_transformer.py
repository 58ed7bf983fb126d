"""Image Transformer: its blocks by hand, its limits (L3), the order of its pixels, its map."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.patterns import Intervals, Pattern
from attnlab.core.sparse.attention import FORMS, PatternAttention
from attnlab.core.sparse.layout import layout
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.image_transformer import (
    CARD,
    ImageTransformerOptions,
    generation_order,
)

by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def pattern(*, causal: bool = False, **options: Any) -> Pattern:
    return ImageTransformerOptions(**options).pattern(causal=causal)


PATTERNS = [
    pattern(block=5, memory=3),
    pattern(block=1, memory=4),
    pattern(block=7, memory=17, causal=True),
    pattern(width=7, rows=2, block=3, above=1, memory=2),
    pattern(width=5, rows=3, block=2, above=4, memory=1, causal=True),
    pattern(width=11, rows=2, block=11, above=1, memory=0),
]


def made(n: int = 23) -> list[Tensor]:
    return [torch.randn(2, 3, n, e, dtype=torch.float64) for e in (5, 5, 7)]


def rows(seen: Pattern, n: int) -> list[list[int]]:
    return [seen.row(i, n).tolist() for i in range(n)]


def test_one_dimension_by_hand() -> None:
    assert rows(pattern(block=3, memory=2), 8) == [
        *([[0, 1, 2]] * 3),
        *([[1, 2, 3, 4, 5]] * 3),
        *([[4, 5, 6, 7]] * 2),  # the last block is short
    ]
    assert rows(pattern(block=3, memory=2, causal=True), 5)[3:] == [[1, 2, 3], [1, 2, 3, 4]]


def test_two_dimensions_pixel_by_pixel() -> None:
    """Against the definition with loops, in raster coordinates."""
    height, width, h_q, w_q, h_m, w_m = 6, 7, 2, 3, 1, 2
    order = generation_order(height, width, rows=h_q, block=w_q).tolist()
    seen = pattern(width=width, rows=h_q, block=w_q, above=h_m, memory=w_m)
    mask, past = seen.dense(42), seen.causal().dense(42)
    for i, (y, x) in enumerate(divmod(p, width) for p in order):
        top, left = y // h_q * h_q, x // w_q * w_q
        for j, (v, u) in enumerate(divmod(p, width) for p in order):
            inside = top - h_m <= v < top + h_q and left - w_m <= u < left + w_q + w_m
            assert mask[i, j] == inside
            assert past[i, j] == (inside and j <= i)


def memory_block(n: int, block: int, memory: int, width: int, rows: int, above: int) -> Tensor:
    """The mask of n positions by the definition, in raster coordinates."""
    height = rows * (n // (rows * width) + 1)
    pixels = generation_order(height, width, rows=rows, block=block)[:n]
    y, x = pixels // width, pixels % width
    top, left = (y // rows * rows)[:, None], (x // block * block)[:, None]
    lines = (y >= top - above) & (y < top + rows)
    return lines & (x >= left - memory) & (x < left + block + memory)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", CARD.variants, ids=str)
def test_pairs_of_any_length(options: dict[str, int], causal: bool) -> None:
    """Unfinished lines, rectangles and bands included."""
    seen = pattern(causal=causal, **options)
    for n in (1, 2, 3, 7, 16, 31, 64, 97):
        if "width" in options:
            expected = memory_block(n, **options)
        else:
            first = torch.arange(n)[:, None] // options["block"] * options["block"]
            places = torch.arange(n)
            expected = (places >= first - options["memory"]) & (places < first + options["block"])
        expected = expected.tril() if causal else expected
        assert torch.equal(seen.dense(n), expected)
        assert seen.count(n) == expected.sum(), n


def test_generation_goes_block_by_block() -> None:
    assert generation_order(4, 5, rows=2, block=2).tolist() == [
        *(0, 1, 5, 6, 2, 3, 7, 8, 4, 9),  # the last rectangle of a band is narrow
        *(10, 11, 15, 16, 12, 13, 17, 18, 14, 19),
    ]
    assert generation_order(3, 4, rows=1, block=4).tolist() == list(range(12))  # raster order


@pytest.mark.parametrize("seen", PATTERNS, ids=str)
def test_covers_never_lie(seen: Pattern) -> None:
    """Of intervals of every kind: steps, singles, whole blocks, against the pairs themselves."""
    dense = seen.dense(61)
    for rows_ in (range(0, 61, 5), range(3, 4), range(10, 20), range(14, 28), range(5, 47, 6)):
        for columns in [range(0, 61), *(range(j, j + 1) for j in range(61)), range(7, 14)]:
            block = dense[list(rows_)][:, list(columns)]
            coverage = seen.covers(Intervals.of(rows_), Intervals.of(columns))
            assert not coverage.every or block.all()
            assert coverage.some or not block.any()


@pytest.mark.parametrize("seen", PATTERNS, ids=str)
@pytest.mark.parametrize(("n", "m"), [(61, 61), (17, 61)])
def test_layouts_hold_the_pattern_and_its_code_is_read(seen: Pattern, n: int, m: int) -> None:
    assert torch.equal(layout(seen, n, m).dense(), seen.dense(n, m))
    assert patterns.read(seen.code) == seen


def test_blocked_pays_for_its_pairs() -> None:
    for seen in (
        pattern(block=64, memory=64),
        pattern(width=64, rows=8, block=8, above=4, memory=4),
    ):
        assert layout(seen, 4096, 4096).pairs < 1.1 * seen.count(4096)


# ---- L3: limits


@by_form
def test_limits_are_dense_causal_attention(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    expected = full.naive(q, k, v, mask=patterns.causal())
    for block, memory in ((23, 0), (40, 7), (1, 22), (5, 20)):
        out = form(q, k, v, mask=pattern(causal=True, block=block, memory=memory))
        torch.testing.assert_close(out, expected)
    out = form(q, k, v, mask=pattern(causal=True, block=1, memory=21))
    assert not torch.allclose(out, expected)


@by_form
def test_no_memory_is_block_local(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    expected = full.naive(q, k, v, mask=patterns.block_diagonal(5))
    torch.testing.assert_close(form(q, k, v, mask=pattern(block=5, memory=0)), expected)


def test_a_rectangle_of_the_whole_image_is_full() -> None:
    seen = pattern(width=7, rows=4, block=7)
    assert seen.dense(28).all()
    assert not seen.dense(29).all()


def test_one_line_of_one_rectangle_after_another_is_one_dimension() -> None:
    flat = pattern(block=5, memory=3, causal=True)
    assert torch.equal(pattern(width=97, block=5, memory=3, causal=True).dense(97), flat.dense(97))


def test_neighbours_do_not_see_equally_many() -> None:
    counts = pattern(block=5, memory=3, causal=True).dense(20).sum(-1)
    assert counts[10:15].tolist() == [4, 5, 6, 7, 8]


# ---- the module


@pytest.mark.parametrize(
    "options", [{"block": 5, "memory": 3}, {"width": 5, "rows": 2, "block": 2, "above": 1}]
)
def test_map_is_the_masked_softmax(options: dict[str, int]) -> None:
    layer = PatternAttention(12, 3, ImageTransformerOptions(**options), causal=True).double()
    x = torch.randn(2, 23, 12, dtype=torch.float64)
    mixing = mixing_matrix(layer, x)
    q, k, _ = layer.heads.project(x)
    scores = (q @ k.mT / 2).masked_fill(~pattern(causal=True, **options).dense(23), -torch.inf)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, scores.softmax(-1), rtol=0, atol=1e-6)


def test_decoding_keeps_what_can_still_be_seen() -> None:
    flat = PatternAttention(12, 3, ImageTransformerOptions(block=5, memory=3), causal=True)
    _, state = flat.step(torch.randn(2, 22, 12))
    assert state.places.tolist() == list(range(17, 22))  # of the next block: 17, 18, 19; its own
    rectangles = ImageTransformerOptions(width=6, rows=2, block=3, above=1, memory=0)
    image = PatternAttention(12, 3, rectangles, causal=True)
    _, state = image.step(torch.randn(2, 24, 12))
    pixels = generation_order(4, 6, rows=2, block=3)[state.places]
    assert (pixels // 6 >= 3).all()  # one line above the next band
    assert len(pixels) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"block": 0}, "block should be at least 1, got 0"),
        ({"memory": -1}, "memory should be at least 0, got -1"),
        ({"rows": 2}, "belong to 2-D attention: give the width"),
        ({"above": 2}, "belong to 2-D attention: give the width"),
        ({"width": 5, "block": 6}, "6 columns does not fit into lines of 5"),
        ({"width": 5, "block": 2, "rows": 0}, "rows should be at least 1, got 0"),
        ({"form": "tiled"}, "there is no form 'tiled'"),
    ],
)
def test_what_cannot_be_is_said(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        attnlab.build("image_transformer", dim=12, heads=3, **options)


def test_an_image_is_cut_into_whole_rectangles() -> None:
    with pytest.raises(ValueError, match="rectangles of 3 lines do not divide an image of 7"):
        generation_order(7, 5, rows=3, block=2)


def test_only_a_causal_layer_decodes() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        PatternAttention(12, 3, ImageTransformerOptions()).step(torch.randn(2, 1, 12))
