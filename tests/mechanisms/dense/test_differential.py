"""Differential attention: the loop, the sums of its rows, both versions, DiffLlama's layer."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.core import patterns
from attnlab.core.positions import Rotation
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.dense.differential import (
    FORMS,
    DifferentialAttention,
    DifferentialOptions,
    naive,
)
from attnlab.mechanisms.positions.rope import RotaryPositions

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
each_version = pytest.mark.parametrize("version", ["v1", "v2"])


def made(h: int = 3, g: int = 3, n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, h, 2, n, 11), (2, g, 2, m, 11), (2, g, m, 13), (2, h, n))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def layer(version: str = "v1", **given) -> DifferentialAttention:
    torch.manual_seed(0)
    number = given.pop("layer", 0)
    options = DifferentialOptions(version=version, layer=number)
    return DifferentialAttention(12, 3, causal=True, options=options, **given).double()


@each_form
def test_each_form_is_the_difference_in_plain_numbers(form) -> None:
    """Causal, the queries being the last n of m positions; two heads share keys and values."""
    q, k, v, subtract = made(h=4, g=2)
    expected = torch.zeros(2, 4, 5, 13, dtype=torch.float64)
    for s, a, i in itertools.product(range(2), range(4), range(5)):
        seen = range(7 - 5 + i + 1)
        for at, sign in ((0, 1.0), (1, -float(subtract[s, a, i]))):
            powers = [
                math.exp(float(q[s, a, at, i] @ k[s, a // 2, at, j]) / math.sqrt(11)) for j in seen
            ]
            for j, power in zip(seen, powers, strict=True):
                expected[s, a, i] += sign * power / sum(powers) * v[s, a // 2, j]
    torch.testing.assert_close(form(q, k, v, subtract, mask=patterns.causal()), expected)


@each_form
def test_rows_sum_to_what_is_left(form) -> None:
    """1 − λ, with weights of either sign."""
    q, k, v, _ = made()
    subtract = torch.rand(2, 3, 5, dtype=torch.float64)
    with record() as notes:
        form(q, k, v, subtract)
    weights, subtracted = notes.last("weights"), notes.last("subtracted")
    torch.testing.assert_close(weights.sum(-1), 1 - subtract)
    torch.testing.assert_close(subtracted.sum(-1), subtract)
    assert (weights < 0).any()
    torch.testing.assert_close(form(q, k, v, subtract), weights @ v)


@each_form
def test_without_a_second_map_it_is_full_attention(form) -> None:
    q, k, v, subtract = made()
    found = form(q, k, v, torch.zeros_like(subtract))
    torch.testing.assert_close(found, full.naive(q[:, :, 0], k[:, :, 0], v))


@each_form
def test_equal_maps_cancel(form) -> None:
    q, k, v, subtract = made()
    q, k = (x[:, :, :1].expand(-1, -1, 2, -1, -1) for x in (q, k))
    found = form(q, k, v, torch.ones_like(subtract))
    torch.testing.assert_close(found, torch.zeros_like(found))


def test_where_lambda_starts() -> None:
    """0.2 in the first layer, towards 0.8; vectors of zeros give it exactly."""
    assert DifferentialOptions().start == pytest.approx(0.2)
    assert DifferentialOptions(layer=1).start == pytest.approx(0.8 - 0.6 * math.exp(-0.3))
    assert DifferentialOptions(layer=99).start == pytest.approx(0.8)
    made = layer(layer=2)
    q1, k1, q2, k2 = made.vectors.tolist()
    products = [sum(x * y for x, y in zip(*each, strict=True)) for each in ((q1, k1), (q2, k2))]
    expected = math.exp(products[0]) - math.exp(products[1]) + DifferentialOptions(layer=2).start
    assert made.subtract.item() == pytest.approx(expected)
    torch.nn.init.zeros_(made.vectors)
    assert made.subtract.item() == pytest.approx(DifferentialOptions(layer=2).start)


def test_the_norm_of_v1() -> None:
    """Each head of each token has the mean square (1 − λ_0)²; the first token of a causal layer
    reads its own value alone, whatever the scores."""
    made = layer(layer=2)
    x = 3 * torch.randn(2, 7, 12, dtype=torch.float64)
    q, k, v = made.heads.project(x)
    out = made._attend(q, k, v, patterns.causal(), None)
    size = (1 - made.options.start) ** 2
    torch.testing.assert_close(
        out.square().mean(-1), torch.full_like(out[..., 0], size), rtol=1e-2, atol=0
    )
    first = v[:, :, 0] / (v[:, :, 0].square().mean(-1, keepdim=True)).sqrt()
    torch.testing.assert_close(out[:, :, 0], size**0.5 * first, rtol=1e-3, atol=1e-3)


def test_v2_by_hand() -> None:
    """Two queries, one key, λ of each token and head, no norm; closed λ is full attention."""
    made = layer("v2")
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    q, k, v = (
        part(x).unflatten(-1, (heads, 4)).transpose(1, 2)
        for part, heads in ((made.heads.query, 6), (made.heads.key, 3), (made.heads.value, 3))
    )
    subtract = torch.sigmoid(made.heads.subtract(x)).mT[..., None]
    first, second = (full.naive(q[:, at::2], k, v, mask=patterns.causal()) for at in (0, 1))
    torch.testing.assert_close(made(x), made.heads.merge(first - subtract * second))
    torch.nn.init.constant_(made.heads.subtract.bias, -1e4)
    torch.testing.assert_close(made(x), made.heads.merge(first))


@each_version
@pytest.mark.parametrize("form", FORMS)
def test_decoding_with_rotated_queries_is_the_whole(version: str, form: str) -> None:
    """A scheme for the layer's heads turns each half of them in v1, as one for halves does."""
    made = layer(version, form=form, positions=RotaryPositions(12, 3))
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    first, state = made.step(x[:, :4])
    parts = [first]
    for i in range(4, 9):
        out, state = made.step(x[:, i : i + 1], state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), made(x))
    halves = layer(version, positions=RotaryPositions(12, 6 if version == "v1" else 3))
    torch.testing.assert_close(halves(x), made(x))
    assert not torch.allclose(layer(version)(x), made(x))


