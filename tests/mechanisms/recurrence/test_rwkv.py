"""RWKV-4: its sum in plain numbers, Hugging Face's layers, identities, large keys, the state."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.mechanisms.recurrence import rwkv
from attnlab.mechanisms.recurrence.rwkv import FORMS, RWKV, ChannelMixing
from tests.mechanisms.recurrence.recurrences import PROMISES, padding_is_skipped, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(n: int = 13, dim: int = 5) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(s, dtype=torch.float64) for s in ((2, n, dim), (2, n, dim), dim, dim)]


def layer(**options) -> RWKV:
    torch.manual_seed(2)
    made = RWKV(7, **options).double()
    with torch.no_grad():
        made.decay.normal_()
        made.shift_receptance.uniform_()
    return made


# ---- the sum


@EVERY
def test_the_sum_in_plain_numbers(form) -> None:
    k, v, decay, bonus = drawn()
    out = form(k, v, decay, bonus)
    for b, i, c in ((0, 0, 0), (0, 1, 1), (1, 2, 3), (1, 7, 4), (0, 12, 2)):
        w, top, bottom = math.exp(decay[c]), 0.0, 0.0
        for j in range(i):
            weight = math.exp(-(i - 1 - j) * w + k[b, j, c])
            top, bottom = top + weight * v[b, j, c].item(), bottom + weight
        newest = math.exp(bonus[c] + k[b, i, c])
        expected = (top + newest * v[b, i, c].item()) / (bottom + newest)
        assert out[b, i, c].item() == pytest.approx(expected, rel=1e-12)


def test_hugging_faces_loop() -> None:
    modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    k, v, decay, bonus = (x.float() for x in drawn(n=67))
    expected, sums = modeling.rwkv_linear_attention_cpu(decay, bonus, k, v, return_state=True)
    for name, form in FORMS.items():
        with record() as notes:
            torch.testing.assert_close(form(k, v, decay, bonus), expected, rtol=1e-5, atol=1e-5)
        if name != "naive":
            values, weights, largest = notes["state"][0]
            scale = (largest - sums[2]).exp()  # who divides by what is free; the sums are not
            torch.testing.assert_close(values * scale, sums[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(weights * scale, sums[1], rtol=1e-4, atol=1e-5)


def test_hugging_faces_layers() -> None:
    """Time mixing and channel mixing, with their token shifts, gates and projections."""
    modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    from transformers import RwkvConfig

    config = RwkvConfig(hidden_size=7, attention_hidden_size=7, intermediate_size=19)
    mine, own = layer().float(), modeling.RwkvSelfAttention(config)
    pairs = {
        own.time_decay: mine.decay,
        own.time_first: mine.bonus,
        own.time_mix_key: mine.shift_key,
        own.time_mix_value: mine.shift_value,
        own.time_mix_receptance: mine.shift_receptance,
        own.key.weight: mine.key.weight,
        own.value.weight: mine.heads.value.weight,
        own.receptance.weight: mine.receptance.weight,
        own.output.weight: mine.heads.output.weight,
    }
    channel, feed = ChannelMixing(7, hidden=19), modeling.RwkvFeedForward(config)
    pairs |= {
        feed.time_mix_key: channel.shift_key,
        feed.time_mix_receptance: channel.shift_receptance,
        feed.key.weight: channel.key.weight,
        feed.receptance.weight: channel.receptance.weight,
        feed.value.weight: channel.value.weight,
    }
    x = sequence(mine).float()
    with torch.no_grad():
        channel.shift_receptance.uniform_()
        for theirs, ours in pairs.items():
            theirs.copy_(ours.view(theirs.shape))
        torch.testing.assert_close(mine(x), own(x)[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(channel(x), feed(x)[0], rtol=1e-5, atol=1e-6)


def test_hugging_faces_initial_values() -> None:
    """Of the first of many layers; the bonus is not compared, which they set to ones."""
    modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    from transformers import RwkvConfig

    config = RwkvConfig(vocab_size=3, hidden_size=7, num_hidden_layers=2)
    first = modeling.RwkvModel(config).blocks[0]
    theirs, mine, channel = first.attention, RWKV(7), ChannelMixing(7)
    for own, wanted in (
        (mine.decay, theirs.time_decay),
        (mine.shift_key, theirs.time_mix_key),
        (mine.shift_value, theirs.time_mix_value),
        (mine.shift_receptance, theirs.time_mix_receptance),
        (channel.shift_key, first.feed_forward.time_mix_key),
        (channel.shift_receptance, first.feed_forward.time_mix_receptance),
    ):
        torch.testing.assert_close(own, wanted.flatten())


# ---- identities


@EVERY
def test_adding_to_all_keys_of_a_channel_changes_nothing(form) -> None:
    k, v, decay, bonus = drawn()
    moved = form(k + torch.randn(5, dtype=torch.float64) * 30, v, decay, bonus)
    torch.testing.assert_close(moved, form(k, v, decay, bonus))


@EVERY
def test_without_decay_and_bonus_it_is_a_running_softmax_average(form) -> None:
    k, v, _, _ = drawn()
    out = form(k, v, torch.full((5,), -torch.inf).double(), torch.zeros(5).double())
    expected = (k.exp() * v).cumsum(1) / k.exp().cumsum(1)
    torch.testing.assert_close(out, expected)


@EVERY
def test_under_a_large_decay_two_tokens_are_left(form) -> None:
    k, v, _, bonus = drawn()
    out = form(k, v, torch.full((5,), 12.0).double(), bonus)
    older, newest = k[:, :-1].exp(), (k + bonus)[:, 1:].exp()
    expected = (older * v[:, :-1] + newest * v[:, 1:]) / (older + newest)
    torch.testing.assert_close(out[:, 1:], expected)
    torch.testing.assert_close(out[:, 0], v[:, 0])


@EVERY
def test_keys_far_beyond_what_an_exponential_holds(form) -> None:
    """One key above all others takes everything, however large both are, until it has decayed."""
    for size in (1e2, 1e4, 1e30):
        k, v, _, bonus = (x.float().requires_grad_() for x in drawn())
        spike = torch.zeros_like(k)
        spike[:, 4] = 1
        for sign in (1, -1):
            out = form(k + sign * size * (1 + spike), v, torch.full((5,), -3.0), bonus)
            grads = torch.autograd.grad(out.sum(), (k, v, bonus))
            assert all(x.isfinite().all() for x in (out, *grads))
            if sign == 1:
                torch.testing.assert_close(out[:, 4:], v[:, 4:5].expand_as(out[:, 4:]))


@EVERY
def test_a_rate_that_is_no_number_of_float32(form) -> None:
    """Beyond log w = 88: as under any large decay, in values and in gradients."""
    k, v, _, bonus = (x.float() for x in drawn())
    decays = [torch.full((5,), log_w, requires_grad=True) for log_w in (12.0, 89.0, 1e4)]
    expected, *outs = (form(k, v, decay, bonus) for decay in decays)
    for out, decay in zip(outs, decays[1:], strict=True):
        torch.testing.assert_close(out, expected)
        assert torch.autograd.grad(out.sum(), decay)[0].isfinite().all()


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 4096 // 16 + 3])
@pytest.mark.parametrize("chunk", [1, 5, 64, 1000])
def test_any_length_by_any_chunk(n: int, chunk: int) -> None:
    given = drawn(n)
    torch.testing.assert_close(rwkv.chunked(*given, chunk=chunk), rwkv.recurrent(*given))


# ---- the map


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact_and_stochastic_up_to_the_gate(form: str) -> None:
    """Linear in the values: one n × n matrix per channel, each row σ(r) times weights."""
    made = layer(form=form)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    with record() as notes:
        layer(form="naive")(x)
    weights, gate = notes["weights"][0], notes["gate"][0]
    assert weights.shape == (2, 7, 11, 11)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 7, 11).double())
    assert (weights.tril() == weights).all()
    assert (weights.diagonal(dim1=-2, dim2=-1) > 0).all()
    torch.testing.assert_close(found.matrix, gate.mT[..., None] * weights)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form=form, chunk=3))


def test_channel_mixing_by_any_cut_and_with_padding() -> None:
    torch.manual_seed(2)
    made = ChannelMixing(7).double()
    x, state, parts = sequence(made), None, []
    for piece in x.split([3, 1, 7], dim=1):
        out, state = made.step(piece, state)
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), made(x))
    padding_is_skipped(made)
    with pytest.raises(ValueError, match=r"ChannelMixing.step: `state` should be Float\[b dim\]"):
        made.step(x, state[:1])


def test_first_channels_forget_slowly_and_last_ones_fast() -> None:
    decay = RWKV(64).decay.exp()
    assert (decay.diff() > 0).all()
    assert decay[0].item() == pytest.approx(math.exp(-5))
    assert decay[-1].item() == pytest.approx(math.exp(3))
