"""Complex word embeddings against the paper's properties, its sizes and sinusoidal positions."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.mechanisms.positions.complex_embedding import (
    FORMS,
    ComplexEmbedding,
    ComplexEmbeddingOptions,
    naive,
    real_pairs,
)
from attnlab.mechanisms.positions.complex_embedding.tables import sinusoidal_frequencies
from attnlab.mechanisms.positions.sinusoidal import table

V, D, B, N = 11, 5, 2, 7
VARIANTS = [
    {},
    {"frequencies": "words", "phases": "none"},
    {"frequencies": "dimensions", "start": "uniform", "phases": "words"},
    {"amplitudes": "dimensions", "start": "normal", "phases": "dimensions"},
    {"amplitudes": "words", "frequencies": "words", "phases": "words"},
    {"amplitudes": "dimensions", "frequencies": "dimensions", "start": "normal"},
]


def tables(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(V, D, dtype=dtype).requires_grad_() for _ in range(3)]


def words() -> Tensor:
    return torch.randint(V, (B, N))


def test_by_hand() -> None:
    """Amplitude 2, frequency π/2, phase π at position 1: 2 e^{i 3π/2} = -2i."""
    table = [torch.tensor([[x]], dtype=torch.float64) for x in (2, math.pi / 2, math.pi)]
    for form in FORMS.values():
        out = form(torch.tensor([[0]]), torch.tensor([1]), *table)
        torch.testing.assert_close(out, torch.tensor([[[-2j]]], dtype=torch.complex128))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_moving_a_word_multiplies_it(form) -> None:
    """f(j, p + k) = f(j, p) e^{iωk}, and |f| = |r|, for negative amplitudes too (C1)."""
    r, w, theta = tables()
    tokens, k = words(), 3
    here = form(tokens, torch.arange(N), r, w, theta)
    there = form(tokens, torch.arange(N) + k, r, w, theta)
    turn = torch.polar(torch.ones(V, D, dtype=torch.float64), w * k)
    torch.testing.assert_close(there, here * turn[tokens])
    torch.testing.assert_close(there.abs(), r.abs()[tokens])
    assert not torch.allclose(there, here)


def test_sinusoidal_positions_are_a_special_case() -> None:
    """ω_d = 10000^(-2d/width), r = 1: columns 2d are Im f_d, columns 2d + 1 Re f_d."""
    width, n = 10, 23
    frequency = 10000.0 ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)[None]
    out = naive(torch.zeros(1, n).long(), torch.arange(n), torch.ones_like(frequency), frequency)[0]
    columns = table(torch.arange(n), width)
    torch.testing.assert_close(out.imag, columns[:, 0::2])
    torch.testing.assert_close(out.real, columns[:, 1::2])


def test_frequencies_start_in_pairs() -> None:
    w = sinusoidal_frequencies(6)
    torch.testing.assert_close(w[0::2], w[1::2])
    torch.testing.assert_close(w[0::2], 10000.0 ** (-2 * torch.arange(3) / 6))
    for layer in (
        ComplexEmbedding(V, 6),
        ComplexEmbedding(V, 6, options=ComplexEmbeddingOptions(frozen=True)),
    ):
        assert torch.equal(layer.angles.frequency, w.expand(V, 6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_forms_are_equal_in_values_and_gradients(dtype: torch.dtype) -> None:
    tokens, made = words(), tables(dtype)
    made[0].data[4] = 0  # an amplitude of 0 has a gradient as well
    exact = [x.detach().double().requires_grad_() for x in made]
    expected = naive(tokens, torch.arange(N), *exact)
    direction = torch.randn(B, N, D, 2, dtype=torch.float64)
    theirs = torch.autograd.grad((torch.view_as_real(expected) * direction).sum(), exact)
    bound = 1e-10 if dtype == torch.float64 else 1e-4
    for form in FORMS.values():
        out = form(tokens, torch.arange(N), *made)
        assert out.dtype == (torch.complex128 if dtype == torch.float64 else torch.complex64)
        torch.testing.assert_close(out.to(expected.dtype), expected, rtol=bound, atol=bound)
        mine = torch.autograd.grad((torch.view_as_real(out) * direction).sum(), made)
        bound = max(bound, 2e-2 if dtype == torch.bfloat16 else 0)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=bound, atol=10 * bound)


def test_gradients_by_finite_differences() -> None:
    r, w, theta = tables()
    r.data[3] = 0
    tokens, positions = words(), torch.arange(N)
    for form in FORMS.values():
        assert torch.autograd.gradcheck(lambda *t, f=form: f(tokens, positions, *t), (r, w, theta))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_shared_tables_equal_repeated_ones(variant: dict[str, str]) -> None:
    layer = ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(**variant)).double()
    tokens, positions = words(), torch.randint(50, (B, N))
    full = [layer.amplitude, layer.angles.frequency, layer.angles.phase]
    full = [None if x is None else x.expand(V, D) for x in full]
    expected = naive(tokens, positions, *full)
    assert expected.shape == (B, N, D)
    torch.testing.assert_close(layer(tokens, positions), expected)
    assert torch.isfinite(expected).all()


def test_positions_of_each_sequence() -> None:
    layer, tokens = ComplexEmbedding(V, D), words()
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4, 3]])
    out = layer(tokens, positions)
    torch.testing.assert_close(out[1:], layer(tokens[1:], positions[1]))
    assert not torch.allclose(out, layer(tokens, positions[0]))


def test_parameter_counts() -> None:
    """Section 3.1 of the paper: 3DV, 2DV, DV + D and DV + V."""
    counts = {
        3 * D * V: {"phases": "none"},
        2 * D * V: {},
        D * V + D: {"frequencies": "words"},
        D * V + V: {"frequencies": "dimensions", "start": "normal"},
        D * V: {"frozen": True},
        D + D * V: {"amplitudes": "words"},
    }
    for count, variant in counts.items():
        layer = ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(**variant))
        assert sum(p.numel() for p in layer.parameters()) == count
    still = ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(start="zero", phases="none"))
    assert sum(p.numel() for p in still.parameters()) == 2 * D * V  # complex-vanilla


def test_sizes_of_table_4() -> None:
    """8.33M - 5.82M = DV - V and 5.82M - 5.81M = V - D, both with D = 256 and V = 9,840."""
    vocab, dim, sizes = 9_840, 256, {}
    with torch.device("meta"):
        for name, shared in (("full", "none"), ("dimensions", "dimensions"), ("words", "words")):
            options = ComplexEmbeddingOptions(frequencies=shared, start="normal")
            layer = ComplexEmbedding(vocab, dim, options=options)
            sizes[name] = sum(p.numel() for p in layer.parameters())
    assert round((sizes["full"] - sizes["dimensions"]) / 1e6, 2) == 2.51 == round(8.33 - 5.82, 2)
    assert round((sizes["dimensions"] - sizes["words"]) / 1e6, 2) == 0.01 == round(5.82 - 5.81, 2)


def test_a_word_that_does_not_turn() -> None:
    """start="zero" has no positions: the paper's complex-vanilla."""
    layer, tokens = ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(start="zero")), words()
    torch.testing.assert_close(layer(tokens, torch.arange(N)), layer(tokens, torch.arange(N) + 5))


