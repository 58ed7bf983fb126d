"""Sink logits: the loop, the identity with a gate, what a constant changes, gpt-oss's module."""

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
from attnlab.mechanisms.dense.sink import FORMS, SinkAttention, naive

each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made(h: int = 3, g: int = 3, n: int = 5, m: int = 7) -> tuple[Tensor, ...]:
    shapes = ((2, h, n, 11), (2, g, m, 11), (2, g, m, 13), (h,))
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def log_sums(q: Tensor, k: Tensor) -> Tensor:
    """L of each query, (b, h, n, 1)."""
    return (q @ k.mT * q.shape[-1] ** -0.5).logsumexp(-1, keepdim=True)


@each_form
def test_each_form_is_the_quotient_in_plain_numbers(form) -> None:
    """Causal, the queries being the last n of m positions; two query heads share a key head."""
    q, k, v, sink = made(h=4, g=2)
    (b, h, n, _), m = q.shape, k.shape[2]
    expected = torch.zeros(b, h, n, 13, dtype=torch.float64)
    for s, a, i in itertools.product(range(b), range(h), range(n)):
        seen = range(m - n + i + 1)
        scores = [float(q[s, a, i] @ k[s, a // 2, j]) / math.sqrt(11) for j in seen]
        whole = math.exp(float(sink[a])) + sum(map(math.exp, scores))
        for j, score in zip(seen, scores, strict=True):
            expected[s, a, i] += math.exp(score) / whole * v[s, a // 2, j]
    torch.testing.assert_close(form(q, k, v, sink, mask=patterns.causal()), expected)


@each_form
def test_sigmoid_attention_is_a_sum_over_single_keys(form) -> None:
    """Each key competes with the sink logit −b alone: σ(s + b)."""
    q, k, v, sink = made()
    weights = torch.sigmoid(q @ k.mT * q.shape[-1] ** -0.5 - sink[:, None, None])
    alone = [form(q, k[:, :, j : j + 1], v[:, :, j : j + 1], sink) for j in range(k.shape[2])]
    torch.testing.assert_close(sum(alone), weights @ v)
    n = torch.tensor(k.shape[2]).double()  # equal scores of 0 and b = −log n: n of 1 / (n + 1)
    torch.testing.assert_close(n * torch.sigmoid(-n.log()), n / (n + 1))


@each_form
def test_a_sink_is_a_gate_that_the_scores_decide(form) -> None:
    """σ(L − b) times the output of a softmax; and a gate σ(g) is a sink at L − g."""
    q, k, v, sink = made()
    gate = torch.sigmoid(log_sums(q, k) - sink[:, None, None])
    torch.testing.assert_close(form(q, k, v, sink), gate * full.naive(q, k, v))
    open_by = torch.randn(2, 3, 5, dtype=torch.float64)
    gated = torch.sigmoid(open_by)[..., None] * full.naive(q, k, v)
    logit = log_sums(q, k).squeeze(-1) - open_by
    for s, a, i in itertools.product(range(2), range(3), range(5)):
        head = (q[s : s + 1, a : a + 1, i : i + 1], *(x[s : s + 1, a : a + 1] for x in (k, v)))
        alone = form(*head, logit[s, a, i : i + 1])
        torch.testing.assert_close(alone[0, 0, 0], gated[s, a, i])


@each_form
def test_a_sink_is_a_key_whose_value_is_zero(form) -> None:
    q, k, v, sink = made()
    key = q.new_zeros(2, 3, 1, 11)
    scores = torch.cat((q @ k.mT * 11**-0.5, (q @ key.mT) + sink[:, None, None]), dim=-1)
    values = torch.cat((v, v.new_zeros(2, 3, 1, 13)), dim=2)
    torch.testing.assert_close(form(q, k, v, sink), scores.softmax(-1) @ values)


@each_form
def test_the_gradient_of_the_logit(form) -> None:
    """∂o/∂b = −p o, where p is the weight of the sink."""
    q, k, v, sink = made()
    out, along = form(q, k, v, sink.requires_grad_()), torch.randn(2, 3, 5, 13).double()
    (grad,) = torch.autograd.grad((out * along).sum(), sink)
    taken = torch.sigmoid(sink[:, None, None] - log_sums(q, k))
    torch.testing.assert_close(grad, -(taken * out * along).sum((0, 2, 3)))


@each_form
def test_without_a_sink_it_is_full_attention(form) -> None:
    q, k, v, sink = made()
    torch.testing.assert_close(form(q, k, v, torch.full_like(sink, -80.0)), full.naive(q, k, v))


@each_form
def test_off_by_one_is_stable_and_not_blind_to_a_constant(form) -> None:
    """All scores 3,000 and 0: weights of 1/7 and 1/8; far below 0: nothing."""
    q, k, v, _ = made()
    zero = torch.zeros(3, dtype=torch.float64)
    q[:] = 1.0
    mean = v.mean(2, keepdim=True).expand(-1, -1, 5, -1)
    for each, share in ((3000.0, 1.0), (0.0, 7 / 8), (-3000.0, 0.0)):
        k[:] = each * 11**-0.5
        torch.testing.assert_close(form(q, k, v, zero), share * mean)


@each_form
def test_parts_are_merged_with_the_sink_counted_once(form) -> None:
    q, k, v, sink = made()
    parts = [(k[:, :, :3], v[:, :, :3]), (k[:, :, 3:], v[:, :, 3:])]
    outs = [full.naive(q, *part) for part in parts]
    first, second = (log_sums(q, part) for part, _ in parts)
    whole = torch.logaddexp(first, second)
    merged = (first - whole).exp() * outs[0] + (second - whole).exp() * outs[1]
    once = torch.sigmoid(whole - sink[:, None, None]) * merged
    torch.testing.assert_close(form(q, k, v, sink), once)


@each_form
def test_the_share_of_the_sink_is_noted(form) -> None:
    q, k, v, sink = made()
    with record() as notes:
        out = form(q, k, v, sink)
    weights, beside = notes.last("weights"), notes.last("sink")
    torch.testing.assert_close(weights.sum(-1) + beside[..., 0], torch.ones(2, 3, 5).double())
    torch.testing.assert_close(weights @ v, out)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_watched_are_the_weights_of_keys(form: str) -> None:
    """Rows sum to less than one; the rest is the sink's."""
    layer = SinkAttention(12, 3, causal=True, form=form).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    with attnlab.watch(layer) as seen:
        layer(x)
    (one,) = seen
    assert (one.weights.sum(-1) < 1).all()
    torch.testing.assert_close(layer.heads.merge(one.weights @ one.values), layer(x))


def test_a_row_sees_the_sink_alone_or_nothing() -> None:
    """Gradients too are those of a row that is zero."""
    q, k, v, sink = (x.requires_grad_() for x in made())
    for form in FORMS.values():
        out = form(q, k, v, sink, mask=~patterns.full())
        assert not out.any()
        assert not any(grad.any() for grad in torch.autograd.grad(out.sum(), (q, k, v, sink)))


def test_the_logit_is_learned_or_zero() -> None:
    learned, zero = (attnlab.build("sink", dim=12, heads=3, logit=x) for x in ("learned", "zero"))
    assert [name for name, _ in learned.named_parameters() if "sink" in name] == ["sink"]
    assert not any("sink" in name for name in zero.state_dict())
    assert not zero.sink.any()
    with pytest.raises(ValueError, match="logit"):
        attnlab.build("sink", dim=12, heads=3, logit="one")
    with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
        naive(*made(h=3, g=2))
    with pytest.raises(ValueError, match=r"`sink` .* h is 2, expected 3"):
        naive(*made()[:3], torch.zeros(2).double())


# ---- Hugging Face


class Turning(Rotation):
    """Turns by the cosines and sines of a module of Transformers."""

    def __init__(self, turning, apply, head_dim: int) -> None:
        super().__init__()
        self.turning, self.apply_to, self.head_dim = turning, apply, head_dim

    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        return self.apply_to(q, q, *self.turning(q, positions[None]))[0]

    keys = queries


def test_equals_hugging_face() -> None:
    """The attention of gpt-oss with its weights, by each form and step by step."""
    from transformers.models.gpt_oss import modeling_gpt_oss as theirs_

    torch.manual_seed(0)
    config = theirs_.GptOssConfig(
        hidden_size=24, num_attention_heads=6, num_key_value_heads=2, head_dim=4,
        num_hidden_layers=1, layer_types=["full_attention"], attention_bias=True,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = theirs_.GptOssAttention(config, 0).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    turning = theirs_.GptOssRotaryEmbedding(config)
    x, at = torch.randn(2, 9, 24, dtype=torch.float64), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(x, turning(x, at), hidden)
    for form in FORMS:
        ours = attnlab.build(
            "sink", dim=24, heads=6, kv_heads=2, causal=True, form=form, bias=True,
            positions=Turning(turning, theirs_.apply_rotary_pos_emb, 4),
        ).double()  # fmt: skip
        for mine, its in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            getattr(ours.heads, mine).load_state_dict(getattr(theirs, f"{its}_proj").state_dict())
        ours.sink.data = theirs.sinks.data
        torch.testing.assert_close(ours(x), expected, rtol=1e-9, atol=1e-9)
        first, state = ours.step(x[:, :4])
        rest, _ = ours.step(x[:, 4:], state)
        torch.testing.assert_close(torch.cat((first, rest), dim=1), expected, rtol=1e-9, atol=1e-9)
