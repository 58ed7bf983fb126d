"""TTT-Linear: gradient descent as autograd does it, its limits, Titans, the whole layer, places."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import ttt_linear
from attnlab.mechanisms.recurrence.deltanet import DeltaNet
from attnlab.mechanisms.recurrence.ttt_linear import FORMS, TTTLinear, TTTLinearOptions
from attnlab.mechanisms.recurrence.ttt_linear.inner import Inner, slope, turned
from tests.mechanisms.recurrence.delta_rules import plain_rule
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
ALWAYS = 1000.0  # a logit whose sigmoid is 1


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, d).double() for _ in range(3)]
    rules = [torch.randn(2, 3, n).double(), 0.2 * torch.randn(n).double()]
    gains = [torch.randn(3, d).double() for _ in range(2)]
    return [*rows, *rules, *gains, 0.3 * torch.randn(3, d, d).double(), torch.randn(3, d).double()]


def plain(d: int = 4) -> list[Tensor]:
    """Gain 1, offset 0, W = 0 and b = 0."""
    nothing = torch.zeros(3, d).double()
    return [nothing + 1, nothing, torch.zeros(3, d, d).double(), nothing]


def layer(form: str = "chunked", **more) -> TTTLinear:
    torch.manual_seed(2)
    options = TTTLinearOptions(mini_batch=4, **more)
    made = TTTLinear(12, 3, form=form, options=options).double()
    with torch.no_grad():
        for each in made.parameters():
            each.add_(0.3 * torch.randn_like(each))
    return made


def inner_loss(x: Tensor, v: Tensor, W: Tensor, b: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
    """½ ‖x + LN(x W + b) - v‖², of one token of one head, by PyTorch's layer norm."""
    guess = x + F.layer_norm(x @ W + b, x.shape, gain, offset, 1e-6)
    return (guess - v).square().sum() / 2


@EVERY
@pytest.mark.parametrize("mini_batch", [1, 3, 5, 16])
def test_gradient_descent_by_autograd(form, mini_batch: int) -> None:
    """Mini-batch by mini-batch, one gradient after the other, of PyTorch's own layer norm."""
    q, k, v, step, place, gain, offset, W0, b0 = given = drawn()
    out = torch.zeros_like(q)
    for row, head in np.ndindex(2, 3):
        W, b = W0[head].requires_grad_(), b0[head].requires_grad_()
        for begin in range(0, 13, mini_batch):
            total = [torch.zeros_like(W), torch.zeros_like(b)]
            for i, t in enumerate(range(begin, min(begin + mini_batch, 13))):
                loss = inner_loss(k[row, head, t], v[row, head, t], W, b, gain[head], offset[head])
                rate = torch.sigmoid(step[row, head, t]) / 4
                total = [
                    x + rate * g
                    for x, g in zip(total, torch.autograd.grad(loss, (W, b)), strict=True)
                ]
                alpha = max(1 / (i + 1) + place[t].item(), 0)
                W_t, b_t = W - alpha * total[0], b - alpha * total[1]
                x = q[row, head, t]
                out[row, head, t] = x + F.layer_norm(
                    x @ W_t + b_t, (4,), gain[head], offset[head], 1e-6
                )
            W, b = (x.detach().requires_grad_() for x in (W_t, b_t))
    found = form(*given, options=TTTLinearOptions(mini_batch=mini_batch))
    torch.testing.assert_close(found, out.detach())


@pytest.mark.parametrize("norm", [False, True])
def test_the_slope_is_the_gradient_of_the_loss(norm: bool) -> None:
    torch.manual_seed(3)
    x, z, target, gain, offset = torch.randn(5, 2, 3, 7, 4).double()
    inner = Inner(gain, offset, norm)
    z.requires_grad_()
    loss = (ttt_linear.predicted(inner, x, z) - target).square().sum() / 2
    (wanted,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(slope(inner, x, z, target).detach(), wanted)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("mini_batch", [1, 3, 13, 64])
def test_dual_and_primal_form_are_equal(norm: bool, mini_batch: int) -> None:
    given = [x.requires_grad_() for x in drawn()]
    options = TTTLinearOptions(mini_batch=mini_batch, norm=norm, rate=1.0 if norm else 0.1)
    wanted, found = (form(*given, options=options) for form in FORMS.values())
    torch.testing.assert_close(found, wanted)
    both = (torch.autograd.grad(out.square().sum(), given) for out in (found, wanted))
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs)


# ---- limits