def test_filler_is_zero_and_stays_zero() -> None:
    layer = ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(filler=3))
    out = layer(torch.tensor([[1, 3, 3, 2]]), torch.arange(4))
    assert (out[0, 1:3] == 0).all()
    assert (out[0, [0, 3]] != 0).all()
    out.abs().square().sum().backward()
    assert (layer.amplitude.grad[3] == 0).all()
    assert (layer.amplitude.grad[1] != 0).all()
    with torch.no_grad():
        layer.amplitude += 1
    assert (layer(torch.tensor([[3]]), torch.arange(1)) == 0).all()


def test_pairs_are_real_parts_then_imaginary_parts() -> None:
    tokens = words()
    layer = ComplexEmbedding(V, D, output="pairs")
    pairs = layer(tokens, torch.arange(N))
    layer.output = "complex"
    waves = layer(tokens, torch.arange(N))
    assert pairs.shape == (B, N, 2 * D)
    torch.testing.assert_close(torch.complex(pairs[..., :D], pairs[..., D:]), waves)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_angles_in_float32(half: torch.dtype) -> None:
    """At position 70,000, which float16 does not hold and bfloat16 rounds to 70,144."""
    layer = ComplexEmbedding(V, D, output="pairs", options=ComplexEmbeddingOptions(phases="none"))
    tokens, far = words(), torch.arange(N) + 70_000
    exact = layer.double()(tokens, far)
    halved = layer.float().to(half)
    assert halved.amplitude.dtype == half
    assert halved.angles.frequency.dtype == halved.angles.phase.dtype == torch.float32
    out = halved(tokens, far)
    assert out.dtype == half
    torch.testing.assert_close(out.double(), exact, rtol=0.02, atol=0.05)
    angles = halved.angles
    lost = naive(
        tokens, far, layer.amplitude.float(), angles.frequency.to(half).float(), angles.phase
    )
    assert not torch.allclose(lost.real.double(), exact[..., :D], rtol=0.02, atol=0.05)


def test_a_half_table_is_computed_in_float32() -> None:
    table = torch.ones(V, D, dtype=torch.bfloat16)
    for form in FORMS.values():
        out = form(words(), torch.arange(N) + 1000, table, table)
        expected = torch.polar(torch.ones(N), (torch.arange(N) + 1000.0))
        torch.testing.assert_close(out, expected[:, None].expand(B, N, D))


def test_calls_that_make_no_sense() -> None:
    layer, tokens = ComplexEmbedding(V, D), words()
    with pytest.raises(ValueError, match=r"tokens should lie in 0 … 10, .*; 11 does not"):
        layer(torch.tensor([[0, 11]]), torch.arange(2))
    with pytest.raises(ValueError, match="-1 does not"):
        real_pairs(torch.tensor([[-1]]), torch.arange(1), *tables())
    with pytest.raises(ValueError, match="n is 6, expected 7"):
        layer(tokens, torch.arange(6))
    with pytest.raises(ValueError, match=r"`positions` should be Int.* not a int"):
        layer(tokens, torch.arange(N) / 2)
    with pytest.raises(ValueError, match="vocab is 10, expected 11"):
        naive(tokens, torch.arange(N), tables()[0], tables()[1][:10])
    with pytest.raises(ValueError, match="give its real and imaginary parts"):
        naive(tokens, torch.arange(N), tables()[0] * 1j, tables()[1])
    with pytest.raises(ValueError, match="filler should be a word in 0 … 10, got 11"):
        ComplexEmbedding(V, D, options=ComplexEmbeddingOptions(filler=11))
    with pytest.raises(ValueError, match="leave filler out"):
        ComplexEmbeddingOptions(filler=1, amplitudes="words")
    with pytest.raises(ValueError, match="choose start="):
        ComplexEmbeddingOptions(frequencies="dimensions")
    with pytest.raises(ValueError, match="scale should be greater than 0"):
        ComplexEmbeddingOptions(scale=0.0)
