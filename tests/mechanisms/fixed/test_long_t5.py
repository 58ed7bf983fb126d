"""LongT5's transient global attention: Hugging Face's, its limits (L3), its blocks, its buckets."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.fixed.long_t5 import (
    FORMS,
    LongT5Attention,
    LongT5Options,
    blocked,
    blocks_of,
    buckets_of,
    lengths,
    sums,
)

B, H, D, E, G, BUCKETS = 2, 3, 5, 7, 4, 13
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(n: int = 19, globals_: int = G) -> list[Tensor]:
    shapes = (
        *((B, H, n, D), (B, H, n, D), (B, H, n, E)),
        *((B, H, globals_, D), (B, H, globals_, E), (H, BUCKETS), (H, BUCKETS)),
    )
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


# ---- the public implementation


@pytest.mark.parametrize("n", [3, 16, 18, 23])
@pytest.mark.parametrize("form", FORMS)
def test_equals_hugging_face(n: int, form: str) -> None:
    modeling = pytest.importorskip("transformers.models.longt5.modeling_longt5")
    config = modeling.LongT5Config(
        d_model=12,
        num_heads=3,
        d_kv=4,
        local_radius=3,
        global_block_size=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=11,
        dropout_rate=0.0,
    )
    config._attn_implementation = "eager"
    theirs = modeling.LongT5TransientGlobalAttention(config, has_relative_attention_bias=True)
    theirs = theirs.double().eval()
    ours = LongT5Attention(
        12, 3, LongT5Options(radius=3, block=4, farthest=11), buckets=8, form=form
    ).double()
    for mine, other in (
        (ours.heads.query.weight, theirs.q.weight),
        (ours.heads.key.weight, theirs.k.weight),
        (ours.heads.value.weight, theirs.v.weight),
        (ours.heads.output.weight, theirs.o.weight),
    ):
        mine.data = other.data.clone()
    ours.norm.weight.data.normal_()
    theirs.global_input_layer_norm.weight.data = ours.norm.weight.data.clone()
    for mine, other in (
        (ours.local_table, theirs.relative_attention_bias),
        (ours.global_table, theirs.global_relative_attention_bias),
    ):
        mine.data.normal_()
        other.weight.data = mine.data.T.clone()
    x = torch.randn(2, n, 12, dtype=torch.float64)
    expected = theirs(x, mask=torch.ones(2, n))[0]
    torch.testing.assert_close(ours(x), expected, rtol=1e-6, atol=1e-6)


# ---- L3: limits


@by_form
def test_a_short_sequence_is_full_attention(form: Callable[..., Tensor]) -> None:
    q, k, v, *globals_, local, far = made()
    local = torch.zeros_like(local)
    expected = full.naive(q, k, v, scale=1.0)
    for radius in (18, 40):
        out = form(q, k, v, *globals_, local, far, options=LongT5Options(radius=radius, block=20))
        torch.testing.assert_close(out, expected)
    out = form(q, k, v, *globals_, local, far, options=LongT5Options(radius=18, block=19))
    assert not torch.allclose(out, expected)  # one block: one global token
    out = form(q, k, v, *globals_, local, far, options=LongT5Options(radius=17, block=20))
    assert not torch.allclose(out, expected)


@by_form
def test_scores_are_what_they_should_be(form: Callable[..., Tensor]) -> None:
    """Token by token, with loops."""
    q, k, v, gk, gv, local, far = made()
    out = form(q, k, v, gk, gv, local, far, options=LongT5Options(radius=2, block=5, farthest=7))
    for i in range(19):
        near = [j for j in range(19) if abs(i - j) <= 2]
        bias = local[:, buckets_of(torch.tensor(near) - i, BUCKETS, 7)]
        scores = torch.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, near]) + bias
        block = min(i // 5, 2)  # three blocks; 15 … 18 join the last
        bias = far[:, buckets_of(torch.arange(3) - block, BUCKETS, 7)]
        above = torch.einsum("bhd,bhgd->bhg", q[:, :, i], gk[:, :, :3]) + bias
        weights = torch.cat([scores, above], -1).softmax(-1)
        values = torch.cat([v[:, :, near], gv[:, :, :3]], 2)
        torch.testing.assert_close(out[:, :, i], torch.einsum("bhj,bhje->bhe", weights, values))


# ---- blocks and buckets


def test_buckets_by_hand() -> None:
    distance = torch.tensor([-200, -11, -10, -5, -3, -2, -1, 0, 1, 2, 3, 5, 10, 11, 200])
    assert buckets_of(distance, 8, 11).tolist() == [3, 3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7, 7]
    distance = torch.tensor([-500, -65, -12, -7, 7, 8, 12, 17, 33, 65, 127, 500])  # T5's own sizes
    expected = [15, 14, 9, 7, *(16 + x for x in (7, 8, 9, 10, 12, 14, 15, 15))]
    assert buckets_of(distance, 32).tolist() == expected


def test_the_rest_joins_the_last_block() -> None:
    x = torch.tensor([1.0, 2, 4, 8, 16, 32, 64, 128])[None, :, None]
    assert sums(x, 3).flatten().tolist() == [7, 8 + 16 + 32 + 64 + 128]
    real = torch.arange(8) < 5
    assert sums(x, 3, real[None]).flatten().tolist() == [31, 0]
    holes = torch.tensor([[1, 0, 1, 1, 1, 1, 1, 0]]).bool()
    assert sums(x, 3, holes).flatten().tolist() == [5, 8 + 16 + 32 + 64]


def test_blocks_go_by_each_sequences_own_length() -> None:
    real = torch.arange(8) < torch.tensor([[8], [5], [2], [0]])
    assert lengths(real, 8, real.device).tolist() == [8, 5, 2, 0]
    of, there = blocks_of(8, 3, 2, lengths(real, 8, real.device))
    assert of[:, :5].tolist() == [[0, 0, 0, 1, 1], [0] * 5, [0] * 5, [0] * 5]
    assert there.tolist() == [[True, True], [True, False], [False, False], [False, False]]


def test_nothing_is_quadratic() -> None:
    def largest(n: int) -> int:
        made_ = [x.float() for x in made(n)]
        return count(
            lambda: blocked(*made_, options=LongT5Options(radius=7, block=8))
        ).largest_tensor.elements

    assert largest(2048) < 2.1 * largest(1024)
    assert largest(2048) < 2048 * 2048


def test_the_far_is_heard_through_the_globals() -> None:
    layer = LongT5Attention(12, 3, LongT5Options(radius=2, block=4)).double()
    x = torch.randn(1, 23, 12, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(x)[0, 0].sum(), x)
    assert (grad != 0).any(-1).all()
    short = LongT5Attention(12, 3, LongT5Options(radius=2, block=24)).double()
    (grad,) = torch.autograd.grad(short(x)[0, 0].sum(), x)
    assert (grad != 0).any(-1)[0].tolist() == [True] * 3 + [False] * 20


def test_map_is_the_weights_of_tokens_and_globals() -> None:
    layer = LongT5Attention(12, 3, LongT5Options(radius=2, block=4)).double()
    layer.global_table.data.normal_()
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    q, k, _ = layer.heads.project(x, torch.cat([x, layer.norm(sums(x, 4))], 1))
    i = torch.arange(11)
    near = q @ k[:, :, :11].mT
    near = near.masked_fill((i - i[:, None]).abs() > 2, -torch.inf)
    distance = torch.arange(2) - (i // 4).clamp(max=1)[:, None]
    above = q @ k[:, :, 11:].mT + layer.global_table[:, buckets_of(distance, 32)]
    expected = torch.cat([near, above], -1).softmax(-1)
    mixing = mixing_matrix(layer, x)
    assert mixing.exact
    torch.testing.assert_close(mixing.matrix, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"radius": -1}, "radius should be at least 0, got -1"),
        ({"block": 0}, "block should be at least 1, got 0"),
        ({"buckets": 3}, "at least 4 buckets, got 3"),
        ({"farthest": 8}, "farthest=8 should be beyond the 8 distances"),
        ({"form": "tiled"}, "there is no form 'tiled'"),
    ],
)
def test_what_cannot_be_is_said(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        attnlab.build("long_t5", dim=12, heads=3, **options)


def test_it_cannot_be_causal_and_says_why() -> None:
    with pytest.raises(ValueError, match="a global token is the sum of a whole block"):
        attnlab.build("long_t5", dim=12, heads=3, causal=True)
