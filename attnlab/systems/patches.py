"""Images as sequences of patches, for the systems that read them as a Transformer reads words.

A patch of P × P pixels with C channels is a row of P²·C numbers: row, column, channel. Patches
stand in reading order. Common mistakes, and the paper: ``attnlab.systems.vit``.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Size
from attnlab.core.shapes import checked
from attnlab.core.tracing import is_abstract, transformed
from attnlab.models.inputs import check_tensor


@checked
def into_patches(
    images: Float[Tensor, "b channels height width"], patch: Size
) -> Float[Tensor, "b n numbers"]:
    """The patches of images in reading order: row by row of the grid, and inside a patch row,
    column, channel. A ValueError where the patches do not tile the image."""
    height, width = grid_of(images.shape[-2:], patch)
    cut = images.unflatten(-1, (width, patch)).unflatten(-3, (height, patch))
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


@checked
def from_patches(
    patches: Float[Tensor, "b n numbers"], grid: tuple[Size, Size], patch: Size
) -> Float[Tensor, "b channels height width"]:
    """The inverse of ``into_patches``; ``grid`` is (rows, columns) of patches."""
    (rows, columns), (n, numbers) = grid, patches.shape[1:]
    if rows * columns != n or numbers % patch**2:
        raise ValueError(
            f"patches should be {rows} × {columns} = {rows * columns} rows of a multiple of "
            f"patch² = {patch**2} numbers, got {n} rows of {numbers}"
        )
    cut = patches.unflatten(2, (patch, patch, -1)).unflatten(1, (rows, columns))
    return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


@checked
def as_convolution(
    weight: Float[Tensor, "dim numbers"], patch: Size
) -> Float[Tensor, "dim channels patch patch"]:
    """The kernels of the convolution of stride ``patch`` that is the linear map of patches by
    ``weight``: the numbers of a patch are (row, column, channel), those of a kernel (channel, row,
    column)."""
    if weight.shape[1] % patch**2:
        raise ValueError(
            f"weight should have a multiple of patch² = {patch**2} columns, got {weight.shape[1]}"
        )
    return weight.unflatten(1, (patch, patch, -1)).permute(0, 3, 1, 2).contiguous()


@checked
def as_matrix(kernel: Float[Tensor, "dim channels p p"]) -> Float[Tensor, "dim numbers"]:
    """The inverse of ``as_convolution``."""
    return kernel.permute(0, 2, 3, 1).flatten(1)


@checked
def resized_positions(
    positions: Float[Tensor, "places dim"], grid: tuple[Size, Size], new: tuple[Size, Size]
) -> Float[Tensor, "new_places dim"]:
    """The vectors of a class token and a ``grid`` of (rows, columns), for another grid: those of
    the patches resized as an image (bicubic), that of the class token, the first row, as it is."""
    if len(positions) != grid[0] * grid[1] + 1:
        raise ValueError(
            f"positions should have a row for the class token and {grid[0]} × {grid[1]} for the "
            f"patches, {grid[0] * grid[1] + 1} in all, got {len(positions)}"
        )
    if grid == new:
        return positions
    image = positions[1:].unflatten(0, grid).permute(2, 0, 1)[None]
    resized = F.interpolate(image, size=new, mode="bicubic", align_corners=False)
    return torch.cat((positions[:1], resized[0].flatten(1).mT))


def check_finite(source: Tensor, real: Tensor | None = None) -> None:
    """A ValueError where a source (b, s, numbers) holds NaN or infinity at what is ``real``.

    On a GPU the check waits for the device. Nothing is checked where no number can be read.
    """
    if not _readable(source) or math.isfinite(source.detach().sum().item()):
        return  # a sum is finite only if all its numbers are
    wrong = ~source.isfinite().flatten(2).all(-1)
    wrong = wrong if real is None else wrong & real
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"source should hold finite numbers, but vector {place} of row {row} has NaN or "
            "infinity; mend the images, or mark what is not there by source_padding"
        )


def _readable(x: Tensor) -> bool:
    return not (is_abstract(x) or transformed())


def grid_of(size: Any, patch: int) -> tuple[int, int]:
    """Rows and columns of the patches of an image of (height, width) pixels, or a ValueError."""
    height, width = size
    if height % patch or width % patch:
        raise ValueError(
            f"patch={patch} should divide the height and the width of the images, got {height} × "
            f"{width}; resize or crop them"
        )
    return height // patch, width // patch


def check_images(images: Any, channels: int) -> None:
    """A TypeError or ValueError unless images are (b, channels, height, width), floats from 0 to
    1."""
    check_tensor("images", images)
    if images.ndim != 4 or images.shape[1] != channels:
        advice = "; for one image: images[None]" if images.ndim == 3 else ""
        if images.ndim == 4 and images.shape[3] == channels:
            advice = "; channels stand before rows and columns: images.permute(0, 3, 1, 2)"
        raise ValueError(
            f"images should have shape (b, channels={channels}, height, width), got "
            f"{tuple(images.shape)}{advice}"
        )
    if 0 in images.shape[2:]:
        raise ValueError(f"images should have pixels, got shape {tuple(images.shape)}")
    if not images.is_floating_point():
        raise TypeError(
            f"images should be float, brightness from 0 to 1, got {images.dtype}; levels of 8 bits "
            "are images / 255"
        )
    check_brightness("images", images)


def check_brightness(name: str, values: Tensor) -> None:
    """A ValueError unless all values lie from 0 to 1; it waits and checks as ``check_finite``."""
    if not values.numel() or not _readable(values):
        return
    low, high = (each.item() for each in values.detach().aminmax())
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"{name} should hold brightness from 0 to 1, got values from {low:.4g} to {high:.4g}; "
            "divide levels by the largest possible one, and leave the mean to the model"
        )
