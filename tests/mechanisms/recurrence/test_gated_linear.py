"""GLA: the rule and the layer in plain steps, its limits, overflow, HGRN2's averages."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import gated_linear, kimi_delta, retention
from attnlab.mechanisms.recurrence.gated_linear import (
    FORMS,
    GatedLinear,
    GatedLinearOptions,
)
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
RULES = pytest.mark.parametrize("rule", ["gla", "hgrn2"])
KEPT = 1000.0  # a logit whose sigmoid is 1


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, n, width).double() for width in (d, d, 5, d)]


def layer(form: str = "chunked", rule: str = "gla", **more) -> GatedLinear:
    torch.manual_seed(2)
    options = GatedLinearOptions(chunk=3, rule=rule, low=0.25 * (rule == "hgrn2"))
    return GatedLinear(12, 3, form=form, options=options, **more).double()


def plain(q: Tensor, k: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """o_t = q_t S_t with S_t = diag(a_t) S_{t-1} + k_t v_tᵀ, entry by entry."""
    out = np.zeros(v.shape)
    for row, head in np.ndindex(*q.shape[:2]):
        S = np.zeros((q.shape[3], v.shape[3]))
        for t in range(q.shape[2]):
            for r, s in np.ndindex(*S.shape):
                S[r, s] = a[row, head, t, r] * S[r, s] + k[row, head, t, r] * v[row, head, t, s]
            out[row, head, t] = q[row, head, t].numpy() @ S
    return torch.from_numpy(out)


@EVERY
@pytest.mark.parametrize(("temperature", "low"), [(None, 0.0), (2.0, 0.0), (1.0, 0.3)])
def test_the_rule_in_plain_steps(form, temperature: float | None, low: float) -> None:
    q, k, v, decay = given = drawn()
    a = (low + (1 - low) * torch.sigmoid(decay)) ** (1 / (temperature or 16))
    options = GatedLinearOptions(temperature=temperature, low=low, chunk=4)
    torch.testing.assert_close(form(*given, options=options), plain(q / 2, k, v, a))


@EVERY
def test_without_fading_it_is_linear_attention_without_a_denominator(form) -> None:
    q, k, v, decay = drawn()
    torch.testing.assert_close(form(q, k, v, decay + KEPT), (q @ k.mT / 2).tril() @ v)


@EVERY
def test_a_constant_decay_is_retention(form) -> None:
    q, k, v, _ = drawn()
    gamma = 1 - 2.0 ** (-5 - torch.arange(3).double())
    decay = torch.logit(gamma)[:, None, None].expand(2, 3, 13, 4)
    found = form(q, k, v, decay, options=GatedLinearOptions(temperature=1.0))
    torch.testing.assert_close(found, retention.naive(q / 2, k, v))


def test_kimi_delta_that_erases_nothing_writes_less() -> None:
    """A small step b of Kimi Delta Attention reads like gated linear attention with keys b k."""
    q, k, v, decay = drawn()
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    rate = -F.logsigmoid(decay) / 16  # what Kimi's softplus and rate 1 are to give
    step = torch.full((2, 3, 13), -18.0).double()
    wanted = kimi_delta.naive(q, k, v, step, rate.expm1().log(), torch.zeros(3).double())
    found = gated_linear.naive(q, math.exp(-18) * k, v, decay)
    torch.testing.assert_close(found / math.exp(-18), wanted / math.exp(-18), rtol=0, atol=1e-5)


@EVERY
@pytest.mark.parametrize("logit", [-1e20, 1e20])
def test_gates_that_are_shut_or_open(form, logit: float) -> None:
    """Decays of e^(-6 · 10¹⁸) and of 1: a token alone or the sum of all, and no gradient is NaN."""
    q, k, v, decay = (x.requires_grad_() for x in drawn())
    out = form(q, k, v, decay + logit)
    scores = q @ k.mT / 2
    weights = scores.tril() if logit > 0 else scores.tril().triu()
    torch.testing.assert_close(out, weights @ v)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, decay)):
        assert torch.isfinite(grad).all()


@EVERY
def test_the_map_where_two_factors_overflow(form) -> None:
    """400 tokens whose log decay is -2 in every channel: (Q e^g) (K e^(-g))ᵀ is not finite."""
    q, k, v, decay = drawn(400)
    log_a = torch.full_like(decay, -2.0)
    g = log_a.cumsum(-2)
    assert not torch.isfinite((q * g.exp()) @ (k * (-g).exp()).mT).all()
    logits = -torch.full_like(decay, 2.0).expm1().log()  # their log sigmoid is -2
    found = form(q, k, v, logits, options=GatedLinearOptions(temperature=1.0))
    fading = (-2.0 * (torch.arange(400)[:, None] - torch.arange(400))).double().exp()
    torch.testing.assert_close(found, (q @ k.mT / 2 * fading).tril() @ v)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 64])
def test_chunks_of_any_size(size: int) -> None:
    given = drawn()
    found = gated_linear.chunked(*given, options=GatedLinearOptions(chunk=size))
    torch.testing.assert_close(found, gated_linear.naive(*given))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17])
def test_pairs_one_by_one(n: int) -> None:
    """Each pair as its own sum of exponentials, where halves are whole and where they are not."""
    q, k, _, decay = drawn(n)
    g = F.logsigmoid(decay).cumsum(-2)
    each = q[..., :, None, :] * k[..., None, :, :] * (g[..., :, None, :] - g[..., None, :, :]).exp()
    found = chunks.products(q, k, F.logsigmoid(decay))
    torch.testing.assert_close(found, each.sum(-1).tril())


# ---- HGRN2


@pytest.mark.parametrize("form", FORMS)
def test_what_hgrn2_holds_are_averages_of_the_values(form: str) -> None:
    """Weights of a row of S are at least 0, and with what is left of its beginning sum to 1."""
    made = layer(form, "hgrn2")
    x = sequence(made)
    _, k, v, f = made.taken(x)
    a = 0.25 + 0.75 * torch.sigmoid(f)
    torch.testing.assert_close(k, 1 - a)
    one = torch.eye(4).double().expand(2, 3, 4, 4)[:, :, :1]  # reads the first channel
    reads, ones = one.expand(-1, -1, 11, -1) * 2, torch.ones_like(v)
    found = made.forms[form](reads, k, ones, f)
    left = a[..., 0].cumprod(dim=-1)[..., None]
    torch.testing.assert_close(found, (1 - left).expand_as(found))
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    assert (made.forms[form](reads, k, eye, f) >= 0).all()


def test_what_a_channel_keeps_at_least() -> None:
    """A bound of 0.25 stays where the sigmoid is 0."""
    options = GatedLinearOptions(rule="hgrn2", low=0.25)
    found = gated_linear.log_decays(torch.tensor([-1e20, -200.0, 0.0, 200.0]), options)
    torch.testing.assert_close(found.exp(), torch.tensor([0.25, 0.25, 0.625, 1.0]))


# ---- the layer


def rms(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def plain_layer(made: GatedLinear, x: Tensor) -> Tensor:
    """The layer with its own weights, in the words of the released code."""
    split = [part.unflatten(-1, (3, 4)).transpose(1, 2) for part in made.into(x).chunk(3, dim=-1)]
    output = made.heads.output
    if made.options.rule == "hgrn2":
        q, f, v = split
        a = 0.25 + 0.75 * torch.sigmoid(f)
        out = plain((q * torch.sigmoid(q) / 2).detach(), (1 - a).detach(), v.detach(), a.detach())
        return (rms(out.transpose(1, 2).flatten(2)) * output.gain) @ output.project.weight.T
    q, k, v = split
    logits = x @ made.fade.weight.T @ made.decays.weight.T + made.decays.bias
    a = torch.sigmoid(logits).pow(1 / 16).unflatten(-1, (3, 4)).transpose(1, 2)
    out = plain((q / 2).detach(), k.detach(), v.detach(), a.detach())
    gate = (x @ output.gate.weight.T).unflatten(-1, (3, 4))
    gated = rms(out.transpose(1, 2)) * output.gain * gate * torch.sigmoid(gate)
    return gated.flatten(2) @ output.project.weight.T


@RULES
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_layer_in_plain_steps(form: str, rule: str) -> None:
    made = layer(form, rule)
    made.heads.output.gain.add_(torch.randn_like(made.heads.output.gain))
    x = sequence(made)
    torch.testing.assert_close(made(x), plain_layer(made, x))
    assert made.step(x)[1].inputs.numel() == 0  # there is no convolution


@RULES
@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str, rule: str) -> None:
    made = layer(form, rule, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, decay = made.taken(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    wanted = gated_linear.naive(q, k, eye, decay, options=made.options)
    torch.testing.assert_close(found.matrix, wanted)


@RULES
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str, rule: str) -> None:
    promise(layer(form, rule))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = GatedLinear(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 should be positive"),
        ({"temperature": math.inf}, "temperature should be a finite number, got inf"),
        ({"low": 1.0}, "low=1.0 should be at least 0 and below 1"),
        ({"low": -0.1}, "low=-0.1 should be at least 0 and below 1"),
        ({"rule": "hgrn2", "rank": 4}, "rank=4 is of GLA's decays"),
        ({"rule": "hgrn"}, "rule"),
    ],
)
def test_options_that_are_no_decays(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GatedLinearOptions(**given)
