"""Log-linear Gated DeltaNet: the rule in plain steps, its map, its limits, its states."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import fenwick
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import gated_deltanet, log_linear, log_linear_deltanet
from attnlab.mechanisms.recurrence.log_linear_deltanet import (
    FORMS,
    LogLinearDeltaNet,
    LogLinearDeltaNetOptions,
)
from tests.mechanisms.recurrence.delta_rules import close, orthonormal, units
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
LENGTHS = pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 16, 37])
ALWAYS, NEVER = 1000.0, -1000.0  # steps whose sigmoids are 1 and 0


def drawn(n: int = 13, d: int = 4, levels: int = 7) -> list[Tensor]:
    """Queries, keys and values; step, decay and log A; level and scale."""
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width) for width in (d, d, 5)]
    gates = [*torch.randn(2, 2, 3, n), torch.randn(3)]
    return [x.double() for x in (*rows, *gates, torch.randn(2, 3, n, levels), draw_scale(levels))]


def draw_scale(levels: int) -> Tensor:
    return torch.randn(3, levels, generator=torch.Generator().manual_seed(4))


def layer(form: str = "chunked", **more) -> LogLinearDeltaNet:
    torch.manual_seed(2)
    options = LogLinearDeltaNetOptions(chunk=4, levels=7)
    return LogLinearDeltaNet(12, 3, form=form, options=options, **more).double()


def small(form) -> dict:
    """Chunks of four tokens, where the form has chunks."""
    options = {"options": LogLinearDeltaNetOptions(chunk=4)}
    return options if form is log_linear_deltanet.chunked else {}


def blocks(t: int) -> dict[int, range]:
    """The tokens of each level of token t, from its binary digits, the largest block first."""
    found, begin = {0: range(t, t + 1)}, 0
    for digit in reversed(range(t.bit_length())):
        if t >> digit & 1:
            found[digit + 1] = range(begin, begin + 2**digit)
            begin += 2**digit
    return found


def plain(q, k, v, step, decay, log_A, level, scale) -> Tensor:
    """Level by level and token by token, with transitions as whole matrices."""
    q, k = units(q) / math.sqrt(q.shape[-1]), units(k)
    b, lam = torch.sigmoid(step), (1 + (scale[:, None] * level).exp()).log()
    a = (-log_A.exp()[:, None] * (1 + decay.exp()).log()).exp()
    out = np.zeros(v.shape)
    for row, head, t in np.ndindex(*v.shape[:3]):
        for own, tokens in blocks(t).items():
            own = min(own, level.shape[-1] - 1)
            for s in tokens:
                read = q[row, head, t]
                for u in range(t, s, -1):
                    key = k[row, head, u]
                    read = a[row, head, u] * (read - b[row, head, u] * (read @ key) * key)
                score = read @ k[row, head, s] * b[row, head, s] * lam[row, head, t, own]
                out[row, head, t] += (score * v[row, head, s]).numpy()
    return torch.from_numpy(out)


@EVERY
@LENGTHS
def test_the_rule_in_plain_steps(form, n: int) -> None:
    given = drawn(n)
    torch.testing.assert_close(form(*given, **small(form)), plain(*given))


@EVERY
@pytest.mark.parametrize("levels", [2, 3, 5])
def test_the_last_level_holds_all_that_is_older(form, levels: int) -> None:
    """37 tokens where 2, 4 and 16 have blocks of their own."""
    given = drawn(37, levels=levels)
    torch.testing.assert_close(form(*given, **small(form)), plain(*given))


@pytest.mark.parametrize("size", [1, 2, 8, 16, 64])
@LENGTHS
def test_chunks_of_any_size(n: int, size: int) -> None:
    given = [x.requires_grad_() for x in drawn(n)]
    found = log_linear_deltanet.chunked(*given, options=LogLinearDeltaNetOptions(chunk=size))
    wanted = log_linear_deltanet.naive(*given)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), given, materialize_grads=True),
        torch.autograd.grad(wanted.square().sum(), given, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


# ---- limits


def ones(level: Tensor) -> Tensor:
    """Levels whose softplus is 1 where their scale is 1."""
    return torch.full_like(level, 1.0).expm1().log()


@EVERY
def test_equal_levels_are_gated_deltanet(form) -> None:
    *given, level, scale = drawn()
    found = form(*given, ones(level), torch.ones_like(scale), **small(form))
    torch.testing.assert_close(found, gated_deltanet.naive(*given))


@EVERY
def test_its_map_is_that_of_gated_deltanet_times_the_levels(form) -> None:
    """Λ stands outside the inverse."""
    q, k, _, *gates, level, scale = drawn()
    eye = torch.eye(13).double().expand(2, 3, -1, -1)
    weights = fenwick.of_pairs(F.softplus(scale[:, None] * level))
    wanted = weights * gated_deltanet.naive(q, k, eye, *gates)
    torch.testing.assert_close(form(q, k, eye, *gates, level, scale, **small(form)), wanted)


@EVERY
def test_orthonormal_keys_are_those_of_log_linear_attention(form) -> None:
    """Nothing is erased, and b is the step that writes: log-linear Mamba-2 of a step 1, whose
    values are b v."""
    q, _, v, step, _, log_A, level, scale = drawn(4)
    k, one = orthonormal(4, 4), ones(step)
    found = form(q, k, v, step, one, log_A, level, scale, **small(form))
    given = units(q) / 2, units(k), torch.sigmoid(step)[..., None] * v
    nothing = torch.zeros(3).double()
    close(found, log_linear.naive(*given, one, level, log_A, nothing, scale))


@EVERY
def test_without_steps_nothing_is_read(form) -> None:
    q, k, v, step, *rest = drawn()
    assert (form(q, k, v, step + NEVER, *rest) == 0).all()


@EVERY
def test_a_whole_step_is_read_back_from_its_own_level(form) -> None:
    """b = 1: the key finds nothing of itself in older states, so λ of level 0 alone counts."""
    _, k, v, step, *gates, level, scale = drawn()
    own = F.softplus(scale[:, None] * level)[..., :1]
    close(form(k, k, v, step + ALWAYS, *gates, level, scale, **small(form)) * 2, own * v)


@EVERY
def test_what_fades_at_once_leaves_the_token_alone(form) -> None:
    """Decays of e^(-10²⁰), and no gradient is NaN."""
    q, k, v, step, decay, _, level, scale = (x.requires_grad_() for x in drawn())
    log_A = torch.full((3,), 46.0).double()
    out = form(q, k, v, step, decay + 1, log_A, level, scale, **small(form))
    own = F.softplus(scale[:, None] * level)[..., :1] * torch.sigmoid(step)[..., None]
    alone = ((units(q) / 2) * units(k)).sum(-1, keepdim=True) * own * v
    torch.testing.assert_close(out, alone)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, step, decay, level, scale)):
        assert torch.isfinite(grad).all()


# ---- the layer


@torch.no_grad()
def test_with_equal_levels_the_layer_is_that_of_gated_deltanet() -> None:
    made = layer(value_heads=6)
    made.levels.weight.zero_()  # then λ = ln 2 at every level, which the norm of heads divides out
    made.heads.output.epsilon = 0
    other = gated_deltanet.GatedDeltaNet(12, 3, value_heads=6).double()
    other.heads.output.epsilon = 0
    weights = made.state_dict()
    other.load_state_dict({name: weights[name] for name in other.state_dict()})
    x = sequence(made)
    torch.testing.assert_close(made(x), other(x))


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form, value_heads=6, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = (part.detach() for part in made.taken(x))
    eye = torch.eye(11).double().expand(2, 6, -1, -1)
    torch.testing.assert_close(found.matrix, log_linear_deltanet.naive(q, k, eye, *gates))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form, value_heads=6))


@pytest.mark.parametrize("levels", [2, 4, 7])
@LENGTHS
def test_the_states_after_a_prompt(n: int, levels: int) -> None:
    """At once what token by token gives."""
    _, k, v, *_, level, _ = given = drawn(n, levels=levels)
    S, seen = fenwick.initial_states(k, v, level)
    _, wanted = log_linear_deltanet.advance(*given, S=S, seen=seen)
    out, found = log_linear_deltanet.read(*given, options=LogLinearDeltaNetOptions(chunk=4))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(out, plain(*given))


@torch.no_grad()
def test_documents_that_end_begin_anew() -> None:
    """After a reset a row counts its tokens from 0 again, while the other goes on."""
    made = layer()
    x = sequence(made)
    state = made.step(x[:, :5])[1].cleared(torch.tensor([True, False]))
    assert state.seen.flatten().tolist() == [0, 5]
    out = made.step(x[:, 5:], state)[0]
    torch.testing.assert_close(out[0], made(x[:1, 5:])[0])
    torch.testing.assert_close(out[1], made(x[1:])[0, 5:])


def test_launches_grow_slowly() -> None:
    """Each time the tokens are twice as many, both passes take as many calls more."""
    made = LogLinearDeltaNet(12, 3)
    few, some, many = (
        count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 1024, 4096)
    )
    assert many - some <= some - few + 2


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="chunk=6 should be a power of two"):
        LogLinearDeltaNetOptions(chunk=6)
    with pytest.raises(ValueError, match="levels=1 should be at least 2"):
        LogLinearDeltaNetOptions(levels=1)
    with pytest.raises(ValueError, match="levels=1 should be at least 2"):
        log_linear_deltanet.naive(*drawn(levels=1))
