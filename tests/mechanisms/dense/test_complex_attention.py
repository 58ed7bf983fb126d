"""Complex attention against hand-computed numbers, softmax attention and the paper's properties."""

import functools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.core.complex_linear import ComplexLinear, as_complex, as_pairs
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.mechanisms.dense.complex_attention import FORMS, ComplexAttention, Modulus, naive
from attnlab.mechanisms.dense.complex_attention.heads import ComplexHeads
from attnlab.mechanisms.positions import complex_embedding

C = torch.complex128
BOTH = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, 3, 7, 5), (2, 3, 13, 5), (2, 3, 13, 11))
    return tuple(torch.randn(s, dtype=C) for s in shapes)  # type: ignore[return-value]


@BOTH
def test_by_hand(form) -> None:
    """q = 1, k = (i log 3, 0), d = 1: moduli log 3 and 0, so the weights are 3/4 and 1/4."""
    q = torch.ones(1, 1, 1, 1, dtype=C)
    k = torch.tensor([[[[1j * math.log(3)], [0]]]], dtype=C)
    v = torch.tensor([[[[4.0], [8j]]]], dtype=C)
    torch.testing.assert_close(form(q, k, v).flatten(), torch.tensor([3 + 2j], dtype=C))
    with record() as notes:
        form(q, k, v, score="real")
    torch.testing.assert_close(notes["weights"][0].flatten(), torch.full((2,), 0.5).double())


@BOTH
def test_non_negative_real_scores_are_softmax_attention(form) -> None:
    """|z| drops a sign, so real vectors give softmax attention only where no score is negative."""
    q, k, v = (torch.rand(2, 3, n, 5, dtype=torch.float64) for n in (7, 13, 13))
    expected = F.scaled_dot_product_attention(q, k, v)
    out = form(q.to(C), k.to(C), v.to(C))
    torch.testing.assert_close(out, expected.to(C))
    out = form(q.to(C), -k.to(C), v.to(C))
    torch.testing.assert_close(out, expected.to(C))
    assert not torch.allclose(F.scaled_dot_product_attention(q, -k, v), expected)


@BOTH
def test_real_parts_of_real_vectors_are_softmax_attention(form) -> None:
    q, k, v = (torch.randn(2, 3, n, 5, dtype=torch.float64) for n in (7, 13, 13))
    out = form(q.to(C), k.to(C), v.to(C), score="real")
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v).to(C))


