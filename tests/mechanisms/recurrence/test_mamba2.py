"""Mamba-2: the scan in plain steps, its mask, its limits, Hugging Face's mixer, extreme steps."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import gated_linear, mamba2, retention, selective_scan
from attnlab.mechanisms.recurrence.mamba2 import FORMS, Mamba2, Mamba2Options
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(n: int = 13, N: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (N, N, 5)]
    return [*rows, torch.randn(2, 3, n).double(), *torch.randn(2, 3).double()]


def layer(form: str = "chunked", heads: int = 4, **more) -> Mamba2:
    torch.manual_seed(2)
    options = Mamba2Options(**{"chunk": 3, "state": 3, "groups": 2} | more)
    return Mamba2(12, heads, form=form, options=options).double()


def steps_and_decays(step: Tensor, log_A: Tensor) -> tuple[Tensor, Tensor]:
    delta = (1 + step.exp()).log()
    return delta, (-log_A.exp()[:, None] * delta).exp()


def plain(q: Tensor, k: Tensor, v: Tensor, step: Tensor, log_A: Tensor, skip: Tensor) -> Tensor:
    """The scan entry by entry."""
    delta, a = steps_and_decays(step, log_A)
    out = np.zeros(v.shape)
    for row, head, channel in np.ndindex(*v.shape[:2], v.shape[3]):
        state = [0.0] * q.shape[3]
        for t in range(q.shape[2]):
            value = v[row, head, t, channel].item()
            for r in range(len(state)):
                written = delta[row, head, t].item() * k[row, head, t, r].item() * value
                state[r] = a[row, head, t].item() * state[r] + written
                out[row, head, t, channel] += q[row, head, t, r].item() * state[r]
            out[row, head, t, channel] += skip[head].item() * value
    return torch.from_numpy(out)


@EVERY
def test_the_scan_in_plain_steps(form) -> None:
    given = drawn()
    torch.testing.assert_close(form(*given), plain(*given))


@pytest.mark.parametrize("size", [1, 2, 5, 13, 64])
def test_chunks_of_any_size(size: int) -> None:
    given = drawn()
    found = mamba2.chunked(*given, options=Mamba2Options(chunk=size))
    torch.testing.assert_close(found, mamba2.naive(*given))


# ---- the mask


def mask(n: int = 13) -> tuple[Tensor, Tensor]:
    """L of the first head, read from the map of queries and keys that are 1; and its decays."""
    _, _, _, step, log_A, _ = drawn(n)
    one, eye = torch.ones(2, 3, n, 1).double(), torch.eye(n).double().expand(2, 3, n, n)
    delta, a = steps_and_decays(step, log_A)
    L = mamba2.matrix(one, one, eye, step, log_A, torch.zeros(3).double()) / delta[..., None, :]
    return L[0, 0], a[0, 0]


def test_the_mask_is_one_semiseparable() -> None:
    """Blocks below the diagonal have rank 1, and one decay after the other multiplies."""
    L, a = mask()
    for cut in range(1, 13):
        assert torch.linalg.matrix_rank(L[cut:, :cut], rtol=1e-12) == 1
    for i, j, m in ((12, 7, 3), (9, 9, 0), (5, 4, 4)):
        torch.testing.assert_close(L[i, m], L[i, j] * L[j, m])
        torch.testing.assert_close(L[i, m].item(), math.prod(a[m + 1 : i + 1].tolist()))


def test_the_inverse_of_the_mask_has_two_diagonals() -> None:
    L, a = mask()
    wanted = torch.eye(13).double() - torch.diag(a[1:], -1)
    torch.testing.assert_close(torch.linalg.inv(L), wanted)


@torch.no_grad()
def test_sums_segment_by_segment_where_differences_are_wrong() -> None:
    """Beside log decays of -10²⁰ and -∞ a difference of running sums is 0 for -1/4, and NaN."""
    log_a = torch.tensor([-0.5, -1e20, -0.25, -math.inf, -0.125])
    sums = log_a.cumsum(0)
    assert sums[2] - sums[1] == 0
    assert (sums[4] - sums[3]).isnan()
    found = chunks.segments(log_a)
    assert found[2, 1] == -0.25
    assert found[4, 3] == -0.125
    assert found[4, 2] == -math.inf
    assert (found.diagonal() == 0).all()


# ---- limits


@EVERY
def test_heads_of_one_channel_are_the_scalar_scan_of_mamba(form) -> None:
    """Channels with steps of their own, B and C shared by all: lesson 36's scan."""
    torch.manual_seed(1)
    x, step = torch.randn(2, 2, 13, 6).double()
    B, C = torch.randn(2, 2, 13, 4).double()
    log_A, skip = torch.randn(2, 6).double()
    wanted = selective_scan.naive(x, log_A[:, None].expand(-1, 4), step, B, C, skip)
    q, k = (each[:, None].expand(-1, 6, -1, -1) for each in (C, B))
    found = form(q, k, x.mT[..., None], step.mT, log_A, skip)
    torch.testing.assert_close(found[..., 0].mT, wanted)


@EVERY
def test_a_constant_step_is_retention(form) -> None:
    q, k, v, step, _, skip = drawn()
    gamma = 1 - 2.0 ** (-5 - torch.arange(3).double())
    log_A = (-gamma.log()).log()
    one = torch.full_like(step, 1.0).expm1().log()  # its softplus is 1
    torch.testing.assert_close(form(q, k, v, one, log_A, 0 * skip), retention.naive(q, k, v))


