"""RWKV-7: the rule in plain steps, its limits, the whole layer, the transition, RWKV-6."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import deltanet, rwkv7
from attnlab.mechanisms.recurrence.rwkv7 import FORMS, RWKV7, RWKV7Options
from tests.mechanisms.recurrence.delta_rules import orthonormal, units
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
ALWAYS, NEVER = 1000.0, -1000.0  # logits whose sigmoids are 1 and 0
LEAST = np.exp(-np.exp(-0.5))  # the least that a channel keeps


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (d, d, 5, d, d)]
    return [*rows, torch.randn(3, d).double(), torch.randn(3, d).double()]


def layer(form: str = "chunked", **more) -> RWKV7:
    torch.manual_seed(2)
    options = RWKV7Options(chunk=3, rank=2)
    made = RWKV7(12, 3, form=form, options=options, **more).double()
    with torch.no_grad():
        made.bonus.normal_()
        made.key_mix.normal_()
    return made


def plain_steps(
    q: Tensor, k: Tensor, v: Tensor, read: Tensor, rate: Tensor, kept: Tensor
) -> Tensor:
    """Each entry of S by itself, in NumPy: what a direction reads is taken out, channels fade."""
    out = np.zeros(v.shape)
    for row, head in np.ndindex(*q.shape[:2]):
        S = np.zeros((v.shape[3], q.shape[3]))  # as the paper has it: values by keys
        for t in range(q.shape[2]):
            r, key, value, kappa, a, w = (
                x[row, head, t].detach().numpy() for x in (q, k, v, read, rate, kept)
            )
            held = S @ kappa
            for channel in range(len(r)):
                S[:, channel] *= w[channel]
                S[:, channel] -= a[channel] * kappa[channel] * held
                S[:, channel] += key[channel] * value
            out[row, head, t] = S @ r
    return torch.from_numpy(out)


def ruled(k: Tensor, rate: Tensor, decay: Tensor, scale: Tensor, mix: Tensor) -> list[Tensor]:
    a = torch.sigmoid(rate)
    keys = k * (1 - mix[:, None]) + k * mix[:, None] * a
    return [keys, units(k * scale[:, None]), a, (-torch.sigmoid(decay) / np.e**0.5).exp()]


@EVERY
def test_the_rule_in_plain_steps(form) -> None:
    q, k, v, *more = given = drawn()
    keys, read, a, w = ruled(k, *more)
    torch.testing.assert_close(form(*given), plain_steps(q, keys, v, read, a, w))


@pytest.mark.parametrize("chunk", [1, 3, 5, 13, 64])
def test_chunks_of_any_size(chunk: int) -> None:
    given = [x.requires_grad_() for x in drawn()]
    wanted = rwkv7.naive(*given)
    found = rwkv7.chunked(*given, options=RWKV7Options(chunk=chunk))
    torch.testing.assert_close(found, wanted)
    both = (torch.autograd.grad(out.square().sum(), given) for out in (found, wanted))
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs)


# ---- limits


@EVERY
def test_without_fading_it_is_deltanet(form) -> None:
    """w = 1, κ̂ along the key, one rate for all channels: the key of length 1 writes a v."""
    q, k, v, rate, decay, *_ = drawn()
    step, one = rate[..., :1], torch.ones(3, 4).double()
    unit = units(k)
    found = form(
        q / 2, unit, torch.sigmoid(step) * v, step.expand_as(k), decay + NEVER, 1e3 * one, 0 * one
    )
    kappa = unit / (unit.square().sum(-1, keepdim=True)).sqrt()
    wanted = deltanet.naive(q * 1e6, kappa * 1e6, v, step[..., 0])
    length = q.square().sum(-1, keepdim=True).sqrt()
    torch.testing.assert_close(found, wanted * length, rtol=1e-5, atol=1e-5)


@EVERY
def test_without_rates_the_state_only_fades(form) -> None:
    """a = 0: gated linear attention, M_ij = Σ q (w_i … w_{j+1}) k̃."""
    q, k, v, rate, decay, scale, mix = drawn()
    w = (-torch.sigmoid(decay) / np.e**0.5).exp()
    keys, wanted = k * (1 - mix[:, None]), torch.zeros(2, 3, 13, 5).double()
    for i in range(13):
        for j in range(i + 1):
            left = w[:, :, j + 1 : i + 1].prod(dim=2)
            weight = (q[:, :, i] * left * keys[:, :, j]).sum(-1, keepdim=True)
            wanted[:, :, i] += weight * v[:, :, j]
    torch.testing.assert_close(form(q, k, v, rate + NEVER, decay, scale, mix), wanted)


@EVERY
def test_without_rates_and_fading_it_is_linear_attention(form) -> None:
    q, k, v, rate, decay, scale, mix = drawn()
    found = form(q, k, v, rate + NEVER, decay + NEVER, scale, 0 * mix)
    torch.testing.assert_close(found, (q @ k.mT).tril() @ v)


@EVERY
def test_rwkv_6_is_read_by_the_query_of_the_next_token(form) -> None:
    """It reads the state before its token, which has a bonus instead; a = 0."""
    r, k, v, rate, decay, scale, mix = drawn()
    u = torch.randn(3, 4).double()[:, None]
    w = (-torch.sigmoid(decay) / np.e**0.5).exp()
    S, wanted = torch.zeros(2, 3, 4, 5).double(), []
    for t in range(13):
        new = k[:, :, t, :, None] * v[:, :, t, None]
        wanted.append(torch.einsum("bhd,bhde->bhe", r[:, :, t], S + u.mT * new))
        S = w[:, :, t, :, None] * S + new
    next_query = torch.cat((r[:, :, 1:], torch.zeros_like(r[:, :, :1])), dim=2)
    past = form(next_query, k, v, rate + NEVER, decay, scale, 0 * mix)
    past = torch.cat((torch.zeros_like(v[:, :, :1]), past[:, :, :-1]), dim=2)
    own = (r * u * k).sum(-1, keepdim=True) * v
    torch.testing.assert_close(past + own, torch.stack(wanted, dim=2))


@EVERY
def test_whole_rates_along_orthonormal_keys_overwrite(form) -> None:
    """a = 1 and w = 1: each query gets the last value of its key, and zeros for one without."""
    keys, (_, _, v, rate, decay, _, mix) = orthonormal(11, 4), drawn(11)
    asked = torch.tensor([3, 0, 2, 1, 0, 3, 3, 2, 1, 0, 2])
    q, one = orthonormal(4, 4)[:, :, asked], torch.ones(3, 4).double()
    out = form(q, keys, v, rate + ALWAYS, decay + NEVER, 1e4 * one, mix)
    for t, key in enumerate(asked.tolist()):
        written = [i for i in range(t + 1) if i % 4 == key]
        wanted = v[:, :, written[-1]] if written else torch.zeros_like(v[:, :, 0])
        torch.testing.assert_close(out[:, :, t], wanted, rtol=1e-6, atol=1e-6)


# ---- the transition


def transition(given: list[Tensor]) -> Tensor:
    """(b, h, d, d): by what one token multiplies the state."""
    q, k, _, *more = (x[:, :, :1] if x.ndim == 4 else x for x in given)
    eye = torch.eye(4).double().expand(2, 3, 4, 4)
    nothing = torch.zeros(2, 3, 1, 4).double()
    return rwkv7.advance(q, k, nothing, *more, eye, RWKV7Options())[1]


def test_the_transition_is_a_diagonal_less_a_matrix_of_rank_one() -> None:
    q, k, v, *more = drawn()
    _, read, a, w = (x[:, :, 0] for x in ruled(k, *more))
    wanted = torch.diag_embed(w) - (a * read)[..., None] * read[..., None, :]
    torch.testing.assert_close(transition([q, k, v, *more]), wanted)


@pytest.mark.parametrize("seed", range(5))
def test_eigenvalues_of_the_transition(seed: int) -> None:
    """Real, at least 0.545 - 1 and at most 1."""
    generator = torch.Generator().manual_seed(seed)
    given = drawn()
    for at in (3, 4):
        given[at] = 5 * torch.randn(given[at].shape, generator=generator).double()
    found = torch.linalg.eigvals(transition(given))
    assert found.imag.abs().max() < 1e-9
    assert LEAST - 1 <= found.real.min() < found.real.max() <= 1 + 1e-12


def test_a_channel_keeps_at_least_half() -> None:
    q, k, v, rate, decay, *more = drawn()
    with record() as notes:
        rwkv7.naive(q, k, v, rate, decay + 1e20, *more)
    assert torch.equal(notes["decays"][0].exp(), torch.full_like(decay, LEAST))


@EVERY
@pytest.mark.parametrize("rate", [-1e20, 1e20])
@pytest.mark.parametrize("decay", [-1e20, 1e20])
def test_extreme_logits(form, rate: float, decay: float) -> None:
    """Rates of exactly 0 and 1, the least and the largest decay: as the plain steps, no NaN."""
    q, k, v, rates, decays, *more = drawn()
    given = [q, k, v, torch.full_like(rates, rate), torch.full_like(decays, decay), *more]
    given = [x.requires_grad_() for x in given]
    out = form(*given)
    keys, read, a, w = ruled(given[1], *given[3:])
    torch.testing.assert_close(out, plain_steps(q, keys, v, read, a, w))
    for grad in torch.autograd.grad(out.square().sum(), given):
        assert grad.isfinite().all()


# ---- the layer


def released(made: RWKV7, x: Tensor) -> Tensor:
    """The released model's first layer, token by token in NumPy, for one sequence."""
    p = {name: each.detach().numpy() for name, each in made.named_parameters()}

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    heads, d, e = made.key_heads, made.head_dim, made.value_dim
    last, S, out = np.zeros(x.shape[1]), np.zeros((heads, e, d)), []
    for token in x.numpy():
        xr, xk, xv, xa, xw, xg = (token + mu * (last - token) for mu in p["shifts"])
        r, k, v = p["query.weight"] @ xr, p["key.weight"] @ xk, p["value.weight"] @ xv
        low = np.tanh(p["decays.0.weight"] @ xw)
        w = np.exp(-sigmoid(p["decays.2.weight"] @ low + p["decays.2.bias"]) / np.e**0.5)
        a = sigmoid(p["rates.1.weight"] @ (p["rates.0.weight"] @ xa) + p["rates.1.bias"])
        g = p["gate.2.weight"] @ sigmoid(p["gate.0.weight"] @ xg)
        kappa = (k * p["key_scale"].reshape(-1)).reshape(heads, d)
        kappa = kappa / np.sqrt((kappa**2).sum(1, keepdims=True) + 1e-6)
        k = k + k * (a - 1) * p["key_mix"].reshape(-1)
        y = np.zeros((heads, e))
        for head in range(heads):
            at, to = slice(head * d, head * d + d), slice(head * e, head * e + e)
            held = S[head] @ kappa[head]
            S[head] = S[head] * w[at] - np.outer(held, a[at] * kappa[head]) + np.outer(v[to], k[at])
            y[head] = S[head] @ r[at]
        spread = np.sqrt(y.var(1, keepdims=True) + 1e-5 * e)
        normed = ((y - y.mean(1, keepdims=True)) / spread).reshape(-1)
        normed = normed * p["heads.output.gain"] + p["heads.output.offset"]
        bonus = (r * k * p["bonus"].reshape(-1)).reshape(heads, d).sum(1, keepdims=True)
        mixed = normed + (bonus * v.reshape(heads, e)).reshape(-1)
        out.append(p["heads.output.project.weight"] @ (mixed * g))
        last = token
    return torch.from_numpy(np.stack(out))


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_released_layer(form: str) -> None:
    """All weights random, heads of 2 keys and 5 values."""
    made = layer(form, head_dim=2, value_dim=5)
    for each in made.parameters():
        each.add_(0.3 * torch.randn_like(each))
    x = sequence(made)
    for row in range(2):
        torch.testing.assert_close(made(x)[row], released(made, x[row]))


