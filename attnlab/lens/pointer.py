r"""Attention as a pointer: does a model look at the place of what it writes?

A decoder that writes what an image shows reads the image's patches by cross-attention. Where each
character stands is known of drawn text, so that the weights can be held against it. For the token
t that is written, $w_{tp}$ is the weight of patch p, and $C_t$ are the patches that its character
covers:

$$\text{share}_h = \operatorname{mean}_t \sum_{p \in C_t} w_{tp},\qquad
  \text{centre}_t = \sum_p w_{tp}\,(\text{row}_p, \text{column}_p)$$

A head that spreads its weight evenly has $|C_t| / m$, and more than that is not yet a pointer: text
stands in the same corner of most images. So a control belongs beside the share: the weights of one
image with the places of another (``share`` of ``covered.roll(1, 0)``).

A character is written at the position of the token before it. So the row of weights that belongs
to a character is the one of the position whose **target** it is, not whose input.

Common mistakes: weights of a head averaged over tokens that stand nowhere, such as closing tags;
self-attention of the decoder in the place of cross-attention.

Kim and others. OCR-free Document Understanding Transformer. ECCV 2022, arXiv:2111.15664, whose
figures show such maps of cross-attention.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.options import Size
from attnlab.core.shapes import checked
from attnlab.lens.heads import check_weights


@checked
def covered(
    places: Float[Tensor, "b n two"], grid: tuple[Size, Size], patch: Size, size: tuple[Size, Size]
) -> Bool[Tensor, "b n m"]:
    """Which patches the character of each token covers, in reading order.

    places: the middle of each, row and column in pixels; NaN for tokens that stand nowhere, which
        cover none.
    grid, patch: rows and columns of the patches, and their side in pixels.
    size: height and width of a character in pixels.
    """
    if places.shape[-1] != 2:
        raise ValueError(
            f"places should be a row and a column for each token, (b, n, 2), got "
            f"{tuple(places.shape)}"
        )
    sides = []
    for axis in (0, 1):
        near = patch * torch.arange(grid[axis], device=places.device)
        middle = places[..., axis, None]
        half = size[axis] / 2
        sides.append((near < middle + half) & (near + patch > middle - half))
    return (sides[0][..., :, None] & sides[1][..., None, :]).flatten(-2)


@checked
def share(weights: Float[Tensor, "b h n m"], covered: Bool[Tensor, "b n m"]) -> Float[Tensor, "h"]:
    """The mean weight of each head on the covered patches, over the tokens that cover any.

    Even weights have the mean number of covered patches, over m.

    A ValueError where no token covers a patch.
    """
    check_weights(weights)
    somewhere = covered.any(-1)
    if not somewhere.any():
        raise ValueError("no token covers a patch, so that there is no place to look at")
    on = (weights * covered[:, None]).sum(-1)
    return on.transpose(0, 1)[:, somewhere].mean(1)


@checked
def centre(
    weights: Float[Tensor, "b h n m"], grid: tuple[Size, Size]
) -> Float[Tensor, "b h n two"]:
    """The mean row and column of the patches that are read, by their shares of the weights of a
    token, in patches from 0; NaN where a token reads nothing."""
    check_weights(weights)
    rows, columns = grid
    if weights.shape[-1] != rows * columns:
        raise ValueError(
            f"weights should be of {rows} × {columns} = {rows * columns} patches, got "
            f"{weights.shape[-1]}"
        )
    at = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(weights)
    return weights @ at.view(-1, 2) / weights.sum(-1, keepdim=True)
