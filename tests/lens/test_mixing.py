"""Mixing matrices: exact where linear, the Jacobian's norm elsewhere, and it says which."""

from functools import partial

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.heads import Heads
from attnlab.core.patterns import causal
from attnlab.lens.mixing import mixing_matrix, mixing_of
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense import full, multi_query

B, N, M, HEADS, DIM = 2, 11, 13, 6, 18  # heads of width 3: several calls for the one-hot values
REAL = torch.arange(N) < torch.tensor([[N], [N - 2]])
MODULES = {
    **{form: partial(full.FullAttention, form=form) for form in full.CARD.forms},
    **{
        f"grouped {form}": partial(multi_query.MultiQueryAttention, kv_heads=3, form=form)
        for form in multi_query.CARD.forms
    },
}


@pytest.mark.parametrize("which", MODULES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_softmax_attention_mixes_by_its_weights(which, is_causal, padded):
    module = MODULES[which](DIM, HEADS, causal=is_causal, bias=True).double()
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    pads = REAL if padded else None
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]
    mixing = mixing_matrix(module, x, padding=pads)
    assert mixing.exact
    assert "one-hot" in mixing.how
    assert "exact" in repr(mixing)
    assert mixing.matrix.shape == (B, HEADS, N, N)
    with watch(module) as seen:
        module(x, pads)
    weights = seen[0].weights if pads is None else seen[0].weights * pads[:, None, :, None]
    assert torch.allclose(mixing.matrix, weights, atol=1e-12)
    after = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]
    assert after == hooks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precisions_are_still_exact(dtype):
    module = full.FullAttention(DIM, HEADS).to(dtype)
    assert mixing_matrix(module, torch.randn(B, N, DIM, dtype=dtype)).exact