def test_bonus_and_gate_stand_after_the_norm() -> None:
    """Values that all heads take as 0 leave the offsets of the norm, times the gate."""
    made = layer()
    with torch.no_grad():
        made.value.weight.zero_()
        made.heads.output.offset.normal_()
    x = sequence(made)
    before = F.pad(x, (0, 0, 1, -1))
    gate = made.gate(x + made.shifts[5] * (before - x))
    torch.testing.assert_close(made(x), made.heads.output.project(made.heads.output.offset * gate))


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact_and_signed(form: str) -> None:
    made = layer(form, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = made.taken(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    torch.testing.assert_close(found.matrix, rwkv7.naive(q, k, eye, *gates))
    assert (found.matrix < 0).any()


def test_padded_rows_and_columns_of_the_map_are_zero() -> None:
    made, real = layer(), torch.rand(2, 11, generator=torch.Generator().manual_seed(1)) > 0.3
    found = mixing_matrix(made, sequence(made), padding=real).matrix
    assert (found[~real[:, None, :, None].expand_as(found)] == 0).all()
    assert (found[~real[:, None, None, :].expand_as(found)] == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = RWKV7(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_a_state_of_another_family_is_refused() -> None:
    """DeltaNet's state has the inputs of a convolution in place of the last token."""
    made, x = layer(), sequence(layer())
    other = deltanet.DeltaNet(12, 3).double().step(x)[1]
    with pytest.raises(TypeError, match=r"should be a RWKV7\.State, got a DeltaNet\.State"):
        made.step(x, other)
