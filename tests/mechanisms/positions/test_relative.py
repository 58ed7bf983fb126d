"""Relative attention: the shift is a lookup of distances, and four terms make a score."""

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.positions import relative
from attnlab.mechanisms.positions.relative import (
    FORMS,
    RelativeAttention,
    distance_keys,
    relative_shift,
    sinusoids,
)

B, H, N, M, D, E, P = 2, 3, 5, 11, 7, 13, 17


def made(n: int = N, m: int = M) -> list[Tensor]:
    """Queries, keys, values, u, t and W_R."""
    shapes = (B, H, n, D), (B, H, m, D), (B, H, m, E), (H, D), (H, D), (H, D, P)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def layer(**options: bool) -> RelativeAttention:
    own = RelativeAttention(12, 3, **options).double()
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return own


# ---- the shift


def test_the_shift_by_hand() -> None:
    """4 × 4: row i, column j holds the number of distance i - j; the rest is left over."""
    by_distance = torch.tensor(
        [[10.0 * i + distance for distance in (3, 2, 1, 0)] for i in range(4)]
    )
    shifted = relative_shift(by_distance[None, None])[0, 0]
    assert shifted.tolist() == [
        [0, 0, 13, 12],
        [11, 10, 0, 23],
        [22, 21, 20, 0],
        [33, 32, 31, 30],
    ]


@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 11), (1, 7), (1, 1), (2, 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_the_shift_is_a_lookup_of_distances(n: int, m: int, causal: bool) -> None:
    """For j ≤ i with the distances of the past alone; for all pairs with those of both sides."""
    distances = list(range(m - 1, -1 if causal else -n, -1))
    scores = torch.randn(B, H, n, len(distances))
    shifted = relative_shift(scores)
    for row in range(n):
        i = row + m - n
        for j in range(i + 1 if causal else m):
            expected = scores[..., row, distances.index(i - j)]
            assert torch.equal(shifted[..., row, j], expected)


def test_sinusoids_of_a_distance() -> None:
    table = sinusoids(torch.tensor([3, 0, -3]), 5)
    assert table.shape == (3, 5)
    torch.testing.assert_close(table[0, 2], torch.tensor(3 * 10000 ** (-2 / 5)).sin().double())
    torch.testing.assert_close(table[1].tolist(), [0.0, 1.0, 0.0, 1.0, 0.0])
    torch.testing.assert_close(table[2, ::2], -table[0, ::2])  # sines are odd, cosines are even
    torch.testing.assert_close(table[2, 1::2], table[0, 1::2])


# ---- the scores


def test_four_terms_make_a_score() -> None:
    """Content and position, each with a query of its own: the equation, pair by pair."""
    q, k, v, u, t, weight = made()
    with record() as notes:
        relative.naive(q, k, v, u, t, weight)
    i, j = 2 + M - N, 9
    r = weight @ sinusoids(torch.tensor([i - j]), P)[0]  # (h, d)
    a, b = (q[:, :, 2] * k[:, :, j]).sum(-1), (q[:, :, 2] * r).sum(-1)
    c, d = (u * k[:, :, j]).sum(-1), (t * r).sum(-1)
    torch.testing.assert_close(notes.last("content")[..., 2, j], (a + c) / D**0.5)
    torch.testing.assert_close(notes.last("position")[..., 2, j], (b + d) / D**0.5)
    torch.testing.assert_close(notes.last("scores")[..., 2, j], (a + b + c + d) / D**0.5)


@pytest.mark.parametrize("form", FORMS)
def test_without_distances_it_is_causal_attention(form: str) -> None:
    q, k, v, u, t, weight = made()
    out = FORMS[form](q, k, v, u * 0, t * 0, weight * 0, causal=True)
    torch.testing.assert_close(out, full.naive(q, k, v, mask=patterns.causal()))
    with_content_bias = FORMS[form](q, k, v, u, t, weight * 0, causal=True)
    expected = full.naive(q + u[:, None], k, v, mask=patterns.causal())
    torch.testing.assert_close(with_content_bias, expected)


@pytest.mark.parametrize("form", FORMS)
def test_content_alike_leaves_a_bias_by_distance(form: str) -> None:
    """With queries of zeros, term (d) is a number per head and distance, like a learned ALiBi."""
    q, k, v, u, t, weight = made()
    out = FORMS[form](q * 0, k, v, u * 0, t, weight)
    distances = torch.arange(M - 1, -N, -1)  # j - i ascending
    bias = (t[:, None] * distance_keys(weight, distances)).sum(-1) / D**0.5
    torch.testing.assert_close(out, full.naive(q * 0, k, v, bias=bias))


def test_a_layer_gives_its_parameters_to_the_form() -> None:
    own, x = layer(), torch.randn(B, N, 12, dtype=torch.float64)
    weight = own.distance.weight.reshape(3, 4, 12)
    out = relative.naive(*own.heads.project(x), own.u, own.t, weight)
    torch.testing.assert_close(own(x), own.heads.merge(out))


# ---- memory


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_the_tail_of_the_concatenation(form: str) -> None:
    """One segment with memory gives the last rows of both segments read at once."""
    own = RelativeAttention(12, 3, causal=True, form=form).double()
    torch.nn.init.normal_(own.u), torch.nn.init.normal_(own.t)
    memory, segment = torch.randn(B, 6, 12).double(), torch.randn(B, 5, 12).double()
    whole = own(torch.cat((memory, segment), dim=1))
    _, k, v = own.heads.project(memory)
    out, state = own.step(segment, KeyValueCache(k.detach(), v.detach()))
    torch.testing.assert_close(out, whole[:, 6:])
    assert state.length == 11
    assert not torch.allclose(out, own(segment))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [True, False])
