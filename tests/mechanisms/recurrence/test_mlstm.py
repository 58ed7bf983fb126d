"""mLSTM: the plain recurrence, the stabiliser, its limits, extreme gates, xLSTM's layer."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import mlstm
from attnlab.mechanisms.recurrence.deltanet import DeltaNet
from attnlab.mechanisms.recurrence.mlstm import FORMS, MLSTM, MLSTMOptions, State
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    rows = [torch.randn(2, 3, n, width).double() for width in (d, d, 5)]
    return [*rows, *(2 * torch.randn(2, 2, 3, n).double()).unbind(0)]


def layer(form: str = "chunked", **more) -> MLSTM:
    torch.manual_seed(2)
    return MLSTM(12, 3, form=form, options=MLSTMOptions(chunk=3), **more).double()


def plain(q: Tensor, k: Tensor, v: Tensor, write: Tensor, keep: Tensor) -> Tensor:
    """The paper's recurrence without a stabiliser, in NumPy, one token and one head at a time."""
    out = np.zeros(v.shape)
    for row, head in np.ndindex(*q.shape[:2]):
        C, n = np.zeros((v.shape[3], k.shape[3])), np.zeros(k.shape[3])
        for t in range(q.shape[2]):
            query, key, value, i, f = (x[row, head, t].numpy() for x in (q, k, v, write, keep))
            f, i = 1 / (1 + np.exp(-f)), np.exp(i)
            C = f * C + i * np.outer(value, key)
            n = f * n + i * key
            query = query / np.sqrt(len(query))
            out[row, head, t] = C @ query / max(abs(n @ query), 1)
    return torch.from_numpy(out)


@EVERY
def test_the_recurrence_without_a_stabiliser(form) -> None:
    given = drawn()
    torch.testing.assert_close(form(*given), plain(*given))


@pytest.mark.parametrize("chunk", [1, 3, 5, 13, 64])
def test_chunks_of_any_size(chunk: int) -> None:
    given = [x.requires_grad_() for x in drawn()]
    wanted, found = mlstm.naive(*given), mlstm.chunked(*given, options=MLSTMOptions(chunk=chunk))
    torch.testing.assert_close(found, wanted)
    both = (torch.autograd.grad(out.square().sum(), given) for out in (found, wanted))
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("start", [-30.0, 0.0, 7.5])
def test_the_stabiliser_cancels_whatever_it_starts_with(start: float) -> None:
    """The same C and n, kept times another e^(-m)."""
    q, k, v, write, keep = drawn()
    C, n = torch.randn(2, 3, 4, 5).double(), torch.randn(2, 3, 4).double()
    m = torch.full((2, 3), start).double()
    states = (State(C, n, 0 * m), State(C * np.exp(-start), n * np.exp(-start), m))
    wanted, found = (
        mlstm.advance(q, k, v, write, keep, state, MLSTMOptions(chunk=4)) for state in states
    )
    torch.testing.assert_close(found[0], wanted[0])
    (C, n, m), (C2, n2, m2) = wanted[1], found[1]
    torch.testing.assert_close(C * m.exp()[..., None, None], C2 * m2.exp()[..., None, None])
    torch.testing.assert_close(n * m.exp()[..., None], n2 * m2.exp()[..., None])


def test_a_bound_of_one_beside_a_scaled_state_is_another_model() -> None:
    q, k, v, write, keep = drawn()
    D = torch.tensor(0.0)
    out = mlstm.naive(q, k, v, write - 3, keep)
    log_f, m = F.logsigmoid(keep), mlstm.largest_exponents(F.logsigmoid(keep), write - 3, D + 0)
    pairs = (q / 2 @ k.mT).tril()
    sums = log_f.cumsum(-1)
    w = pairs * (sums[..., None] - sums[..., None, :] + (write - 3)[..., None, :]).exp().tril()
    right = w @ v / torch.maximum(w.sum(-1, keepdim=True).abs(), torch.ones(()))
    torch.testing.assert_close(out, right)
    scaled = w * (-m).exp()[..., None]
    wrong = scaled @ v / torch.maximum(scaled.sum(-1, keepdim=True).abs(), torch.ones(()))
    assert (wrong - right).abs().max() > 0.1


