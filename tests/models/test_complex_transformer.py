"""The complex network: layers by hand, what may influence what, and what is refused."""

from typing import Any

import pytest
import torch

from attnlab.core.complex_linear import as_complex, as_pairs
from attnlab.mechanisms.positions.complex_embedding.tables import ComplexEmbeddingOptions
from attnlab.models.complex_layers import ComplexDropout, ComplexFeedForward, SeparateNorm
from attnlab.models.complex_transformer import ComplexTransformer

V, N = 17, 7


def model(**options: Any) -> ComplexTransformer:
    torch.manual_seed(1)
    sizes = {"dim": 12, "heads": 3, "layers": 2, "max_len": 11, **options}
    return ComplexTransformer(V, **sizes).double().eval()


def classifier(**options: Any) -> ComplexTransformer:
    return model(kind="classifier", classes=5, **options)


def test_feed_forward_is_equation_10() -> None:
    layer = ComplexFeedForward(6, 10).double()
    x = torch.randn(2, 3, dtype=torch.complex128)

    def dense(linear: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.complex(*linear.weight).T + torch.complex(*linear.bias)

    hidden = dense(layer.expand, x)
    gelu = torch.nn.functional.gelu
    expected = dense(layer.contract, torch.complex(gelu(hidden.real), gelu(hidden.imag)))
    torch.testing.assert_close(as_complex(layer(as_pairs(x)[None]))[0], expected)


def test_real_and_imaginary_parts_are_normalised_apart() -> None:
    layer, x = SeparateNorm(8), torch.randn(2, 3, 8)
    out = layer(x)
    torch.testing.assert_close(layer(x * torch.tensor([5.0] * 4 + [1] * 4)), out, atol=1e-4, rtol=0)
    for half in out.chunk(2, dim=-1):
        torch.testing.assert_close(half.mean(-1), torch.zeros(2, 3), atol=1e-6, rtol=0)


def test_dropout_drops_whole_complex_numbers() -> None:
    layer, x = ComplexDropout(0.5), torch.ones(50, 8)
    out = layer(x)
    real, imaginary = out.chunk(2, dim=-1)
    assert torch.equal(real, imaginary)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("score", ["modulus", "real", "unconjugated"])
@pytest.mark.parametrize("weights", ["free", "equal", "real"])
def test_shapes_and_gradients(score: str, weights: str) -> None:
    tokens = torch.randint(V, (2, N))
    for made, shape in ((model, (2, N, V)), (classifier, (2, 5))):
        network = made(score=score, weights=weights)
        out = network(tokens)
        assert out.shape == shape
        out.square().sum().backward()
        for name, parameter in network.named_parameters():
            assert torch.isfinite(parameter.grad).all(), name
            assert (parameter.grad != 0).any(), name


def test_nothing_leaks_from_the_future() -> None:
    network, tokens = model(), torch.randint(V, (2, N))
    out, other = network(tokens), tokens.clone()
    other[:, 4:] = (other[:, 4:] + 1) % V
    changed = network(other)
    assert torch.equal(changed[:, :4], out[:, :4])
    assert not torch.allclose(changed[:, 4:], out[:, 4:])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_takes_no_position_and_changes_nothing(side: str) -> None:
    tokens, fill = torch.randint(V, (2, N)), torch.randint(V, (2, 4))
    parts = [fill, tokens] if side == "left" else [tokens, fill]
    padding = torch.arange(N + 4)[None].expand(2, -1)
    padding = padding >= 4 if side == "left" else padding < N
    padded = torch.cat(parts, dim=1)
    torch.testing.assert_close(classifier()(padded, padding), classifier()(tokens))
    torch.testing.assert_close(model()(padded, padding)[padding], model()(tokens).flatten(0, 1))


def test_order_matters_and_only_through_the_embedding() -> None:
    tokens = torch.tensor([[1, 2, 3, 4, 5], [2, 1, 4, 3, 5]])
    turning, still = classifier(), classifier(words=ComplexEmbeddingOptions(start="zero"))
    one, other = turning(tokens)
    assert not torch.allclose(one, other, atol=1e-6)
    torch.testing.assert_close(*still(tokens).unbind())


def test_half_the_parameters_of_real_linear_maps() -> None:
    """dim = 64: linear maps of 12 · 64² numbers in a real layer, 6 · 64² in a complex one."""
    for weights, expected in (("free", 6 * 64**2), ("equal", 3 * 64**2)):
        block = model(dim=64, heads=4, weights=weights).blocks[0]
        assert sum(p.numel() for n, p in block.named_parameters() if p.ndim == 3) == expected


def test_calls_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="classes belongs to kind='classifier'"):
        model(classes=3)
    with pytest.raises(ValueError, match="classes belongs to kind='classifier'"):
        model(kind="classifier")
    with pytest.raises(ValueError, match="dim should be even, got 15"):
        model(dim=15)
    with pytest.raises(ValueError, match="should be at least 0 and less than 1"):
        model(dropout=1.0)
    with pytest.raises(ValueError, match="2 · heads divides"):
        model(heads=4)
    with pytest.raises(ValueError, match="max_len=11"):
        model()(torch.zeros(1, 12).long())
    with pytest.raises(ValueError, match="tokens should be whole numbers"):
        model()(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="tokens should lie in 0 … 16"):
        model()(torch.full((1, 3), V))
