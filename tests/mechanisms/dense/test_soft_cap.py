"""Soft cap: the loop, bounds and slope, the mask before the cap, Gemma 2's layer."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import attnlab
from attnlab.core import patterns
from attnlab.core.positions import Rotation
from attnlab.core.probe import record
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.dense.soft_cap import FORMS, SoftCapOptions

naive = FORMS["naive"]
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(h: int = 3, g: int = 3, n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, h, n, 11), (2, g, m, 11), (2, g, m, 13))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


@each_form
def test_each_form_is_the_sum_in_plain_numbers(form) -> None:
    """Causal, the queries being the last n of m positions; two query heads share a key head."""
    q, k, v = made(h=4, g=2)
    (b, h, n, _), m, c = q.shape, k.shape[2], 1.5
    expected = torch.zeros(b, h, n, 13, dtype=torch.float64)
    for s, a, i in itertools.product(range(b), range(h), range(n)):
        seen = range(m - n + i + 1)
        scores = [float(q[s, a, i] @ k[s, a // 2, j]) / math.sqrt(11) for j in seen]
        powers = [math.exp(c * math.tanh(score / c)) for score in scores]
        read = sum(p * v[s, a // 2, j] for p, j in zip(powers, seen, strict=True))
        expected[s, a, i] = read / sum(powers)
    found = form(q, k, v, mask=patterns.causal(), options=SoftCapOptions(cap=c))
    torch.testing.assert_close(found, expected)


@each_form
def test_scores_keep_their_order_below_the_cap(form) -> None:
    q, k, v = made()
    with record() as notes:
        form(10 * q, k, v, options=SoftCapOptions(cap=30.0))
    scores, plain = notes.last("scores"), 10 * q @ k.mT * 11**-0.5
    assert (scores.abs() < 30).all()
    assert torch.equal(scores.argsort(-1), plain.argsort(-1))


@each_form
def test_a_large_cap_is_full_attention(form) -> None:
    q, k, v = made()
    found = form(q, k, v, options=SoftCapOptions(cap=1e7))
    torch.testing.assert_close(found, full.naive(q, k, v))


def test_the_slope_is_that_of_tanh() -> None:
    """One key beside a fixed one: dw/ds = w (1 − w) (1 − tanh²)."""
    score = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[1.0], [0.0]], dtype=torch.float64)[None, None]
    v = torch.tensor([[1.0], [0.0]], dtype=torch.float64)[None, None]
    out = naive(score.view(1, 1, 1, 1), k, v, options=SoftCapOptions(cap=2.0))
    (slope,) = torch.autograd.grad(out.sum(), score)
    weight, capped = float(out.detach()), math.tanh(1.5)
    assert weight == pytest.approx(1 / (1 + math.exp(-2 * capped)))
    assert float(slope) == pytest.approx(weight * (1 - weight) * (1 - capped**2))


def test_a_cap_after_the_mask_lets_masked_keys_in() -> None:
    """The common mistake: −∞ becomes −c. Ours gives them nothing, and an empty row zeros."""
    q, k, v = made(n=7)
    with record() as notes:
        out = naive(q, k, v, mask=patterns.causal(), options=SoftCapOptions(cap=2.0))
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert not notes.last("weights")[..., future].any()
    masked = (q @ k.mT * 11**-0.5).masked_fill(future, -torch.inf)
    mistaken = (2 * torch.tanh(masked / 2)).softmax(-1)
    assert (mistaken[..., future] > 1e-4).all()
    assert not torch.allclose(mistaken @ v, out)
    assert not naive(q, k, v, mask=~patterns.full()).any()


def test_wrong_calls() -> None:
    for wrong in (0.0, -3.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"cap should be a (number above 0|finite number)"):
            attnlab.build("soft_cap", dim=12, heads=3, cap=wrong)


# ---- Hugging Face


class Turning(Rotation):
    """Gemma 2's rotation, and the scale of its queries in the place of 1/√d."""

    def __init__(self, rotary, apply, scale: float) -> None:
        super().__init__()
        self.rotary, self.apply_to, self.scale, self.head_dim = rotary, apply, scale, 4

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        return self.scale * self.keys(q, positions)

    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        return self.apply_to(k, k, *self.rotary(k, positions[None]))[0]


@pytest.mark.parametrize("scalar", [4, 9])
def test_equals_hugging_face(scalar: int) -> None:
    """Gemma 2's attention with the cap 2. Its softmax is in float32."""
    from transformers.models.gemma2 import modeling_gemma2 as theirs_

    torch.manual_seed(0)
    config = theirs_.Gemma2Config(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=4,
        num_hidden_layers=2, query_pre_attn_scalar=scalar, attn_logit_softcapping=2.0,
        layer_types=["full_attention"] * 2, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    theirs = theirs_.Gemma2Attention(config, 1).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    rotary = theirs_.Gemma2RotaryEmbedding(config)
    x, at = torch.randn(2, 9, 24, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, rotary(x, at), hidden)
    ours = attnlab.build(
        "soft_cap", dim=24, heads=6, kv_heads=2, causal=True, cap=2.0,
        positions=Turning(rotary, theirs_.apply_rotary_pos_emb, math.sqrt(4 / scalar)),
    ).double()  # fmt: skip
    for mine, its in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
        getattr(ours.heads, mine).weight.data = getattr(theirs, f"{its}_proj").weight.data
    torch.testing.assert_close(ours(x), expected, rtol=3e-6, atol=3e-6)
    ours.attend.keywords["options"] = SoftCapOptions(cap=1e6)
    assert (ours(x) - expected).abs().max() > 1e-2
