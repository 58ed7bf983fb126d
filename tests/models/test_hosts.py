"""Small classifiers over any embedding scheme: what each can and cannot know of the order."""

import pytest
import torch

from attnlab.models.hosts import WordClassifier

KINDS = ("average", "convolution", "lstm")
SCHEMES = ("none", "learned", "sinusoidal", "complex")
V, C, N = 17, 3, 7


def model(kind: str, scheme: str) -> WordClassifier:
    torch.manual_seed(1)
    made = WordClassifier(V, C, kind=kind, dim=12, max_len=11, scheme=scheme)
    return made.double().eval()


def two_orders() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(V, (2, N))
    tokens[:, 0], tokens[:, 3] = 1, 2  # two different words, to exchange
    order = torch.arange(N)
    order[[0, 3]] = order[[3, 0]]
    return tokens, tokens[:, order]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_average_with_added_positions_cannot_see_the_order(scheme: str) -> None:
    """Exactly, whatever is learned; complex words bring their position with them."""
    made = model("average", scheme)
    one, other = map(made, two_orders())
    assert torch.allclose(one, other, rtol=1e-12, atol=1e-12) == (scheme != "complex")


@pytest.mark.parametrize("kind", ["convolution", "lstm"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_networks_with_an_order_of_their_own(kind: str, scheme: str) -> None:
    made = model(kind, scheme)
    one, other = map(made, two_orders())
    assert not torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_changes_nothing(kind: str, scheme: str) -> None:
    made, tokens = model(kind, scheme), torch.randint(V, (2, N))
    padded = torch.cat([tokens, torch.randint(V, (2, 4))], dim=1)
    padding = torch.arange(N + 4)[None].expand(2, -1) < N
    torch.testing.assert_close(made(padded, padding), made(tokens))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_parameter_learns(kind: str, scheme: str) -> None:
    made = model(kind, scheme)
    made(torch.randint(V, (3, N))).square().sum().backward()
    for name, parameter in made.named_parameters():
        assert (parameter.grad != 0).any(), name


def test_one_budget() -> None:
    """A complex word of half the width, with amplitude and frequency, has as many parameters."""
    counts = {
        scheme: sum(p.numel() for p in model("average", scheme).parameters()) for scheme in SCHEMES
    }
    assert counts["none"] == counts["sinusoidal"] == counts["complex"] == V * 12 + 12 * C + C
    assert counts["learned"] == counts["none"] + 11 * 12


def test_calls_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="goes into attention layers"):
        model("average", "rope")
    with pytest.raises(ValueError, match="did you mean 'complex'"):
        model("average", "complexe")
    with pytest.raises(ValueError, match="did you mean 'lstm'"):
        model("lstms", "none")
    with pytest.raises(ValueError, match="dim should be even"):
        WordClassifier(V, C, dim=13, scheme="complex")
    with pytest.raises(ValueError, match="max_len=11"):
        model("average", "none")(torch.zeros(1, 12).long())
    with pytest.raises(ValueError, match="tokens should lie in 0 … 16"):
        model("average", "complex")(torch.full((1, 2), V))
    with pytest.raises(ValueError, match="cannot set 'vocab'"):
        WordClassifier(V, C, scheme="complex", scheme_options={"vocab": 3})