@EVERY
def test_one_mini_batch_is_causal_linear_attention(form) -> None:
    """From W = 0, with α η = 1 and no norm; the bias adds the sum of the values."""
    q, k, v, step, *_ = drawn()
    place = 1 - 1 / torch.arange(1, 14).double()  # α = 1 at every place
    options = TTTLinearOptions(mini_batch=16, norm=False, rate=4.0)
    found = form(q, k, v, step + ALWAYS, place, *plain(), options=options)
    torch.testing.assert_close(found, (q @ k.mT).tril() @ v + v.cumsum(2))


@EVERY
def test_mini_batches_of_one_are_the_delta_rule(form) -> None:
    """On keys and queries with a one beside them, and steps η."""
    q, k, v, step, place, *_ = drawn()
    options = TTTLinearOptions(mini_batch=1, norm=False)
    found = form(q, k, v, step, 0 * place, *plain(), options=options)
    q1, k1 = (torch.cat((x, torch.ones_like(x[..., :1])), dim=-1) for x in (q, k))
    torch.testing.assert_close(found, plain_rule(q1, k1, v, torch.sigmoid(step) / 4))


def titans(q: Tensor, k: Tensor, v: Tensor, momentum: float, forget: float, step: float) -> Tensor:
    """A linear memory that learns with momentum and forgets, by autograd."""
    M = torch.zeros(2, 3, 4, 4).double()
    S, out = torch.zeros_like(M), []
    for t in range(q.shape[2]):
        M = M.detach().requires_grad_()
        loss = (k[:, :, t, None] @ M - v[:, :, t, None]).square().sum()
        S = momentum * S - step * torch.autograd.grad(loss, M)[0]
        M = (1 - forget) * M + S
        out.append(q[:, :, t, None] @ M)
    return torch.cat(out, dim=2).detach()


def test_titans_without_momentum_and_forgetting_is_the_delta_rule() -> None:
    q, k, v, step, *_ = drawn()
    b = torch.full_like(step, 0.1)
    torch.testing.assert_close(titans(q, k, v, 0.0, 0.0, 0.05), plain_rule(q, k, v, b))
    assert (titans(q, k, v, 0.5, 0.0, 0.05) - plain_rule(q, k, v, b)).abs().max() > 0.1


def test_titans_without_momentum_is_a_gated_delta_rule_on_the_old_state() -> None:
    """(1 - α) M - 2 θ kᵀ (k M - v): an erasure of 2 θ / (1 - α) where everything has faded."""
    q, k, v, *_ = drawn()
    found, S, wanted = titans(q, k, v, 0.0, 0.3, 0.05), torch.zeros(2, 3, 4, 4).double(), []
    for t in range(13):
        key, value = k[:, :, t, None], v[:, :, t, None]
        faded = 0.7 * S
        S = faded - 0.1 / 0.7 * key.mT @ (key @ faded) + 0.1 * key.mT @ value
        wanted.append(q[:, :, t, None] @ S)
    torch.testing.assert_close(found, torch.cat(wanted, 2))


# ---- steps and places