def test_largest_exponents_token_by_token() -> None:
    *_, write, keep = drawn(37)
    log_f, start = F.logsigmoid(keep), torch.randn(2, 3).double()
    found, m = mlstm.largest_exponents(log_f, write, start), start
    for t in range(37):
        m = torch.maximum(log_f[..., t] + m, write[..., t])
        torch.testing.assert_close(found[..., t], m)


# ---- limits


@EVERY
def test_large_gates_are_linear_attention_with_its_denominator(form) -> None:
    """f = 1, equal large i and positive products: the mean of the values by q · k."""
    q, k, v, write, keep = drawn()
    q, k = q.abs(), k.abs()
    weights = (q @ k.mT).tril()
    wanted = weights @ v / weights.sum(-1, keepdim=True)
    found = form(q, k, v, torch.full_like(write, 300.0), torch.full_like(keep, 1e3))
    torch.testing.assert_close(found, wanted)


@EVERY
def test_small_gates_are_linear_attention_without_a_denominator(form) -> None:
    q, k, v, write, keep = drawn()
    small = torch.full_like(write, -12.0)
    found = form(q, k, v, small, torch.full_like(keep, 1e3))
    wanted = np.exp(-12.0) * (q / 2 @ k.mT).tril() @ v
    torch.testing.assert_close(found, wanted)


@EVERY
def test_one_token_can_outweigh_all_before_it(form) -> None:
    """After a gate of e^40 the result is its value, for all who read it, until another comes."""
    q, k, v, write, keep = drawn()
    write = write.clone()
    write[:, :, 5] += 40
    out = form(q, k, v, write, torch.full_like(keep, 1e3))
    sign = (q[:, :, 5:] * k[:, :, 5:6]).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(out[:, :, 5:], sign * v[:, :, 5:6].expand_as(out[:, :, 5:]))


# ---- extreme gates