def test_translation_changes_nothing(form: str, causal: bool) -> None:
    """Padding on the left moves all tokens; distances far from any training length are fine."""
    own = layer(causal=causal)
    own.form = form
    x = torch.randn(B, 9, 12, dtype=torch.float64)
    moved = torch.cat((torch.randn(B, 40, 12, dtype=torch.float64), x), dim=1)
    padding = torch.arange(49)[None].expand(B, -1) >= 40
    torch.testing.assert_close(own(moved, padding)[:, 40:], own(x))


def test_the_order_of_keys_is_seen_on_both_sides() -> None:
    own, x = layer(), torch.randn(1, 4, 12, dtype=torch.float64)
    mirrored = own(x.flip(1)).flip(1)
    assert not torch.allclose(mirrored, own(x))
    with torch.no_grad():
        own.distance.weight[:, ::2] = 0  # without the sines both sides are alike
    torch.testing.assert_close(own(x.flip(1)).flip(1), own(x))


# ---- what it costs


@pytest.mark.parametrize(
    ("form", "causal"), [("naive", False), ("shifted", False), ("shifted", True)]
)
def test_costs_are_those_of_the_card(form: str, causal: bool) -> None:
    """A key of its own for every pair is d times the scores; the shift needs one column more."""
    counted = count(RelativeAttention(64, 2, form=form, causal=causal), torch.randn(1, 128, 64))
    distances = 128 if causal else 255
    largest = 2 * 128 * 128 * 32 if form == "naive" else 2 * 128 * (distances + 1)
    assert counted.largest_tensor.elements == largest
    projections = 4 * 2 * 128 * 64 * 64
    scored = 128 if form == "naive" else distances
    mixing = 2 * 2 * 128 * (128 * 64 + scored * 32) + 2 * 2 * distances * 32 * 64
    assert counted.flops == projections + mixing


# ---- in a model


@pytest.mark.parametrize("name", ["relative", "transformer_xl_positions"])
def test_a_model_takes_it_in_place_of_full_attention(name: str) -> None:
    model = attnlab.TinyTransformer(
        11, dim=12, heads=2, layers=2, positions=name, position_options={"form": "naive"}
    )
    found = [m for m in model.modules() if isinstance(m, RelativeAttention)]
    assert [m.form for m in found] == ["naive", "naive"]
    assert model(torch.randint(11, (2, 7))).shape == (2, 7, 11)


def test_watch_reads_the_weights_of_both_terms() -> None:
    own, x = layer(causal=True), torch.randn(1, 7, 12, dtype=torch.float64)
    with record() as notes, attnlab.watch(own) as seen:
        own(x)
    assert len(seen) == 1
    torch.testing.assert_close(seen[0].weights, notes.last("weights"))


def test_wrong_calls_are_answered_in_sentences() -> None:
    def tiny(**options: object) -> None:
        attnlab.TinyTransformer(9, dim=8, heads=2, layers=1, positions="relative", **options)

    with pytest.raises(
        ValueError, match="is an attention of its own, in place of attention='full'"
    ):
        tiny(attention="longformer")
    with pytest.raises(ValueError, match="goes into layers that are built by name"):
        tiny(attention=attnlab.build("full", dim=8, heads=2, causal=True))
    with pytest.raises(TypeError, match="relative has no option 'clip'"):
        tiny(position_options={"clip": 3})
    with pytest.raises(ValueError, match="positions='relative' does not go into a layer"):
        attnlab.build("full", dim=8, heads=2, positions="relative")
    with pytest.raises(ValueError, match="relative cannot take rotated queries"):
        attnlab.build("relative", dim=8, heads=2, positions="rope")
    with pytest.raises(ValueError, match="step decodes from left to right"):
        layer().step(torch.randn(1, 2, 12, dtype=torch.float64))
    q, k, v, _, t, weight = made()
    with pytest.raises(ValueError, match=r"`u` should be Float\[h d\].*h is 4, expected 3"):
        relative.naive(q, k, v, torch.zeros(4, D, dtype=torch.float64), t, weight)
