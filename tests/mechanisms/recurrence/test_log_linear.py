"""Log-linear attention: the rule in plain steps, its blocks, its limit Mamba-2, many lengths."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import fenwick
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import log_linear, mamba2
from attnlab.mechanisms.recurrence.log_linear import FORMS, LogLinear, LogLinearOptions
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
LENGTHS = pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 16, 37])


def drawn(n: int = 13, N: int = 4, levels: int = 7) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (N, N, 5)]
    gates = [torch.randn(2, 3, n), torch.randn(2, 3, n, levels)]
    return [*rows, *(x.double() for x in gates), *torch.randn(2, 3).double(), draw_scale(levels)]


def draw_scale(levels: int) -> Tensor:
    return torch.randn(3, levels, generator=torch.Generator().manual_seed(4)).double()


def layer(form: str = "chunked", heads: int = 4, **more) -> LogLinear:
    torch.manual_seed(2)
    options = LogLinearOptions(**{"chunk": 4, "state": 3, "groups": 2, "levels": 7} | more)
    return LogLinear(12, heads, form=form, options=options).double()


def blocks(t: int) -> dict[int, range]:
    """The tokens of each level of token t, from its binary digits, the largest block first."""
    found, begin = {0: range(t, t + 1)}, 0
    for digit in reversed(range(t.bit_length())):
        if t >> digit & 1:
            found[digit + 1] = range(begin, begin + 2**digit)
            begin += 2**digit
    return found


def plain(q, k, v, step, level, log_A, skip, scale) -> Tensor:
    """Level by level and token by token, each decay as a product."""
    delta, lam = (1 + step.exp()).log(), (1 + (scale[:, None] * level).exp()).log()
    a = (-log_A.exp()[:, None] * delta).exp()
    out = np.zeros(v.shape)
    for row, head, t in np.ndindex(*v.shape[:3]):
        for own, tokens in blocks(t).items():
            own = min(own, level.shape[-1] - 1)
            for s in tokens:
                faded = math.prod(a[row, head, s + 1 : t + 1].tolist())
                score = (q[row, head, t] @ k[row, head, s]).item()
                weight = lam[row, head, t, own].item() * faded * delta[row, head, s].item() * score
                out[row, head, t] += weight * v[row, head, s].numpy()
        out[row, head, t] += skip[head].item() * v[row, head, t].numpy()
    return torch.from_numpy(out)


@EVERY
@LENGTHS
def test_the_rule_in_plain_steps(form, n: int) -> None:
    given = drawn(n)
    options = {"options": LogLinearOptions(chunk=4)} if form is log_linear.chunked else {}
    torch.testing.assert_close(form(*given, **options), plain(*given))


@EVERY
@pytest.mark.parametrize("levels", [2, 3, 5])
def test_the_last_level_holds_all_that_is_older(form, levels: int) -> None:
    """37 tokens where 2, 4 and 16 have blocks of their own."""
    given = drawn(37, levels=levels)
    options = {"options": LogLinearOptions(chunk=4)} if form is log_linear.chunked else {}
    torch.testing.assert_close(form(*given, **options), plain(*given))


@pytest.mark.parametrize("size", [1, 2, 8, 16, 64])
@LENGTHS
def test_chunks_of_any_size(n: int, size: int) -> None:
    given = [x.requires_grad_() for x in drawn(n)]
    found = log_linear.chunked(*given, options=LogLinearOptions(chunk=size))
    wanted = log_linear.naive(*given)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), given, materialize_grads=True),
        torch.autograd.grad(wanted.square().sum(), given, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


# ---- blocks


def test_each_token_before_lies_in_one_block() -> None:
    """Blocks of 2^(level - 1) tokens, the largest first, one for each digit of t that is 1; and the
    level of a pair is the highest digit in which its tokens differ."""
    scales = torch.arange(9).double().expand(200, 9)
    of_pairs = fenwick.of_pairs(scales)
    for t in range(200):
        cut = blocks(t)
        assert sorted(s for tokens in cut.values() for s in tokens) == list(range(t + 1))
        assert len(cut) == 1 + t.bit_count()
        for level, tokens in cut.items():
            assert len(tokens) == (2 ** (level - 1) if level else 1)
            assert (of_pairs[t, list(tokens)] == level).all()


@torch.no_grad()
def test_the_states_are_those_of_the_blocks() -> None:
    """Without fading, and with values that name their token, each state holds what its block does;
    the others are empty."""
    S, seen = torch.zeros(1, 1, 6, 1, 32), torch.eye(32)
    for t in range(32):
        S = fenwick.added_up(S, torch.tensor([[t]]))
        S[:, :, 0] = seen[t]
        held = {level: row.nonzero().flatten().tolist() for level, row in enumerate(S[0, 0, :, 0])}
        cut = {level: list(tokens) for level, tokens in blocks(t).items()}
        assert {level: tokens for level, tokens in held.items() if tokens} == cut


# ---- limits


@EVERY
def test_equal_levels_are_mamba_2(form) -> None:
    q, k, v, step, level, log_A, skip, scale = drawn()
    level = torch.full_like(level, 1.0).expm1().log()  # its softplus is 1
    found = form(q, k, v, step, level, log_A, skip, torch.ones_like(scale))
    torch.testing.assert_close(found, mamba2.naive(q, k, v, step, log_A, skip))


@EVERY
def test_only_the_last_level_reads_the_last_token_alone(form) -> None:
    q, k, v, step, level, log_A, skip, scale = drawn()
    level = torch.full_like(level, -1000.0)
    level[..., 0] = 1.0
    found = form(q, k, v, step, level, log_A, skip, torch.ones_like(scale))
    alone = (q * k).sum(-1, keepdim=True) * F.softplus(step)[..., None] * v
    wanted = math.log1p(math.e) * alone + skip[:, None, None] * v
    torch.testing.assert_close(found, wanted)


@EVERY
def test_what_fades_at_once_leaves_the_token_alone(form) -> None:
    """Decays of e^(-10²⁰), and no gradient is NaN."""
    q, k, v, step, level, _, skip, scale = (x.requires_grad_() for x in drawn())
    out = form(q, k, v, step + 1, level, torch.full((3,), 46.0).double(), skip, scale)
    own = F.softplus(scale[:, None] * level)[..., :1] * F.softplus(step + 1)[..., None]
    alone = (q * k).sum(-1, keepdim=True) * own * v
    torch.testing.assert_close(out, alone + skip[:, None, None] * v)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, step, level, skip, scale)):
        assert torch.isfinite(grad).all()


# ---- the layer


@torch.no_grad()
def test_with_equal_levels_the_layer_is_that_of_mamba_2() -> None:
    made = layer()
    made.levels.weight.zero_()  # then λ = ln 2 at every level
    options = mamba2.Mamba2Options(state=3, groups=2)
    other = mamba2.Mamba2(12, 4, options=options).double()
    other.load_state_dict(
        {name: x for name, x in made.state_dict().items() if name not in ("levels.weight", "scale")}
    )
    x = sequence(made)
    q, k, v, *gates = other.taken(x)
    read = math.log(2) * mamba2.naive(q, k, v, *gates[:2], torch.zeros_like(other.skip))
    out = other.heads.output(other.heads.join(read + other.skip[:, None, None] * v), x)
    torch.testing.assert_close(made(x), out)


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = (part.detach() for part in made.taken(x))
    eye = torch.eye(11).double().expand(2, 4, -1, -1)
    torch.testing.assert_close(found.matrix, log_linear.naive(q, k, eye, *gates))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


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


@pytest.mark.parametrize("levels", [2, 4, 7])
@LENGTHS
def test_the_states_after_a_prompt(n: int, levels: int) -> None:
    """At once what token by token gives."""
    _, k, v, _, level, *_ = given = drawn(n, levels=levels)
    _, wanted = log_linear.advance(*given, *fenwick.initial_states(k, v, level))
    out, found = log_linear.read(*given, LogLinearOptions(chunk=4))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(out, plain(*given))


def test_launches_grow_slowly() -> None:
    """Each time the tokens are twice as many, both passes take as many calls more."""
    made = LogLinear(12, 3, options=LogLinearOptions(state=4))
    lengths = (256, 1024, 4096)
    few, some, many = (
        count(made, torch.randn(1, n, 12), backward=True).operations for n in lengths
    )
    assert many - some <= some - few + 2


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="chunk=6 should be a power of two"):
        LogLinearOptions(chunk=6)
    with pytest.raises(ValueError, match="levels=1 should be at least 2"):
        LogLinearOptions(levels=1)
    with pytest.raises(ValueError, match="levels=1 should be at least 2"):
        log_linear.naive(*drawn(levels=1))
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12 times expand=2"):
        LogLinear(12, 5)
