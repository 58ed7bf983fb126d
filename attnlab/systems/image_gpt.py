r"""Image GPT: pixels as words of a few colours, and which layer knows what the image shows.

A language model reads an image pixel by pixel, row by row, and learns to predict the next pixel.
Two things make this more than a generator.

**Colours as a vocabulary.** A pixel of 3 × 8 bits would be a word of 16.7 million. The paper takes
the k = 512 centres of k-means over the pixels of its images (9 bits), and each pixel becomes the
number of the nearest centre:

$$\text{token}(x) = \arg\min_k |x - c_k|^2$$

**A probe of each layer.** Nothing but pixels was learned, yet the vectors inside can hold what the
image shows. The mean over the positions of a layer's output is one vector for an image, and a
linear classifier of these vectors says how much of the classes can be read off that layer
(``attnlab.lens.probes``). In the paper the best layer stands in the middle: the last layers are
busy with the next pixel.

``colour_clusters``, ``as_tokens``, ``as_pixels``  the vocabulary, and images in it and back.
``image_states``                                   one vector of each layer for each image.

Common mistakes: the last layer probed, as where the answer must be; the state of the last position
taken for the image; a probe without the control of an untrained model, whose states hold much, too.

Chen, Radford, Child, Wu, Jun, Luan, Sutskever. Generative Pretraining from Pixels. ICML 2020,
sections 2.2, 3.3 and 4.1. Departure: centres are drawn among the pixels as they come, each as far
from the earlier ones as chance has it (k-means++), and moved for so many rounds.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.options import Count, Size
from attnlab.core.shapes import checked
from attnlab.lens.probes import layer_states
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.systems.patches import check_images

CHUNK = 1 << 14
"""Pixels whose distances from all centres are held at once."""


@checked
def colour_clusters(
    images: Float[Tensor, "b channels height width"], colours: Size = 512, *, rounds: Count = 10,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "colours channels"]:  # fmt: skip
    """The centres of ``colours`` clusters of the pixels of images of brightness from 0 to 1,
    dark ones first.

    Draws come from ``generator``, or from PyTorch's own. A ValueError where there are fewer
    different pixels than centres are asked for.
    """
    check_images(images, images.shape[1])
    pixels = images.movedim(1, -1).flatten(0, 2)
    if (different := len(pixels.unique(dim=0))) < colours:
        raise ValueError(f"colours should be at most the {different} different ones, got {colours}")
    centres = _spread(pixels, colours, generator)
    for _ in range(rounds):
        nearest = _nearest(pixels, centres)
        count = nearest.bincount(minlength=colours)[:, None]
        total = torch.zeros_like(centres).index_add(0, nearest, pixels)
        centres = torch.where(count > 0, total / count.clamp(min=1), centres)
    return centres[centres.sum(-1).argsort()]


@checked
def as_tokens(
    images: Float[Tensor, "b channels height width"], centres: Float[Tensor, "colours channels"]
) -> Int[Tensor, "b n"]:
    """The pixels of images in reading order, as numbers of their nearest centres."""
    check_images(images, centres.shape[1])
    return _nearest(images.movedim(1, -1).flatten(0, 2), centres).view(len(images), -1)


@checked
def as_pixels(
    tokens: Int[Tensor, "b n"], centres: Float[Tensor, "colours channels"], size: tuple[Size, Size]
) -> Float[Tensor, "b channels height width"]:
    """The images of (height, width) = ``size`` pixels that tokens stand for."""
    if tokens.shape[1] != size[0] * size[1]:
        raise ValueError(
            f"tokens should be {size[0]} × {size[1]} = {size[0] * size[1]} for each image, got "
            f"{tokens.shape[1]}"
        )
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(centres):
        raise ValueError(f"tokens should be numbers of the {len(centres)} centres, from 0 on")
    return centres[tokens].unflatten(1, size).movedim(-1, 1)


def image_states(
    model: TinyTransformer, tokens: Int[Tensor, "b n"]
) -> Float[Tensor, "layers b dim"]:
    """The mean over the positions of what enters the first layer and of what leaves each layer,
    one vector for an image, without gradients."""
    check_model(model)
    return layer_states(model, tokens=tokens).mean(2)


def _spread(pixels: Tensor, colours: int, generator: torch.Generator | None) -> Tensor:
    """k-means++: pixels that are drawn with the squared distance from the earlier ones."""
    first = torch.randint(len(pixels), (1,), generator=generator)
    chosen = [pixels[first[0]]]
    distance = (pixels - chosen[0]).square().sum(-1)
    for _ in range(colours - 1):
        at = (distance.cumsum(0) / distance.sum()).double()
        drawn = torch.rand((), generator=generator, dtype=torch.float64)
        place = int(torch.searchsorted(at, drawn).clamp(max=len(pixels) - 1))
        chosen.append(pixels[place])
        distance = distance.minimum((pixels - pixels[place]).square().sum(-1))
    return torch.stack(chosen)


def _nearest(pixels: Tensor, centres: Tensor) -> Tensor:
    """(p, c) → (p,): the number of the nearest centre, the first of equally near ones."""
    pieces = [torch.cdist(part, centres).argmin(-1) for part in pixels.split(CHUNK)]
    return torch.cat(pieces) if pieces else pixels.new_zeros(0, dtype=torch.long)
