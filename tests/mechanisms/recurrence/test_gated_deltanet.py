"""Gated DeltaNet: the rule in plain steps, its limits, Qwen3-Next's layer, extreme gates."""

import pytest
import torch
from torch import Tensor

from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import deltanet, gated_deltanet, retention
from attnlab.mechanisms.recurrence.gated_deltanet import (
    FORMS,
    GatedDeltaNet,
    GatedDeltaNetOptions,
)
from tests.mechanisms.recurrence.delta_rules import close, orthonormal, plain_rule, units
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
ALWAYS, NEVER = 1000.0, -1000.0  # steps whose sigmoids are 1 and 0


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (d, d, 5)]
    return [*rows, *torch.randn(2, 2, 3, n).double(), torch.randn(3).double()]


def layer(form: str = "chunked", **more) -> GatedDeltaNet:
    torch.manual_seed(2)
    options = GatedDeltaNetOptions(chunk=3)
    return GatedDeltaNet(12, 3, form=form, options=options, **more).double()


def decays(decay: Tensor, log_A: Tensor) -> Tensor:
    return (-log_A.exp()[:, None] * (1 + decay.exp()).log()).exp()


@EVERY
@pytest.mark.parametrize("negative", [False, True])
def test_the_rule_in_plain_steps(form, negative: bool) -> None:
    q, k, v, step, decay, log_A = given = drawn()
    b, a = torch.sigmoid(step) * (1 + negative), decays(decay, log_A)
    wanted = plain_rule(units(q) / 2, units(k), v, b, a)
    options = GatedDeltaNetOptions(chunk=4, negative=negative)
    torch.testing.assert_close(form(*given, options=options), wanted)


@EVERY
def test_without_fading_it_is_deltanet(form) -> None:
    q, k, v, step, decay, log_A = drawn()
    found = form(q, k, v, step, decay + NEVER, log_A)
    torch.testing.assert_close(found, deltanet.naive(q, k, v, step))


@EVERY
def test_a_whole_step_is_read_back_whatever_fades(form) -> None:
    _, k, v, step, *rest = drawn()
    close(form(k, k, v, step + ALWAYS, *rest) * 2, v)


@EVERY
def test_orthonormal_keys_and_a_constant_decay_are_retention(form) -> None:
    """b = 1 and as many keys as the width: nothing is erased, and γ is retention's."""
    q, _, v, step, _, _ = drawn(4)
    k, gamma = orthonormal(4, 4), 1 - 2.0 ** (-5 - torch.arange(3))
    log_A = (-gamma.log()).log().double()
    one = torch.full_like(step, 1.0).expm1().log()  # its softplus is 1
    found = form(q, k, v, step + ALWAYS, one, log_A)
    close(found, retention.naive(units(q) / 2, k, v))


@EVERY
def test_what_fades_at_once_leaves_the_token_alone(form) -> None:
    """Decays of e^(-10²⁰): o_t = b (q · k) v, and no gradient is NaN."""
    q, k, v, step, decay, _ = (x.requires_grad_() for x in drawn())
    out = form(q, k, v, step, decay + 1, torch.full((3,), 46.0).double())
    alone = ((units(q) / 2) * units(k)).sum(-1, keepdim=True) * torch.sigmoid(step)[..., None] * v
    torch.testing.assert_close(out, alone)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, step, decay)):
        assert torch.isfinite(grad).all()


def test_the_decayed_state_is_erased_not_the_old_one() -> None:
    """Measured before the fading the error is another, although the transition is the same."""
    q, k, v, step, decay, log_A = given = drawn()
    a, b = decays(decay, log_A)[..., None], torch.sigmoid(step)[..., None]
    found, k, S, out = gated_deltanet.naive(*given), units(k), torch.zeros(2, 3, 4, 5).double(), []
    for t in range(13):
        key, error = k[:, :, t, None], v[:, :, t, None] - k[:, :, t, None] @ S
        S = a[:, :, t, None] * S + b[:, :, t, None] * key.mT @ error
        out.append(units(q)[:, :, t, None] / 2 @ S)
    assert (torch.cat(out, 2) - found).abs().max() > 0.1


def qwen(**more):
    pytest.importorskip("transformers.models.qwen3_next")
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    torch.manual_seed(3)
    config = Qwen3NextConfig(
        hidden_size=13, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=5,
        linear_value_head_dim=7, linear_conv_kernel_dim=4, num_hidden_layers=1,
    )  # fmt: skip
    theirs = Qwen3NextGatedDeltaNet(config, 0)
    with torch.no_grad():
        for each in theirs.parameters():
            each.add_(0.3 * torch.randn_like(each))
    mine = GatedDeltaNet(13, 2, head_dim=5, value_dim=7, value_heads=6, **more)
    return theirs, mine


def take(mine: GatedDeltaNet, theirs) -> None:
    """Copy the weights of Qwen3-Next's layer, whose projections lie head by head: q, k, the values
    of three heads, their gates; and three steps, three decays."""
    with torch.no_grad():
        parts = theirs.in_proj_qkvz.weight.unflatten(0, (2, -1)).split([5, 5, 21, 21], dim=1)
        q, k, v, z = (part.flatten(0, 1) for part in parts)
        b, a = (x.flatten(0, 1) for x in theirs.in_proj_ba.weight.unflatten(0, (2, -1)).split(3, 1))
        mine.into.weight.copy_(torch.cat((q, k, v)))
        mine.taps.copy_(theirs.conv1d.weight[:, 0].flip(1))
        mine.steps.weight.copy_(b)
        mine.decays.weight.copy_(a)
        mine.decays.bias.copy_(theirs.dt_bias)
        mine.log_A.copy_(theirs.A_log)
        mine.heads.output.gate.weight.copy_(z)
        mine.heads.output.gain.copy_(theirs.norm.weight)
        mine.heads.output.project.weight.copy_(theirs.out_proj.weight)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_layer_of_qwen3_next(form: str) -> None:
    """With its weights copied, three heads of values to each key, and padding at the left."""
    theirs, mine = qwen(form=form)
    take(mine, theirs)
    x = torch.randn(2, 67, 13)
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-3, atol=1e-4)
    real = torch.arange(67) >= torch.tensor([[0], [20]])
    wanted = theirs(x, attention_mask=real.long())
    torch.testing.assert_close(mine(x, real)[real], wanted[real], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form, value_heads=6, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _ = made._projected(made.into(x), None)
    eye = torch.eye(11).double().expand(2, 6, -1, -1)
    torch.testing.assert_close(found.matrix, gated_deltanet.naive(q, k, eye, *made._gates(x)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form, value_heads=6))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = GatedDeltaNet(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_heads_of_values_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="heads=3 does not divide value_heads=4"):
        GatedDeltaNet(12, 3, value_heads=4)
