"""Kimi Delta Attention: the rule in plain steps, its limits, Kimi Linear's layer, extreme gates."""

import pytest
import torch
from torch import Tensor

from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import deltanet, gated_deltanet, kimi_delta
from attnlab.mechanisms.recurrence.kimi_delta import (
    FORMS,
    KimiDelta,
    KimiDeltaOptions,
)
from tests.mechanisms.recurrence.delta_rules import close, plain_rule, units
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
ALWAYS, NEVER = 1000.0, -1000.0  # steps whose sigmoids are 1 and 0


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (d, d, 5)]
    step, decay = torch.randn(2, 3, n).double(), torch.randn(2, 3, n, d).double()
    return [*rows, step, decay, torch.randn(3).double()]


def layer(form: str = "chunked", **more) -> KimiDelta:
    torch.manual_seed(2)
    options = KimiDeltaOptions(chunk=3)
    return KimiDelta(12, 3, form=form, options=options, **more).double()


def decays(decay: Tensor, log_A: Tensor) -> Tensor:
    return (-log_A.exp()[:, None, None] * (1 + decay.exp()).log()).exp()


@EVERY
@pytest.mark.parametrize("negative", [False, True])
def test_the_rule_in_plain_steps(form, negative: bool) -> None:
    q, k, v, step, decay, log_A = given = drawn()
    b, a = torch.sigmoid(step) * (1 + negative), decays(decay, log_A)
    wanted = plain_rule(units(q) / 2, units(k), v, b, a)
    options = KimiDeltaOptions(chunk=4, negative=negative)
    torch.testing.assert_close(form(*given, options=options), wanted)


@EVERY
def test_without_fading_it_is_deltanet(form) -> None:
    q, k, v, step, decay, log_A = drawn()
    found = form(q, k, v, step, decay + NEVER, log_A)
    torch.testing.assert_close(found, deltanet.naive(q, k, v, step))


@EVERY
def test_equal_channels_are_gated_deltanet(form) -> None:
    q, k, v, step, decay, log_A = drawn()
    found = form(q, k, v, step, decay[..., :1].expand_as(k), log_A)
    wanted = gated_deltanet.naive(q, k, v, step, decay[..., 0], log_A)
    torch.testing.assert_close(found, wanted)


@EVERY
def test_a_whole_step_is_read_back_whatever_fades(form) -> None:
    _, k, v, step, *rest = drawn()
    close(form(k, k, v, step + ALWAYS, *rest) * 2, v)


@EVERY
def test_each_channel_fades_by_itself(form) -> None:
    """A channel that keeps all and one that forgets at once, each with a key of its own."""
    k = torch.eye(2).double().expand(1, 1, 2, 2)
    v = torch.tensor([[3.0], [5.0]]).double()[None, None]
    decay = torch.tensor([NEVER, ALWAYS]).double().expand(1, 1, 2, 2)
    q, step = torch.ones(1, 1, 2, 2).double(), torch.full((1, 1, 2), ALWAYS).double()
    keys = torch.cat((k.flip(2), k), dim=2)  # 1, 0, 0, 1 by channel
    out = form(
        torch.cat((q, q), 2), keys, torch.cat((v, v), 2), torch.cat((step, step), 2),
        torch.cat((decay, decay), 2), torch.zeros(1).double(),
    )  # fmt: skip
    close(out[0, 0, :, 0] * 2, torch.tensor([3.0, 5.0, 3.0, 3.0 + 5.0]).double())


@EVERY
def test_what_fades_at_once_leaves_the_token_alone(form) -> None:
    """Decays of e^(-10²⁰) in every channel: o_t = b (q · k) v, and no gradient is NaN."""
    q, k, v, step, decay, _ = (x.requires_grad_() for x in drawn())
    out = form(q, k, v, step, decay + 1, torch.full((3,), 46.0).double())
    alone = ((units(q) / 2) * units(k)).sum(-1, keepdim=True) * torch.sigmoid(step)[..., None] * v
    torch.testing.assert_close(out, alone)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, step, decay)):
        assert torch.isfinite(grad).all()


def test_the_order_of_fading_and_erasing_matters() -> None:
    """diag(a) (I - b k kᵀ) S + b k vᵀ is another rule."""
    q, k, v, step, decay, log_A = given = drawn()
    a, b = decays(decay, log_A), torch.sigmoid(step)[..., None]
    found, k, S, out = kimi_delta.naive(*given), units(k), torch.zeros(2, 3, 4, 5).double(), []
    for t in range(13):
        key = k[:, :, t, None]
        S = a[:, :, t, :, None] * (S - b[:, :, t, None] * key.mT @ (key @ S))
        S = S + b[:, :, t, None] * key.mT @ v[:, :, t, None]
        out.append(units(q)[:, :, t, None] / 2 @ S)
    assert (torch.cat(out, 2) - found).abs().max() > 0.01


def kimi(**more):
    pytest.importorskip("transformers.models.kimi_linear")
    from transformers.models.kimi_linear.configuration_kimi_linear import KimiLinearConfig
    from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

    torch.manual_seed(3)
    config = KimiLinearConfig(
        hidden_size=13, num_hidden_layers=1, linear_head_dim=5, linear_num_heads=3,
        linear_conv_kernel_dim=4,
    )  # fmt: skip
    theirs = KimiLinearDeltaAttention(config, 0)
    with torch.no_grad():
        for each in theirs.parameters():
            each.copy_(0.5 * torch.randn_like(each))
    return theirs, KimiDelta(13, 3, head_dim=5, **more)


def take(mine: KimiDelta, theirs) -> None:
    """Copy the weights of Kimi Linear's layer."""
    gate = theirs.forget_gate
    with torch.no_grad():
        qkv = (theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight)
        mine.into.weight.copy_(torch.cat(qkv))
        mine.taps.copy_(theirs.conv1d.weight[:, 0].flip(1))
        mine.steps.weight.copy_(theirs.b_proj.weight)
        mine.fade.weight.copy_(gate.f_a_proj.weight)
        mine.decays.weight.copy_(gate.f_b_proj.weight)
        mine.decays.bias.copy_(gate.dt_bias)
        mine.log_A.copy_(gate.A_log.flatten())
        mine.heads.output.gate[0].weight.copy_(theirs.g_a_proj.weight)
        mine.heads.output.gate[1].weight.copy_(theirs.g_b_proj.weight)
        mine.heads.output.gain.copy_(theirs.o_norm.weight)
        mine.heads.output.project.weight.copy_(theirs.o_proj.weight)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_layer_of_kimi_linear(form: str) -> None:
    """With its weights copied, and padding at the left."""
    theirs, mine = kimi(form=form)
    take(mine, theirs)
    mine.heads.output.epsilon = theirs.o_norm.variance_epsilon
    x = torch.randn(2, 67, 13)
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-3, atol=1e-4)
    real = torch.arange(67) >= torch.tensor([[0], [20]])
    wanted = theirs(x, attention_mask=real.long())
    torch.testing.assert_close(mine(x, real)[real], wanted[real], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = made.taken(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    torch.testing.assert_close(found.matrix, kimi_delta.naive(q, k, eye, *gates))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = KimiDelta(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few