class Headed(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.heads, self.mix = Heads(DIM, HEADS).double(), mix

    def forward(self, x):
        return self.heads.merge(self.mix(*self.heads.project(x)))


def test_a_mechanism_without_weights_that_is_linear():
    """Linear attention, x ↦ φ(q)(φ(k)ᵀ v) / normaliser, against its own dense matrix."""

    def mix(q, k, v):
        q, k = q.exp(), k.exp()
        return (q @ (k.mT @ v)) / (q @ k.sum(-2, keepdim=True).mT)

    module = Headed(mix)
    x = torch.randn(B, N, DIM, dtype=torch.float64)
    mixing = mixing_matrix(module, x)
    q, k, _ = module.heads.project(x)
    dense = q.exp() @ k.exp().mT
    assert mixing.exact
    assert torch.allclose(mixing.matrix, dense / dense.sum(-1, keepdim=True), atol=1e-12)


@pytest.mark.parametrize(
    "mix",
    [
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v.square(),  # one-hot values cannot tell
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v + 1,
        lambda q, k, v: (v @ v.mT).softmax(-1) @ v,
    ],
    ids=["squared values", "a constant", "weights from values"],
)
def test_what_is_not_linear_is_not_called_exact(mix):
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    module = Headed(mix)
    mixing = mixing_matrix(module, x)
    assert not mixing.exact
    assert "not linear" in mixing.how
    assert torch.allclose(mixing.matrix, jacobian_norms(module, x), atol=1e-10)


def test_a_constant_that_a_layer_adds_is_left_out():
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    constant = torch.randn(5, 1, dtype=torch.float64)
    module = Headed(lambda q, k, v: (q @ k.mT).softmax(-1) @ v + constant)
    module.adds_constant = True
    mixing = mixing_matrix(module, x)
    q, k, _ = module.heads.project(x)
    assert mixing.exact
    assert "with a constant" in mixing.how
    assert torch.allclose(mixing.matrix, (q @ k.mT).softmax(-1), atol=1e-12)


def test_a_structure_for_a_layer_that_is_told_none():
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    with pytest.raises(ValueError, match="structure is for layers that are told one"):
        mixing_matrix(Headed(lambda q, k, v: v), x, structure="a tree")


def jacobian_norms(function, x):
    """By torch's own full Jacobian: (b, n, dim, b, m, dim) → (b, n, m)."""
    whole = torch.autograd.functional.jacobian(function, x)
    rows = torch.stack([whole[i, :, :, i] for i in range(len(x))])
    return rows.square().sum((2, 4)).sqrt()


def lstm():
    return nn.LSTM(DIM, 5, batch_first=True).double()


def convolution():
    layer = nn.Conv1d(DIM, 7, 3, padding=1).double()
    return lambda x: layer(x.mT).mT


def fourier():
    return lambda x: torch.fft.fft2(x).real


@pytest.mark.parametrize("make", [lstm, convolution, fourier], ids=lambda f: f.__name__)
def test_modules_without_values_have_a_jacobian(make):
    module = make()
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    mixing = mixing_matrix(module, x)

    def first(x):
        out = module(x)
        return out[0] if isinstance(out, tuple) else out

    assert not mixing.exact
    assert "Frobenius" in mixing.how
    assert mixing.matrix.shape == (B, 5, 5)
    assert torch.allclose(mixing.matrix, jacobian_norms(first, x), atol=1e-10)
    if make is convolution:  # the map shows the band
        distance = (torch.arange(5) - torch.arange(5)[:, None]).abs()
        assert torch.equal(mixing.matrix > 0, (distance <= 1).expand(B, 5, 5))
    if make is lstm:
        assert not mixing.matrix.triu(1).any()


def test_no_gradient_is_left_on_parameters():
    module = nn.GRU(DIM, 5, batch_first=True)
    with torch.no_grad():
        mixing_matrix(module, torch.randn(B, N, DIM))
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("form", full.CARD.forms)
def test_functional_forms(form):
    q, k, v = (
        torch.randn(B, HEADS, n, w, dtype=torch.float64) for n, w in ((N, 3), (M, 3), (M, 5))
    )
    mixing = mixing_of(partial(full.CARD.forms[form], mask=causal()), q, k, v)
    allowed = torch.ones(N, M, dtype=torch.bool).tril(M - N)
    expected = (q @ k.mT * 3**-0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
    assert mixing.exact
    assert torch.allclose(mixing.matrix, expected, atol=1e-6)
    assert torch.allclose(mixing.matrix, expected, atol=1e-12)


@pytest.mark.parametrize("g", [HEADS, 2])
def test_functional_forms_that_are_not_linear(g):
    def form(q, k, v):
        weights = (q @ k.repeat_interleave(HEADS // g, 1).mT).softmax(-1)
        return (weights @ v.repeat_interleave(HEADS // g, 1)).tanh()

    q = torch.randn(B, HEADS, 5, 3, dtype=torch.float64)
    k, v = (torch.randn(B, g, 7, w, dtype=torch.float64) for w in (3, 5))
    mixing = mixing_of(form, q, k, v)
    whole = torch.autograd.functional.jacobian(lambda v: form(q, k, v), v)  # b h n e b g m e
    whole = torch.stack([whole[i, :, :, :, i] for i in range(B)]).square().sum((3, 6))  # b h n g m
    if g == HEADS:
        expected = torch.stack([whole[:, h, :, h] for h in range(HEADS)], 1).sqrt()
    else:
        expected = whole.sum((1, 3)).sqrt()
    assert not mixing.exact
    assert torch.allclose(mixing.matrix, expected, atol=1e-10)


def test_bad_input_is_reported():
    x = torch.randn(B, N, DIM)
    with pytest.raises(ValueError, match="two calls with the same input differ"):
        mixing_matrix(nn.Dropout(0.5), x)
    with pytest.raises(ValueError, match=r"x should be floating-point of shape \(b, n, dim\)"):
        mixing_matrix(nn.Identity(), x[0])
    with pytest.raises(ValueError, match="floating-point"):
        mixing_matrix(nn.Identity(), x.long())
    with pytest.raises(TypeError, match="callable"):
        mixing_matrix("full", x)
    with pytest.raises(ValueError, match="3 axes"):
        mixing_matrix(lambda x: x.sum(), x)
    with pytest.raises(ValueError, match="differentiable"):
        mixing_matrix(lambda x: x.sign().detach(), x)


def test_norms_per_head_of_what_mixes_channels_too():
    """o_i = softmax(q k) (v A): each head's block ∂o_i/∂v_j is w_ij A, of norm w_ij ‖A‖."""
    matrix = torch.randn(3, 3, dtype=torch.float64)
    module = Headed(lambda q, k, v: (q @ k.mT).softmax(-1) @ (v @ matrix))
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    q, k, _ = module.heads.project(x)
    assert mixing_matrix(module, x).matrix.shape == (B, 5, 5)
    mixing = mixing_matrix(module, x, per_head=True)
    assert not mixing.exact
    assert torch.allclose(mixing.matrix, (q @ k.mT).softmax(-1) * matrix.norm(), atol=1e-10)


def test_norms_estimated_from_a_few_directions():
    module = Headed(lambda q, k, v: (v @ v.mT).softmax(-1) @ v)
    x = torch.randn(B, 5, DIM, dtype=torch.float64)
    whole = mixing_matrix(module, x)
    few = mixing_matrix(module, x, directions=9)
    assert "estimated from 9 random directions" in few.how
    assert not torch.allclose(few.matrix, whole.matrix, rtol=1e-3)
    assert torch.allclose(few.matrix, whole.matrix, rtol=0.4)
    every = mixing_matrix(module, x, directions=DIM)
    assert torch.allclose(every.matrix, whole.matrix, atol=1e-10)


def test_rows_that_share_a_backward_pass():
    """Even positions read themselves, odd ones the even one before: two groups of rows."""

    def pairs(x):
        return torch.cat([x[:, :1].sin(), x[:, :1].exp(), x[:, 2:3].sin(), x[:, 2:3].exp()], 1)

    x = torch.randn(B, 4, 3, dtype=torch.float64)
    mixing = mixing_matrix(pairs, x)
    assert torch.allclose(mixing.matrix, jacobian_norms(pairs, x), atol=1e-10)
    assert (mixing.matrix > 0).sum() == 4 * B


def test_complex_attention_and_added_vectors_mix_exactly():
    x = torch.randn(B, 5, 16, dtype=torch.float64)
    for name, options in (("complex_attention", {}), ("shaw", {"clip": 2})):
        module = attnlab.build(name, dim=16, heads=2, **options).double()
        mixing = mixing_matrix(module, x)
        with watch(module) as seen:
            module(x)
        assert mixing.exact, name
        assert torch.allclose(mixing.matrix, seen[0].weights, atol=1e-10), name