@EVERY
def test_a_decay_of_one_is_linear_attention(form) -> None:
    q, k, v, step, log_A, skip = drawn()
    found = form(q, k, v, step, torch.full_like(log_A, -math.inf), skip)
    delta = F.softplus(step)[..., None]
    wanted = (q @ k.mT).tril() @ (delta * v) + skip[:, None, None] * v
    torch.testing.assert_close(found, wanted)


@EVERY
def test_equal_channels_of_gated_linear_attention(form) -> None:
    q, k, v, step, log_A, skip = drawn()
    delta, a = steps_and_decays(step, log_A)
    decay = torch.logit(a)[..., None].expand_as(k)
    options = gated_linear.GatedLinearOptions(temperature=1.0)
    wanted = gated_linear.naive(2 * q, k, delta[..., None] * v, decay, options=options)
    torch.testing.assert_close(form(q, k, v, step, log_A, 0 * skip), wanted)


@EVERY
def test_what_fades_at_once_leaves_the_token_alone(form) -> None:
    """Decays of e^(-10²⁰): o_t = Δ (q · k) v + D v, and no gradient is NaN."""
    q, k, v, step, _, skip = (x.requires_grad_() for x in drawn())
    out = form(q, k, v, step + 1, torch.full((3,), 46.0).double(), skip)
    alone = (q * k).sum(-1, keepdim=True) * F.softplus(step + 1)[..., None] * v
    torch.testing.assert_close(out, alone + skip[:, None, None] * v)
    for grad in torch.autograd.grad(out.square().sum(), (q, k, v, step, skip)):
        assert torch.isfinite(grad).all()


@EVERY
def test_a_step_of_zero_changes_nothing(form) -> None:
    """A token whose step is 0 neither fades nor writes: for others it might as well be absent."""
    q, k, v, step, log_A, skip = drawn()
    without = [torch.cat((x[:, :, :5], x[:, :, 6:]), 2) for x in (q, k, v, step)]
    step = step.index_fill(2, torch.tensor(5), -1000.0)
    found = form(q, k, v, step, log_A, skip)
    wanted = form(*without, log_A, skip)
    torch.testing.assert_close(torch.cat((found[:, :, :5], found[:, :, 6:]), 2), wanted)


# ---- Hugging Face's mixer


def mixer(groups: int, **more):
    pytest.importorskip("transformers.models.mamba2")
    from transformers.models.mamba2.configuration_mamba2 import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer, MambaRMSNormGated

    if groups > 1 and "group_size" not in inspect.signature(MambaRMSNormGated).parameters:
        pytest.skip("this version of transformers has one norm for all groups")
    torch.manual_seed(3)
    config = Mamba2Config(
        hidden_size=14, num_heads=4, head_dim=7, expand=2, state_size=5, n_groups=groups,
        conv_kernel=4, chunk_size=16, num_hidden_layers=1,
    )  # fmt: skip
    theirs = Mamba2Mixer(config, 0).eval()
    with torch.no_grad():
        for each in theirs.parameters():
            each.add_(0.3 * torch.randn_like(each))
    options = Mamba2Options(state=5, groups=groups)
    return theirs, Mamba2(14, 4, options=options, **more)


def take(mine: Mamba2, theirs, groups: int) -> None:
    """Copy the weights: gate, values, keys, queries and steps lie in one projection."""
    N, channels = 5 * groups, 28

    def turned(x: Tensor) -> Tensor:
        """Values, keys, queries as queries, keys, values."""
        v, k, q = x.split((channels, N, N))
        return torch.cat((q, k, v))

    with torch.no_grad():
        gate, inputs, step = theirs.in_proj.weight.split((channels, channels + 2 * N, 4))
        mine.into.weight.copy_(turned(inputs))
        mine.taps.copy_(turned(theirs.conv1d.weight[:, 0]).flip(1))
        mine.bias.copy_(turned(theirs.conv1d.bias))
        mine.steps.weight.copy_(step)
        mine.steps.bias.copy_(theirs.dt_bias)
        mine.log_A.copy_(theirs.A_log)
        mine.skip.copy_(theirs.D)
        mine.heads.output.gate.weight.copy_(gate)
        mine.heads.output.gain.copy_(theirs.norm.weight)
        mine.heads.output.project.weight.copy_(theirs.out_proj.weight)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_mixer_of_hugging_face(form: str, groups: int) -> None:
    """With its weights copied, and padding at the left."""
    theirs, mine = mixer(groups, form=form)
    take(mine, theirs, groups)
    x = torch.randn(2, 67, 14)
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-3, atol=1e-4)
    real = torch.arange(67) >= torch.tensor([[0], [20]])
    wanted = theirs(x, attention_mask=real.long())
    torch.testing.assert_close(mine(x, real)[real], wanted[real], rtol=1e-3, atol=1e-4)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = made.taken(x)
    eye = torch.eye(11).double().expand(2, 4, -1, -1)
    torch.testing.assert_close(found.matrix, mamba2.naive(q, k, eye, *gates))


def test_heads_of_a_group_share_queries_and_keys() -> None:
    made = layer()
    q, k, *_ = made.taken(sequence(made))
    for x in (q, k):
        assert torch.equal(x[:, 0], x[:, 1])
        assert torch.equal(x[:, 2], x[:, 3])
        assert not torch.equal(x[:, 1], x[:, 2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = Mamba2(12, 3, options=Mamba2Options(state=4))
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12 times expand=2"):
        Mamba2(12, 5)
    with pytest.raises(ValueError, match="groups=2 does not divide heads=3"):
        layer(heads=3)
