"""Gated attention: the loop, where the gate stands, the sink it amounts to, Qwen3-Next's layer."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.positions import Rotation
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.dense import full, sink
from attnlab.mechanisms.dense.gated_attention import FORMS, GatedAttention

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(h: int = 3, g: int = 3, n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, h, n, 11), (2, g, m, 11), (2, g, m, 13), (2, h, n, 13))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@each_form
def test_each_form_is_the_sum_in_plain_numbers(form) -> None:
    """Causal, the queries being the last n of m positions; two query heads share a key head."""
    q, k, v, gate = made(h=4, g=2)
    (b, h, n, _), m = q.shape, k.shape[2]
    expected = torch.zeros(b, h, n, 13, dtype=torch.float64)
    for s, a, i in itertools.product(range(b), range(h), range(n)):
        seen = range(m - n + i + 1)
        powers = [math.exp(float(q[s, a, i] @ k[s, a // 2, j]) / math.sqrt(11)) for j in seen]
        for x in range(13):
            read = sum(p * float(v[s, a // 2, j, x]) for p, j in zip(powers, seen, strict=True))
            closed = 1 + math.exp(-float(gate[s, a, i, x]))
            expected[s, a, i, x] = read / sum(powers) / closed
    torch.testing.assert_close(form(q, k, v, gate, mask=patterns.causal()), expected)


@each_form
def test_a_gate_of_zero_is_half(form) -> None:
    q, k, v, gate = made()
    half = form(q, k, v, torch.zeros_like(gate))
    torch.testing.assert_close(half, full.naive(q, k, v) / 2)


@each_form
def test_a_headwise_gate_is_a_sink_that_depends_on_the_query(form) -> None:
    """The logit L − g, for each query a head of its own."""
    q, k, v, _ = made()
    gate = torch.randn(2, 3, 5, 1, dtype=torch.float64)
    found = form(q, k, v, gate.expand(-1, -1, -1, 13))
    logits = (q @ k.mT * 11**-0.5).logsumexp(-1) - gate[..., 0]
    for s, i in itertools.product(range(2), range(5)):
        one = sink.naive(q[s : s + 1, :, i : i + 1], k[s : s + 1], v[s : s + 1], logits[s, :, i])
        torch.testing.assert_close(one[0, :, 0], found[s, :, i])


def test_headwise_is_elementwise_with_repeated_columns() -> None:
    one, each = (GatedAttention(12, 3, options=_options(x)).double() for x in _KINDS)
    each.heads.load_state_dict(one.heads.state_dict() | {"gate.weight": each.heads.gate.weight})
    each.heads.gate.weight.data = one.heads.gate.weight.data.repeat_interleave(4, dim=0)
    assert one.heads.gate.weight.shape == (3, 12)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(one(x), each(x))


_KINDS = ("headwise", "elementwise")


def _options(kind: str):
    return attnlab.card("gated_attention").options(gates=kind)


def test_a_gate_on_the_values_is_another_function() -> None:
    q, k, v, _ = made(n=7)
    gate = torch.randn(2, 3, 7, 13, dtype=torch.float64)
    after = FORMS["naive"](q, k, v, gate)
    assert not torch.allclose(after, full.naive(q, k, torch.sigmoid(gate) * v))


def test_the_map_of_a_headwise_gate_is_exact() -> None:
    """Its rows sum to the gates."""
    layer = GatedAttention(12, 3, causal=True, options=_options("headwise")).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    found = mixing_matrix(layer, x)
    assert found.exact
    gates = torch.sigmoid(layer.heads.gate(x)).transpose(1, 2)
    torch.testing.assert_close(found.matrix.sum(-1), gates)
    elementwise = GatedAttention(12, 3, causal=True).double()
    assert not mixing_matrix(elementwise, x).exact


def test_cross_attention_is_gated_by_what_asks() -> None:
    layer = GatedAttention(12, 3).double()
    x, context = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    padding = torch.arange(7) < torch.tensor([[7], [4]])
    noisy = context.masked_fill(~padding[..., None], torch.nan)
    out = layer(x, context=noisy, context_padding=padding)
    alone = layer(x[1:], context=context[1:, :4])
    torch.testing.assert_close(out[1:], alone)


def test_wrong_calls() -> None:
    q, k, v, gate = made(h=3, g=2)
    for form in FORMS.values():
        with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
            form(q, k, v, gate)
    with pytest.raises(ValueError, match="gates"):
        attnlab.build("gated_attention", dim=12, heads=3, gates="rowwise")


# ---- Hugging Face


class Turning(Rotation):
    """What Qwen3-Next does between projection and product: a norm, and a rotation."""

    def __init__(self, theirs, turning, apply) -> None:
        super().__init__()
        self.theirs, self.turning, self.apply_to, self.head_dim = theirs, turning, apply, 4

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        q = self.theirs.q_norm(q)
        return self.apply_to(q, q, *self.turning(q, positions[None]))[0]

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        k = self.theirs.k_norm(k)
        return self.apply_to(k, k, *self.turning(k, positions[None]))[0]


def test_equals_hugging_face() -> None:
    """Qwen3-Next's attention: the columns of queries and gates alternate, head by head. Its norms
    are in float32."""
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs_

    torch.manual_seed(0)
    config = theirs_.Qwen3NextConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=4,
        num_hidden_layers=1, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )  # fmt: skip
    theirs = theirs_.Qwen3NextAttention(config, 0).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    turning = theirs_.Qwen3NextRotaryEmbedding(config)
    x, at = torch.randn(2, 9, 24, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, turning(x, at), hidden)
    for form in FORMS:
        ours = attnlab.build(
            "gated_attention", dim=24, heads=6, kv_heads=2, causal=True, form=form,
            positions=Turning(theirs, turning, theirs_.apply_rotary_pos_emb),
        ).double()  # fmt: skip
        for mine, its in (("key", "k"), ("value", "v"), ("output", "o")):
            getattr(ours.heads, mine).weight.data = getattr(theirs, f"{its}_proj").weight.data
        both = theirs.q_proj.weight.data.unflatten(0, (6, 2, 4))
        ours.heads.query.weight.data, ours.heads.gate.weight.data = (
            part.flatten(0, 1) for part in both.unbind(1)
        )
        torch.testing.assert_close(ours(x), expected, rtol=2e-6, atol=2e-6)
        first, state = ours.step(x[:, :4])
        rest, _ = ours.step(x[:, 4:], state)
        torch.testing.assert_close(torch.cat((first, rest), dim=1), expected, rtol=2e-6, atol=2e-6)