def test_what_each_version_has_to_learn() -> None:
    """v1 as many as full attention, four vectors and a norm beside; v2 has wider queries."""
    plain = 4 * 12 * 12
    sizes = {v: sum(p.numel() for p in layer(v).parameters()) for v in ("v1", "v2")}
    assert sizes == {"v1": plain + 4 * 2 + 4, "v2": plain + 12 * 12 + 12 * 3 + 3}


@each_version
def test_a_head_is_masked_with_both_its_queries(version: str) -> None:
    made, x = layer(version), torch.randn(2, 7, 12, dtype=torch.float64)
    masked = StructuredPruning(units="heads", cut=[(0, 1)])(made)
    made.heads.output.weight.data[:, 4:8] = 0
    torch.testing.assert_close(masked(x), made(x))
    assert int((masked.heads.query.weight != 0).sum()) == made.heads.query.weight.numel() * 2 // 3
    with pytest.raises(ValueError, match="it has more than its projections"):
        StructuredPruning(units="heads").remove(masked)


@each_version
@pytest.mark.parametrize("form", FORMS)
def test_what_is_watched(version: str, form: str) -> None:
    """One call with the signed weights, also where PyTorch computes two maps."""
    made, x = layer(version, form=form), torch.randn(2, 7, 12, dtype=torch.float64)
    with attnlab.watch(made) as seen:
        made(x)
    with record() as notes:
        made(x)
    (found,) = seen
    assert (found.weights < 0).any()
    torch.testing.assert_close(found.weights, notes.last("weights"))


def test_heads_of_odd_width() -> None:
    """Halves are rounded up to an even number, which a rotation can turn."""
    for dim, half in ((15, 4), (6, 2), (18, 4), (24, 4)):
        positions = RotaryPositions(2 * half, 2) if dim == 15 else None
        made = DifferentialAttention(dim, 3, positions=positions).double()
        assert made.heads.head_dim == half
        assert made(torch.randn(2, 7, dim, dtype=torch.float64)).shape == (2, 7, dim)


def test_wrong_calls() -> None:
    q, k, v, subtract = made(h=3, g=2)
    for form in FORMS.values():
        with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
            form(q, k, v, subtract)
    with pytest.raises(ValueError, match="layer=2 is for the λ that v1 starts from"):
        attnlab.build("differential", dim=12, heads=3, version="v2", layer=2)
    with pytest.raises(ValueError, match="version"):
        attnlab.build("differential", dim=12, heads=3, version="v3")


# ---- Hugging Face


class Turning(Rotation):
    """DiffLlama's rotation of one half of a head."""

    def __init__(self, turning, apply) -> None:
        super().__init__()
        self.turning, self.apply_to, self.head_dim = turning, apply, 4

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        return self.apply_to(q, q, *self.turning(q, positions[None]))[0]

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        return self.apply_to(k, k, *self.turning(k, positions[None]))[0]


@pytest.mark.parametrize("number", [0, 3])
def test_equals_hugging_face(number: int) -> None:
    """DiffLlama's attention in the third layer, too: first halves of all heads, then the second."""
    from transformers.models.diffllama import modeling_diffllama as theirs_

    torch.manual_seed(0)
    config = theirs_.DiffLlamaConfig(
        hidden_size=48, num_attention_heads=12, num_key_value_heads=6, num_hidden_layers=1,
        rms_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    theirs = theirs_.DiffLlamaAttention(config, number).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    turning = theirs_.DiffLlamaRotaryEmbedding(config)
    x, at = torch.randn(2, 9, 48, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, turning(x, at), hidden)
    for form in FORMS:
        ours = attnlab.build(
            "differential", dim=48, heads=6, kv_heads=3, causal=True, form=form, layer=number,
            positions=Turning(turning, theirs_.apply_rotary_pos_emb),
        ).double()  # fmt: skip
        for mine, its in (("query", "q"), ("key", "k"), ("value", "v")):
            weight = getattr(theirs, f"{its}_proj").weight.data
            halves = weight.unflatten(0, (2, -1, 4)).transpose(0, 1)
            getattr(ours.heads, mine).weight.data = halves.flatten(0, 2)
        ours.heads.output.weight.data = theirs.o_proj.weight.data
        its = (theirs.lambda_q1, theirs.lambda_k1, theirs.lambda_q2, theirs.lambda_k2)
        ours.vectors.data = torch.stack([each.data for each in its])
        torch.testing.assert_close(ours(x), expected, rtol=2e-6, atol=2e-6)
        first, state = ours.step(x[:, :4])
        rest, _ = ours.step(x[:, 4:], state)
        torch.testing.assert_close(torch.cat((first, rest), dim=1), expected, rtol=2e-6, atol=2e-6)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, k, v, subtract = made(n=7)
    with record() as notes:
        out = naive(q, k, v, subtract, mask=~patterns.places([3], of="row"))
    assert (out[:, :, 3] == 0).all()
    assert (notes.last("subtracted")[:, :, 3] == 0).all()
