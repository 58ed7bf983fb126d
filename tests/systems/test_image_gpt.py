"""Image GPT: colours as a vocabulary, and the states of each layer."""

import pytest
import torch

from attnlab.models.tiny import TinyTransformer
from attnlab.systems.image_gpt import as_pixels, as_tokens, colour_clusters, image_states


def blots() -> tuple[torch.Tensor, torch.Tensor]:
    """An image of four colours with a little noise, and the four colours."""
    colours = torch.tensor([[0.1, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.3, 0.9], [0.8, 0.9, 0.8]])
    generator = torch.Generator().manual_seed(2)
    which = torch.arange(4).repeat_interleave(15).view(1, 6, 10)
    noise = torch.rand(1, 6, 10, 3, generator=generator) - 0.5
    return (colours[which] + 0.02 * noise).movedim(-1, 1), colours


@pytest.mark.parametrize("seed", range(5))
def test_clusters_find_the_colours(seed):
    images, colours = blots()
    found = colour_clusters(images, 4, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(found, colours, atol=0.01, rtol=0)
    tokens = as_tokens(images, found)
    assert torch.equal(tokens, torch.arange(4).repeat_interleave(15)[None])
    again = as_pixels(tokens, found, (6, 10))
    assert again.shape == images.shape
    torch.testing.assert_close(again, images, atol=0.02, rtol=0)
    assert torch.equal(as_tokens(again, found), tokens)


def test_rounds_lower_the_error_and_more_colours_do():
    images = torch.rand(2, 3, 13, 17, generator=torch.Generator().manual_seed(3))

    def error(colours: int, rounds: int) -> float:
        generator = torch.Generator().manual_seed(0)
        centres = colour_clusters(images, colours, rounds=rounds, generator=generator)
        return float((as_pixels(as_tokens(images, centres), centres, (13, 17)) - images).norm())

    assert error(8, 10) < 0.97 * error(8, 0)
    assert error(32, 10) < 0.8 * error(8, 10)


def test_photographs_of_512_colours():
    """The two of scikit-learn: 9 bits a pixel in the place of 24, a mean error below 4 levels."""
    datasets = pytest.importorskip("sklearn.datasets")
    photographs = torch.stack([torch.tensor(x) for x in datasets.load_sample_images().images])
    small = photographs.movedim(-1, 1)[..., ::12, ::12].float() / 255
    generator = torch.Generator().manual_seed(0)
    centres = colour_clusters(small, 512, rounds=3, generator=generator)
    tokens = as_tokens(small, centres)
    assert tokens.unique().numel() == 512
    read = as_pixels(tokens, centres, tuple(small.shape[-2:]))
    assert 255 * float((read - small).abs().mean()) < 4


def test_states_are_the_mean_over_positions_of_each_layer():
    torch.manual_seed(0)
    model = TinyTransformer(7, dim=12, heads=2, layers=3, max_len=13)
    tokens = torch.randint(7, (5, 13))
    states = image_states(model, tokens)
    assert states.shape == (4, 5, 12)
    at = model.positions(model.embedding(tokens), torch.arange(13).expand(5, 13))
    torch.testing.assert_close(states[0], at.mean(1).detach())
    last = model.decoder.norm(model.decoder.blocks[2](model.decoder.blocks[1](
        model.decoder.blocks[0](at))))  # fmt: skip
    torch.testing.assert_close(last, model.decode(tokens))
    assert not states.requires_grad


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, c: colour_clusters(x, 61), "at most the 60 different ones, got 61"),
        (lambda x, c: colour_clusters(x * 255, 4), "brightness from 0 to 1"),
        (lambda x, c: as_tokens(x[:, :1], c), "channels is 3, expected 1 as in `images`"),
        (lambda x, c: as_pixels(torch.zeros(1, 9).long(), c, (2, 5)), "2 × 5 = 10 .* got 9"),
        (lambda x, c: as_pixels(torch.full((1, 10), 4), c, (2, 5)), "numbers of the 4 centres"),
    ],
)
def test_what_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(*blots())


def test_another_model_is_refused():
    with pytest.raises(TypeError, match="model should be a TinyTransformer, got a Linear"):
        image_states(torch.nn.Linear(2, 2), torch.zeros(1, 2).long())
