"""Rules that are the delta rule in other clothes: DeltaProduct, Titans' linear memory, Comba."""

import pytest
import torch
from torch import Tensor

from attnlab.core import chunks
from attnlab.mechanisms.recurrence import deltanet, gated_deltanet
from tests.mechanisms.recurrence.delta_rules import units

N, D, E = 7, 4, 5
NEVER = -1000.0  # a logit of a decay of 1


def drawn(*widths: int) -> list[Tensor]:
    """Rows of numbers for N tokens of three heads."""
    torch.manual_seed(1)
    return [torch.randn(2, 3, N, width).double() for width in widths]


def between(low: float, high: float) -> Tensor:
    """One number for each token."""
    return low + (high - low) * torch.rand(2, 3, N, 1).double()


def engine(q: Tensor, k: Tensor, v: Tensor, **more: Tensor) -> Tensor:
    return chunks.advance(q, k, v, chunks.initial_state(k, v), 3, **more)[0]


def row(x: Tensor, t: int) -> Tensor:
    return x[:, :, t, None]


# ---- DeltaProduct: several steps for one token


def product(q: Tensor, k: Tensor, v: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """The state fades once, then m keys erase and write one after the other, then it is read; k, v
    and b are (2, 3, N, m, …)."""
    S, out = torch.zeros(2, 3, D, E).double(), []
    for t in range(N):
        S = row(a, t) * S
        for i in range(k.shape[3]):
            key, value, size = (x[:, :, t, i] for x in (k, v, b))
            error = value[..., None, :] - key[..., None, :] @ S
            S = S + size[..., None] * key[..., None] @ error
        out.append(row(q, t) @ S)
    return torch.cat(out, dim=2)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("form", deltanet.FORMS)
def test_delta_product_is_a_longer_run_of_deltanet(form: str, m: int) -> None:
    """m tokens for each token, of which the last is asked."""
    q, k, v, step = drawn(D, m * D, m * E, m)
    k, v = k.unflatten(-1, (m, D)), v.unflatten(-1, (m, E))
    wanted = product(units(q) / 2, units(k), v, torch.sigmoid(step)[..., None], between(1, 1))
    given = (q.repeat_interleave(m, dim=2), k.flatten(2, 3), v.flatten(2, 3), step.flatten(2))
    found = deltanet.FORMS[form](*given)[:, :, m - 1 :: m]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("form", gated_deltanet.FORMS)
def test_gated_delta_product_fades_before_the_first_of_its_steps(form: str) -> None:
    m = 3
    q, k, v, step, decay = drawn(D, m * D, m * E, m, 1)
    k, v = k.unflatten(-1, (m, D)), v.unflatten(-1, (m, E))
    a = (-(1 + decay.exp()).log()).exp()
    wanted = product(units(q) / 2, units(k), v, torch.sigmoid(step)[..., None], a)
    stays = torch.full((2, 3, N, m - 1), NEVER).double()
    decays = torch.cat((decay, stays), dim=-1).flatten(2)
    given = (q.repeat_interleave(m, dim=2), k.flatten(2, 3), v.flatten(2, 3), step.flatten(2))
    found = gated_deltanet.FORMS[form](*given, decays, torch.zeros(3).double())
    torch.testing.assert_close(found[:, :, m - 1 :: m], wanted)


# ---- Titans: a linear memory that is trained while it reads


def titans(
    q: Tensor, k: Tensor, v: Tensor, theta: Tensor, alpha: Tensor, eta: float = 0.0
) -> Tensor:
    """M_t = (1 - α) M_{t-1} + U_t, U_t = η U_{t-1} - θ ∇|k M_{t-1} - v|², by autograd."""
    M, U, out = torch.zeros(2, 3, D, E).double(), 0, []
    for t in range(N):
        old = M.detach().requires_grad_()
        loss = (row(k, t) @ old - row(v, t)).square().sum()
        U = eta * U - row(theta, t) * torch.autograd.grad(loss, old)[0]
        M = (1 - row(alpha, t)) * M + U
        out.append(row(q, t) @ M)
    return torch.cat(out, dim=2)


def test_titans_without_momentum_and_forgetting_is_the_delta_rule() -> None:
    """Its steps are 2 θ: the square has no factor 1/2."""
    q, k, v = drawn(D, D, E)
    theta = between(0, 0.5)
    found = engine(q, units(k), v, erase=2 * theta)
    torch.testing.assert_close(found, titans(q, units(k), v, theta, between(0, 0)))


def test_titans_that_forgets_is_a_gated_delta_rule() -> None:
    """What it subtracts is measured before it forgets: steps 2 θ / (1 - α), values (1 - α) v."""
    q, k, v = drawn(D, D, E)
    theta, alpha = between(0, 0.2), between(0, 0.5)
    kept = 1 - alpha
    found = engine(q, units(k), kept * v, log_decay=kept.log(), erase=2 * theta / kept)
    torch.testing.assert_close(found, titans(q, units(k), v, theta, alpha))


def test_momentum_is_what_no_delta_rule_has() -> None:
    """The control: with η = 0.5 the same rule is another."""
    q, k, v = drawn(D, D, E)
    theta, alpha = between(0, 0.2), between(0, 0.5)
    plain, pushed = (titans(q, units(k), v, theta, alpha, eta) for eta in (0.0, 0.5))
    torch.testing.assert_close(pushed[:, :, 0], plain[:, :, 0])
    assert (pushed - plain)[:, :, 1:].abs().max() > 0.01


# ---- Comba: another key erases


def comba(
    q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float, less: float
) -> Tensor:
    """p = scale · k takes out what it reads of the faded state; the query reads by q - less · p."""
    S, out = torch.zeros(2, 3, D, E).double(), []
    for t in range(N):
        p, S = scale * row(k, t), row(a, t) * S
        S = S + row(b, t) * row(k, t).mT @ (row(v, t) - p @ S)
        out.append((row(q, t) - less * p) @ S)
    return torch.cat(out, dim=2)


@pytest.mark.parametrize(("scale", "less"), [(1.0, 0.0), (0.7, 0.0), (0.7, 0.02)])
def test_comba_is_the_gated_delta_rule_with_other_steps_and_values(
    scale: float, less: float
) -> None:
    q, k, v = drawn(D, D, E)
    k, a, b = units(k), between(0.5, 1), between(0, 1)
    given = (q - less * scale * k, k, v / scale)
    found = engine(*given, log_decay=a.log(), erase=scale * b)
    torch.testing.assert_close(found, comba(q, k, v, a, b, scale, less))


def test_a_key_of_zero_erases_nothing() -> None:
    """Then the rule is gated linear attention with keys b k."""
    q, k, v = drawn(D, D, E)
    k, a, b = units(k), between(0.5, 1), between(0, 1)
    found = engine(q, b * k, v, log_decay=a.log())
    torch.testing.assert_close(found, comba(q, k, v, a, b, 0.0, 0.0))