@EVERY
def test_without_steps_the_first_weights_answer(form) -> None:
    given = drawn()
    given[3] = given[3] - 1e20
    (q, *_), (gain, offset, W, b) = given[:1], given[5:]
    x = q @ W + b[:, None]
    spread = (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    normed = (x - x.mean(-1, keepdim=True)) / spread
    wanted = q + normed * gain[:, None] + offset[:, None]
    torch.testing.assert_close(form(*given), wanted)


@EVERY
@pytest.mark.parametrize("place", [-1e20, 0.0])
@pytest.mark.parametrize("step", [-1e20, 1e20])
def test_extreme_steps(form, place: float, step: float) -> None:
    """A weight of a place is not negative; nothing is NaN, gradients neither."""
    given = drawn()
    given[3], given[4] = torch.full_like(given[3], step), torch.full_like(given[4], place)
    given = [x.requires_grad_() for x in given]
    out = form(*given)
    for each in (out, *torch.autograd.grad(out.square().sum(), given)):
        assert each.isfinite().all()
    if place < 0:
        silent = [*given]
        silent[3] = given[3] * 0 - 1e20
        torch.testing.assert_close(out, form(*silent))


@EVERY
def test_equal_channels_are_bounded(form) -> None:
    """Where x W + b has equal channels the norm divides by the root of 1e-6: finite."""
    q, k, v, step, place, gain, offset, W, b = drawn()
    given = [x.requires_grad_() for x in (q, k, v, step, place, gain, offset, 0 * W, 0 * b)]
    out = form(*given)
    for each in (out, *torch.autograd.grad(out.square().sum(), given)):
        assert each.isfinite().all()


def test_queries_and_keys_are_turned_by_their_places() -> None:
    """Pairs of neighbours, and from the beginning again in each mini-batch."""
    x = torch.randn(1, 1, 6, 4, generator=torch.Generator().manual_seed(1)).double()
    found = turned(x, torch.arange(6) % 4)
    for t in range(6):
        for pair in range(2):
            z = complex(*x[0, 0, t, 2 * pair : 2 * pair + 2].tolist())
            z *= np.exp(1j * (t % 4) * 10000 ** (-pair / 2))
            wanted = torch.tensor([z.real, z.imag]).double()
            torch.testing.assert_close(found[0, 0, t, 2 * pair : 2 * pair + 2], wanted)


# ---- the layer


def released(made: TTTLinear, x: Tensor) -> Tensor:
    """The layer token by token, for one sequence, by autograd."""
    p, c, d = dict(made.named_parameters()), made.options.mini_batch, made.head_dim
    q, k, v = (x @ p["into.weight"].mT).detach().chunk(3, dim=-1)
    steps = (
        torch.sigmoid(x @ p["steps.weight"].mT + p["steps.bias"]).detach() * made.options.rate / d
    )
    out = torch.zeros_like(q)
    for head in range(made.key_heads):
        at = slice(head * d, head * d + d)
        gain, offset = p["gain"][head].detach(), p["offset"][head].detach()
        W, b = (p[name][head].detach().requires_grad_() for name in ("start", "start_bias"))
        total = [torch.zeros_like(W), torch.zeros_like(b)]
        for t in range(len(x)):
            place = t % c
            key, query = (
                turned(row[t, at][None, None, None], torch.tensor([place]))[0, 0, 0]
                for row in (k, q)
            )
            loss = inner_loss(key, v[t, at], W, b, gain, offset)
            slopes = torch.autograd.grad(loss, (W, b))
            total = [s + steps[t, head] * g for s, g in zip(total, slopes, strict=True)]
            alpha = max(1 / (place + 1) + p["places"][place].item(), 0)
            W_t, b_t = W - alpha * total[0], b - alpha * total[1]
            read = F.layer_norm(query @ W_t + b_t, (d,), gain, offset, 1e-6)
            out[t, at] = (query + read).detach()
            if place == c - 1:
                W, b = (each.detach().requires_grad_() for each in (W_t, b_t))
                total = [torch.zeros_like(W), torch.zeros_like(b)]
    output = made.heads.output
    normed = F.layer_norm(out, out.shape[-1:], output.norm.weight, output.norm.bias, 1e-6)
    if output.gate is not None:
        normed = F.gelu(x @ output.gate.weight.mT, approximate="tanh") * normed
    return (normed @ output.project.weight.mT).detach()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gate", [False, True])
def test_the_released_layer(form: str, gate: bool) -> None:
    made = layer(form, gate=gate)
    x = sequence(made)
    for row in range(2):
        torch.testing.assert_close(made(x)[row].detach(), released(made, x[row]))


def test_sequences_at_different_places_decode_together() -> None:
    """A document that ends in one sequence of a batch, within a mini-batch."""
    made, x = layer(), sequence(layer(), 17)
    _, state = made.step(x[:, :6])
    state = state.cleared(torch.tensor([False, True]))
    assert state.place.tolist() == [[2], [0]]
    found, after = made.step(x[:, 6:], state)
    torch.testing.assert_close(found[0], made(x)[0, 6:])
    torch.testing.assert_close(found[1], made(x[1:, 6:])[0])
    assert after.place.tolist() == [[1], [3]]


@pytest.mark.parametrize("form", FORMS)
def test_the_map_is_one_of_derivatives(form: str) -> None:
    made = layer(form)
    found = mixing_matrix(made, sequence(made, 5))
    assert not found.exact
    assert (found.matrix.triu(1) == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_are_those_of_mini_batches() -> None:
    """Four times the tokens, four times the calls; fewer by far than token by token."""
    made, x = TTTLinear(12, 3), torch.randn(1, 256, 12)
    few, many = (count(made, torch.randn(1, n, 12)).operations for n in (256, 1024))
    assert 3.5 < many / few < 4.1
    assert 8 * few < count(TTTLinear(12, 3, form="naive"), x).operations


def test_heads_of_an_odd_width_are_refused() -> None:
    with pytest.raises(ValueError, match="heads of width 3, but pairs are turned"):
        TTTLinear(12, 4)


def test_a_state_of_another_family_is_refused() -> None:
    made, x = layer(), sequence(layer())
    other = DeltaNet(12, 3).double().step(x)[1]
    with pytest.raises((ValueError, TypeError), match="state"):
        made.step(x, other)