@BOTH
def test_real_part_is_the_product_of_pairs(form, qkv: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v = qkv
    expected = F.scaled_dot_product_attention(*map(as_pairs, qkv), scale=q.shape[-1] ** -0.5)
    torch.testing.assert_close(as_pairs(form(q, k, v, score="real")), expected)


@BOTH
@pytest.mark.parametrize("score", ["modulus", "real", "unconjugated"])
def test_a_common_phase_turns_the_output_alone(form, score, qkv) -> None:
    turn = torch.polar(torch.ones(()).double(), torch.tensor(0.7).double())
    out = form(*qkv, score=score)
    torch.testing.assert_close(form(*(turn * x for x in qkv), score="modulus"), turn * form(*qkv))
    turned = form(*(turn * x for x in qkv), score=score)
    same = torch.allclose(turned, turn * out)
    assert same  # |q k| and |q k†| ignore it; the real part of q k† does as both turn


def waves(n: int, start: int, shared: str) -> Tensor:
    """One word repeated and others between, at positions start …; (1, 1, n, 5)."""
    torch.manual_seed(3)
    options = complex_embedding.ComplexEmbeddingOptions(frequencies=shared, start="uniform")
    layer = complex_embedding.ComplexEmbedding(4, 5, options=options).double()
    return layer(torch.tensor([[0, 1, 2, 0, 3, 1, 0]])[:, :n], torch.arange(n) + start)[None]


def seen_scores(form, x: Tensor, score: str) -> Tensor:
    with record() as notes:
        form(x, x, x, score=score)
    return notes["scores"][0][0, 0]


@BOTH
def test_conjugated_scores_are_relative_where_words_share_frequencies(form) -> None:
    for score, shared, relative in (
        ("modulus", "words", True),
        ("real", "words", True),
        ("unconjugated", "words", False),
        ("modulus", "none", False),
    ):
        here, there = (seen_scores(form, waves(7, start, shared), score) for start in (0, 5))
        assert torch.allclose(here, there) == relative, (score, shared)
        if relative:  # the word 0 stands at 0, 3 and 6
            torch.testing.assert_close(here[0, 3], here[3, 6])


@BOTH
def test_scores_of_one_word_are_toeplitz(form) -> None:
    layer = complex_embedding.ComplexEmbedding(1, 5).double()
    scores = seen_scores(form, layer(torch.zeros(1, 6).long(), torch.arange(6))[None], "modulus")
    for offset in range(-5, 6):
        line = scores.diagonal(offset)
        torch.testing.assert_close(line, line[:1].expand(len(line)))
    assert len(scores.round(decimals=6).unique()) > 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradient_of_the_modulus(dtype) -> None:
    """Also where a number is 0, or so small that one divided by it is no number of float16."""
    made = torch.tensor([[3.0, 4.0], [0.0, 0.0], [6e-8, 0.0], [-5.0, 0.0]], dtype=dtype)
    real, imag = (x.clone().requires_grad_() for x in made.unbind(-1))
    Modulus.apply(real, imag).sum().backward()
    rough = {"rtol": 1e-2, "atol": 1e-3}
    wanted = torch.tensor([0.6, 0.0, 1.0, -1.0]), torch.tensor([0.8, 0.0, 0.0, 0.0])
    torch.testing.assert_close(real.grad, wanted[0].to(dtype), **rough)
    torch.testing.assert_close(imag.grad, wanted[1].to(dtype), **rough)


@BOTH
def test_gradient_where_the_product_is_zero(form) -> None:
    """|z| has no derivative at 0; the gradient is 0, never NaN."""
    q, k, v = (torch.randn(1, 1, n, 2, dtype=C) for n in (3, 4, 4))
    q[..., 0, :] = 0
    k[..., 1, :] = 0
    made = [x.requires_grad_() for x in (q, k, v)]
    grads = torch.autograd.grad(form(*made).abs().square().sum(), made)
    assert all(torch.isfinite(g).all() for g in grads)
    assert (grads[0][..., 0, :] == 0).all()
    assert (grads[1][..., 1, :] == 0).all()
    assert (grads[0][..., 1, :] != 0).all()


@BOTH
def test_gradients_by_finite_differences(form) -> None:
    made = [torch.randn(1, 2, n, 2, dtype=C, requires_grad=True) for n in (2, 3, 3)]
    for score in ("modulus", "real", "unconjugated"):
        assert torch.autograd.gradcheck(functools.partial(form, score=score), made)


@BOTH
def test_tiny_and_huge_products(form) -> None:
    q, k, v = (torch.randn(1, 1, n, 2, dtype=torch.complex64) for n in (3, 4, 4))
    for size in (1e-25, 1e25):
        with record() as notes:
            form(q * size, k, v)
        assert torch.isfinite(notes["scores"][0]).all()
        torch.testing.assert_close(
            notes["scores"][0] / size, naive_scores(q, k), rtol=1e-5, atol=1e-6
        )


def naive_scores(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mH).abs() * q.shape[-1] ** -0.5


# ---- linear maps


def test_complex_linear_is_the_real_block_matrix() -> None:
    layer = ComplexLinear(6, 10, bias=True).double()
    x = torch.randn(2, 7, 3, dtype=C)
    a, b = layer.weight
    matrix, bias = torch.complex(a, b), torch.complex(*layer.bias)
    torch.testing.assert_close(as_complex(layer(as_pairs(x))), x @ matrix.T + bias)
    block = torch.cat([torch.cat([a.T, b.T], 1), torch.cat([-b.T, a.T], 1)])  # on rows [x, y]
    out = as_pairs(x) @ block + torch.cat([bias.real, bias.imag])
    torch.testing.assert_close(layer(as_pairs(x)), out)


@pytest.mark.parametrize("bias", [False, True])
def test_bound_weights_are_free_ones_bound(bias: bool) -> None:
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    for bound, second in (("equal", 1), ("real", 0)):
        layer = ComplexLinear(6, 10, bias=bias, weights=bound).double()
        free = ComplexLinear(6, 10, bias=bias).double()
        free.weight.data = torch.cat([layer.weight, second * layer.weight]).detach()
        if bias:
            assert layer.bias.numel() == 5 * (2 - second)  # c = d where A = B
            free.bias.data = layer.bias.detach().expand(2, -1).clone()
        torch.testing.assert_close(layer(x), free(x))
        assert layer.weight.numel() == free.weight.numel() / 2


def test_three_products_equal_four() -> None:
    layer = ComplexLinear(6, 10, bias=True).double()
    fast = ComplexLinear(6, 10, bias=True, karatsuba=True).double()
    fast.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    torch.testing.assert_close(fast(x), layer(x))
    assert count(layer, x).flops == 4 * 2 * 14 * 3 * 5
    assert count(fast, x).flops == 3 * 2 * 14 * 3 * 5


def test_parameter_counts() -> None:
    """dim = 64: four complex 32 × 32 matrices, half of a real layer's four 64 × 64."""
    full = sum(p.numel() for p in attnlab.build("full", dim=64, heads=4).parameters())
    for options, expected in (({}, full // 2), ({"weights": "equal"}, full // 4)):
        layer = attnlab.build("complex_attention", dim=64, heads=4, **options)
        assert sum(p.numel() for p in layer.parameters()) == expected == 8192 / (1 + len(options))


# ---- module


def test_module_is_the_paper_s_equation() -> None:
    """Projections, heads and output in complex numbers, one head at a time."""
    layer = ComplexAttention(12, 3).double()
    x = torch.randn(2, 7, 6, dtype=C)
    w = {name: torch.complex(*getattr(layer.heads, name).weight) for name in
         ("query", "key", "value", "output")}  # fmt: skip
    q, k, v = (x @ w[name].T for name in ("query", "key", "value"))
    outs = [
        naive(*(each[:, None, :, 2 * head : 2 * head + 2] for each in (q, k, v)))[:, 0]
        for head in range(3)
    ]
    torch.testing.assert_close(as_complex(layer(as_pairs(x))), torch.cat(outs, -1) @ w["output"].T)


def test_module_turns_with_its_input() -> None:
    """The whole layer commutes with a common phase, as no bias stands in the way."""
    layer = ComplexAttention(12, 3).double()
    x, turn = torch.randn(2, 7, 6, dtype=C), torch.polar(torch.ones(()), torch.tensor(2.0)).to(C)
    torch.testing.assert_close(
        layer(as_pairs(turn * x)), as_pairs(turn * as_complex(layer(as_pairs(x))))
    )


def test_heads_split_and_join() -> None:
    heads = ComplexHeads(12, 3)
    x = torch.arange(24.0).view(1, 2, 12)
    split = heads.split(x, 4)
    assert split.shape == (1, 3, 2, 4)
    assert split[0, 1, 0].tolist() == [2, 3, 8, 9]  # the second head's real, then imaginary parts
    assert torch.equal(heads.join(split), x)


def test_half_precision_module() -> None:
    layer, x = ComplexAttention(12, 3), torch.randn(2, 7, 12)
    out = layer.bfloat16()(x.bfloat16())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), layer.float()(x), rtol=0.05, atol=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x).float(), layer(x).float())