@EVERY
@pytest.mark.parametrize("write", [-torch.inf, -1e20, -2000.0, 2000.0, 1e20])
@pytest.mark.parametrize("keep", [-1e20, 0.0, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_gates(form, write: float, keep: float, dtype: torch.dtype) -> None:
    """Nothing is NaN or infinite, gradients neither; no row of weights is longer than 1."""
    q, k, v, i, f = (x.to(dtype) for x in drawn())
    given = [q, k, v, torch.full_like(i, write), torch.full_like(f, keep)]
    given = [x.requires_grad_() for x in given]
    out = form(*given)
    for grad in (out, *torch.autograd.grad(out.square().sum(), given)):
        assert grad.isfinite().all()
    if write < 0:
        assert (out == 0).all()
    elif keep == -1e20:
        sign = (given[0] * given[1]).sum(-1, keepdim=True).sign()
        torch.testing.assert_close(out, sign * given[2])


@EVERY
def test_a_few_extreme_gates_among_others(form) -> None:
    """A gate that is closed for good, one that outweighs all, one that writes nothing: exact."""
    q, k, v, write, keep = drawn()
    keep[:, :, 4] = -1e20  # tokens 0 to 3 are gone
    write[:, :, 7] = -1e20  # token 7 is not written
    found = form(q, k, v, write, keep)
    real = [t for t in range(4, 13) if t != 7]
    log_f = F.logsigmoid(keep)
    for t in real:
        w = torch.stack(
            [
                (q[:, :, t] * k[:, :, j]).sum(-1)
                / 2
                * (log_f[:, :, j + 1 : t + 1].sum(-1) + write[:, :, j]).exp()
                for j in real
                if j <= t
            ],
            dim=-1,
        )
        read = torch.stack([v[:, :, j] for j in real if j <= t], dim=2)
        norm = w.sum(-1, keepdim=True).abs().clamp(min=1)
        torch.testing.assert_close(found[:, :, t], ((w / norm)[..., None] * read).sum(2))


@pytest.mark.parametrize("seed", range(5))
def test_gates_of_all_sizes_in_single_precision(seed: int) -> None:
    """Between ±1e20 the m of spans is rounded by 1e13; no factor is, and no sum vanishes."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 3, 61, width, generator=generator) for width in (4, 4, 5))
    write, keep = (size * torch.randn(2, 3, 61, generator=generator) for size in (1e20, 1e18))
    assert mlstm.chunked(q, k, v, write, keep).isfinite().all()


# ---- Hugging Face's layer


def xlstm(**more):
    modeling = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
    if modeling.external_xlstm:
        pytest.skip("the package xlstm is installed, and its layers take the place of these")
    from transformers.models.xlstm.configuration_xlstm import xLSTMConfig

    torch.manual_seed(3)
    config = xLSTMConfig(
        hidden_size=12, num_heads=3, num_hidden_layers=1, eps=0.0, chunk_size=1024,
    )  # fmt: skip
    theirs = modeling.xLSTMLayer(config).double()
    with torch.no_grad():
        for each in theirs.parameters():
            each.add_(0.5 * torch.randn_like(each))
    return theirs, MLSTM(12, 3, head_dim=2, value_dim=4, **more).double()


def take(mine: MLSTM, theirs) -> None:
    """Copy the weights of xLSTM's layer."""
    with torch.no_grad():
        mine.into.weight.copy_(torch.cat((theirs.q.weight, theirs.k.weight, theirs.v.weight)))
        for own, other in ((mine.write, theirs.igate_preact), (mine.keep, theirs.fgate_preact)):
            own.weight.copy_(other.weight)
            own.bias.copy_(other.bias)
        mine.heads.output.gate.weight.copy_(theirs.ogate_preact.weight)
        mine.heads.output.gain.copy_(theirs.multihead_norm.weight)
        mine.heads.output.project.weight.copy_(theirs.out_proj.weight)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_layer_of_xlstm(form: str) -> None:
    """With its weights copied; without the 1e-6 that it adds to its scaled denominator."""
    theirs, mine = xlstm(form=form)
    take(mine, theirs)
    x = 3 * torch.randn(2, 67, 12).double()
    wanted, state = theirs(x)
    torch.testing.assert_close(mine(x), wanted, rtol=1e-3, atol=1e-4)
    own = mine.step(x)[1]
    C, n, m = state
    torch.testing.assert_close(own.sums, C.double(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(own.normaliser, n.double(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(own.largest, m[..., 0].double(), rtol=1e-3, atol=1e-4)


def test_gates_are_capped() -> None:
    made, x = layer(), 1e6 * sequence(layer())
    write, keep = made._gates(x)
    for each in (write, keep):
        assert 14.9 < each.abs().max() <= 15
    free = MLSTM(12, 3, options=MLSTMOptions(cap=None)).double()
    free.load_state_dict(made.state_dict())
    torch.testing.assert_close(free._gates(x)[0], (x @ made.write.weight.mT + made.write.bias).mT)


@pytest.mark.parametrize("cap", [0.0, -1.0])
def test_a_cap_that_is_not_positive(cap: float) -> None:
    with pytest.raises(ValueError, match=f"cap={cap} should be positive"):
        MLSTMOptions(cap=cap)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact_and_signed(form: str) -> None:
    made = layer(form, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _, *gates = made.taken(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    torch.testing.assert_close(found.matrix, mlstm.naive(q, k, eye, *gates))
    assert (found.matrix < 0).any()
    assert found.matrix.sum(-1).abs().max() <= 1 + 1e-9


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
    made = MLSTM(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_a_state_of_another_family_is_refused() -> None:
    made, x = layer(), sequence(layer())
    other = DeltaNet(12, 3).double().step(x)[1]
    with pytest.raises((ValueError, TypeError), match="state"):
        made.step(x, other)
