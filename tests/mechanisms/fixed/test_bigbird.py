"""BigBird: the official rows, its limits, nothing counted twice, and Hugging Face's numbers."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import FORMS, PatternAttention
from attnlab.core.sparse.layout import layout
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.bigbird import CARD, BigBirdOptions

OFFICIAL = {"window": 3, "random": 3, "global_blocks": 2}


def made(n: int, e: int = 11) -> list[Tensor]:
    shapes = ((2, 3, n, 5), (2, 3, n, 5), (2, 3, n, e))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


def pattern(heads: int = 1, **options: Any) -> Pattern:
    return BigBirdOptions(**options).pattern(heads=heads)


def pairs(n: int, *, B: int, w: int, r: int, G: int, t: int = 0) -> int:
    """By the rows of the paper: a block sees whole blocks, and draws r of those that are left."""
    inner = max(0, n - t)
    sizes = [min(B, inner - start) for start in range(0, inner, B)]
    first, last, blocks = (G + 1) // 2, G // 2, range(len(sizes))
    own_globals = [i for i in blocks if i < first or i >= len(sizes) - last]
    left, right = first, len(sizes) - 1 - last  # the inner blocks at the ends
    total = n**2 - inner**2  # the rows and columns of the extra tokens
    for i in blocks:
        seen = [j for j in blocks if i in own_globals or j in own_globals or abs(i - j) <= w // 2]
        never = [j for j in blocks if (i, j) in ((left, right), (right, left))]
        drawable = set(blocks) - set(seen) - set(never if last else [right])
        total += sizes[i] * (sum(sizes[j] for j in seen) + B * min(r, len(drawable)))
    return total


def test_622_of_4096_blocks() -> None:
    blocks = pattern(block=1, **OFFICIAL)
    assert blocks.count(64) == 622
    assert pairs(64, B=1, w=3, r=3, G=2) == 622
    assert pattern(block=64, **OFFICIAL).count(4096) == 622 * 64**2
    nb = 29
    assert blocks.count(nb) == 2 * nb + 2 * (4 + 3) + (nb - 4) * (5 + 3)


@pytest.mark.parametrize("seed", range(5))
def test_official_rows(seed: int) -> None:
    """Whole rows at the ends, no wrapping around, and draws from what is left."""
    nb, r = 13, 3
    seen = pattern(block=1, seed=seed, **OFFICIAL).dense(nb)
    drawn: set[int] = set()
    for i in range(nb):
        row = set(seen[i].nonzero().flatten().tolist())
        near = {j for j in (i - 1, i, i + 1) if 0 <= j < nb} | {0, nb - 1}
        assert row >= near
        if i in (0, nb - 1):
            assert row == set(range(nb))
        else:
            assert len(row) == len(near) + r
            drawn |= {(i, j) for j in row - near}
    assert (1, nb - 2) not in drawn
    assert (nb - 2, 1) not in drawn


def test_block_1_and_the_last_but_one_never_draw_each_other() -> None:
    """Where one block alone is left to draw, it shows."""
    for seed in range(20):
        seen = pattern(block=1, seed=seed, **OFFICIAL).dense(5)
        assert not seen[1, 3]
        assert not seen[3, 1]
    assert pattern(block=1, **OFFICIAL).dense(6)[1, 3]  # the only one that is left for block 1


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"block": 3, "window": 9, "random": 0, "global_blocks": 0},  # 2·5 − 1 of 5 blocks
        {"block": 3, "random": 1, "global_blocks": 5},
        {"block": 3, "random": 2, "global_blocks": 7},
        {"block": 2, "random": 0, "global_blocks": 0, "global_tokens": 13},
        {"block": 2, "random": 1, "global_blocks": 0, "global_tokens": 29},
        {"block": 64},
    ],
    ids=["window", "all global", "more than all", "all tokens", "more tokens", "short"],
)
def test_limits_are_full_attention(form, options) -> None:
    q, k, v = made(13)
    torch.testing.assert_close(form(q, k, v, mask=pattern(**options)), full.naive(q, k, v))


def test_a_narrower_window_is_not_full() -> None:
    assert pattern(block=3, window=7, random=0, global_blocks=0).count(13) < 13**2


def test_star_and_diagonal() -> None:
    seen = pattern(block=1, window=1, random=0, global_blocks=1).dense(7)
    star = torch.eye(7).bool()
    star[0] = star[:, 0] = True
    assert torch.equal(seen, star)


@pytest.mark.parametrize("tokens", [2, 3])
def test_extra_tokens_stand_before_the_blocks(tokens: int) -> None:
    """B(i, :) = B(:, i) = 1 for the extra ones, the pattern of the rest behind them."""
    options = {"block": 3, "random": 0, "global_blocks": 0}
    seen = pattern(**options, global_tokens=tokens).dense(tokens + 11)
    assert seen[:tokens].all()
    assert seen[:, :tokens].all()
    assert torch.equal(seen[tokens:, tokens:], pattern(**options).dense(11))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_equals_the_softmax_over_a_set(form) -> None:
    """Key by key, each counted once although windows, globals and draws could overlap."""
    q, k, v = made(23)
    options = {"block": 3, "random": 2, "seed": 5}
    seen = pattern(**options).dense(23)
    out = form(q, k, v, mask=pattern(**options))
    for i in (0, 4, 11, 19, 22):
        keys = sorted(set(seen[i].nonzero().flatten().tolist()))
        weights = torch.softmax(q[:, :, i : i + 1] @ k[:, :, keys].mT / 5**0.5, dim=-1)
        torch.testing.assert_close(out[:, :, i], (weights @ v[:, :, keys])[:, :, 0])


@pytest.mark.parametrize("n", [23, 509])
@pytest.mark.parametrize("options", CARD.variants, ids=range(len(CARD.variants)))
def test_no_pair_is_computed_twice(options, n: int) -> None:
    own = {name: value for name, value in options.items() if name != "per_head"}
    assert torch.equal(layout(pattern(**own), n, n).dense(), pattern(**own).dense(n))


def test_pairs_of_many_shapes() -> None:
    """Where blocks are few, short, all global, or more than asked for."""
    for B, w, r, (G, t) in itertools.product((1, 3), (1, 7), (0, 2), ((1, 0), (3, 0), (0, 2))):
        seen = pattern(block=B, window=w, random=r, global_blocks=G, global_tokens=t)
        for n in (5, 19):
            assert seen.count(n) == pairs(n, B=B, w=w, r=r, G=G, t=t), (n, B, w, r, G, t)


@pytest.mark.parametrize("options", CARD.variants, ids=str)
def test_pairs_of_the_variants(options: dict[str, Any]) -> None:
    chosen = BigBirdOptions(**{**options, "per_head": False})
    w, r, G, t = chosen.window, chosen.random, chosen.global_blocks, chosen.global_tokens
    for n in (1, 2, 3, 7, 16, 31, 64, 97):
        expected = pairs(n, B=chosen.block, w=w, r=r, G=G, t=t)
        assert chosen.pattern().dense(n).sum() == chosen.pattern().count(n) == expected, n


def test_heads_draw_apart() -> None:
    options = {"block": 1, "random": 2}
    masks = pattern(3, **options, per_head=True).dense(31)
    assert masks.shape == (3, 31, 31)
    assert not torch.equal(masks[0], masks[1])
    assert masks[0].sum() == masks[1].sum() == pattern(**options).count(31)
    # No head of one seed draws what a head of the next does.
    others = pattern(3, **options, per_head=True, seed=1).dense(31)
    assert not any(torch.equal(a, b) for a in masks for b in others)


def test_equal_arguments_make_equal_patterns() -> None:
    """Layouts are remembered by them."""
    assert pattern(block=3, seed=2) == pattern(block=3, seed=2)
    assert pattern(block=3, seed=2) != pattern(block=3, seed=1)
    extended = {"global_blocks": 0, "global_tokens": 5}
    assert pattern(**extended) == pattern(**extended)
    assert torch.equal(pattern(block=3).dense(97), pattern(block=3).dense(97))


@pytest.mark.parametrize("per_head", [False, True])
def test_mixing_matrix_is_the_masked_softmax(per_head: bool) -> None:
    layer = PatternAttention(12, 3, BigBirdOptions(block=2, random=1, per_head=per_head)).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    q, k, _ = layer.heads.project(x)
    seen = pattern(3, block=2, random=1, per_head=per_head).dense(17)
    weights = torch.softmax((q @ k.mT / 2).masked_fill(~seen, -torch.inf), dim=-1)
    mixing = mixing_matrix(layer, x)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, weights, rtol=0, atol=1e-6)


def test_equals_hugging_face_in_train_mode() -> None:
    """With its own draws. In eval mode it draws block 0 for all, and counts it again each time."""
    big_bird = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")
    B, nb, h, d = 2, 13, 2, 3
    config = big_bird.BigBirdConfig(
        hidden_size=h * d, num_attention_heads=h, block_size=B, num_random_blocks=2, use_bias=False
    )
    theirs, drawn = big_bird.BigBirdBlockSparseAttention(config).double(), []
    draw = theirs._bigbird_block_rand_mask_with_head
    theirs._bigbird_block_rand_mask_with_head = lambda **options: (
        drawn.append(draw(**options)) or (drawn[-1])
    )
    x = torch.randn(2, B * nb, h * d, dtype=torch.float64)
    blocks, band, rows, columns = big_bird.BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(2, B * nb, dtype=torch.float64), B
    )
    for training in (True, False):
        out = theirs.train(training)(x, band, rows, columns, blocks, blocks)[0]
        q, k, v = (
            part(x).unflatten(-1, (h, d)).transpose(1, 2)
            for part in (theirs.query, theirs.key, theirs.value)
        )
        seen = pattern(block=1, random=0).dense(nb).expand(h, nb, nb).clone()
        inner = torch.arange(1, nb - 1)[:, None]
        for head, table in enumerate(drawn[-1]):
            seen[head, inner, torch.as_tensor(table).long()] = True
        allowed = seen.repeat_interleave(B, -1).repeat_interleave(B, -2)
        expected = full.naive(q, k, v, mask=allowed[None]).transpose(1, 2).flatten(2)
        assert torch.allclose(out, expected) == training
        apart = (out - expected).abs().amax(dim=(0, 2)) > 1e-6
        assert int(apart.sum()) == (0 if training else B * (nb - 2))


def test_wrong_arguments_are_answered_in_sentences() -> None:
    with pytest.raises(ValueError, match="window is odd: got 4, try 5"):
        BigBirdOptions(window=4)
    with pytest.raises(ValueError, match="block should be at least 1, got 0"):
        BigBirdOptions(block=0)
    with pytest.raises(ValueError, match="random should be at least 0, got -1"):
        BigBirdOptions(random=-1)
    with pytest.raises(ValueError, match="either blocks are global or extra tokens are"):
        attnlab.build("bigbird", dim=12, heads=3, global_tokens=5)
    with pytest.raises(ValueError, match="bigbird cannot be causal: its global positions"):
        attnlab.build("bigbird", dim=12, heads=3, causal=True)
    with pytest.raises(ValueError, match="never causal: its global positions"):
        PatternAttention(12, 3, BigBirdOptions(), causal=True)
    with pytest.raises(ValueError, match="there is no form 'dense'"):
        attnlab.build("bigbird", dim=12, heads=3, form="dense")