def test_counted_flops_are_the_card_s() -> None:
    q, k = torch.randn(2, 1, 3, 17, 5, dtype=torch.complex64)
    v = torch.randn(1, 3, 17, 7, dtype=torch.complex64)
    claim = attnlab.card("complex_attention").cost("time", "real_pairs")
    sizes = {"h": 3, "n": 17, "m": 17, "d": 5, "e": 7}
    claimed = int(claim.subs({s: sizes[s.name] for s in claim.free_symbols}))
    form = FORMS["real_pairs"]
    assert count(form, q, k, v).flops == claimed == 4 * 3 * 17 * 17 * (2 * 5 + 7)
    half = functools.partial(form, score="real")
    assert count(half, q, k, v).flops == 4 * 3 * 17 * 17 * (5 + 7)


def test_four_times_the_products_of_a_real_layer() -> None:
    """As many complex numbers as the real layer has real ones: projections 4, mixing 3 times."""
    x, pairs = torch.randn(1, 32, 24), torch.randn(1, 32, 48)
    real = count(attnlab.build("full", dim=24, heads=3), x).flops
    mixing = 4 * 32 * 32 * 24
    four = count(attnlab.build("complex_attention", dim=48, heads=3), pairs).flops
    three = count(attnlab.build("complex_attention", dim=48, heads=3, karatsuba=True), pairs).flops
    assert four == 4 * (real - mixing) + 3 * mixing
    assert three == 3 * (real - mixing) + 3 * mixing


def test_calls_that_make_no_sense(qkv: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v = qkv
    with pytest.raises(ValueError, match=r"torch.complex\(real, imaginary\) makes them"):
        naive(q.real, k, v)
    with pytest.raises(ValueError, match="give its real and imaginary parts side by side"):
        ComplexAttention(12, 3)(torch.randn(2, 7, 12, dtype=torch.complex64))
    with pytest.raises(ValueError, match="is complex64 but `q` is complex128"):
        naive(q, k, v.to(torch.complex64))
    with pytest.raises(ValueError, match="choose heads so that"):
        ComplexAttention(12, 4)
    with pytest.raises(ValueError, match="dim should be even, got 15"):
        ComplexAttention(15, 3)
    with pytest.raises(ValueError, match="leave karatsuba out"):
        ComplexAttention(12, 3, weights="equal", karatsuba=True)
    with pytest.raises(ValueError, match="did you mean 'modulus'"):
        ComplexAttention(12, 3, score="modulo")
    with pytest.raises(ValueError, match="the last axis should be even"):
        as_complex(torch.randn(2, 3))
    assert isinstance(ComplexLinear(4, 6).weight, nn.Parameter)
