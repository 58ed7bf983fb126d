"""The image of an attention view in its still picture: the larger the weight of a patch, the
brighter it is. The rest lies in the shade, as in the widget."""

from base64 import b64decode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np

SHADE = 0.68
"""How dark a patch of no weight is, as in attention_view/image.js."""


def shaded(url: str, grid: Mapping[str, Any], weights: np.ndarray) -> np.ndarray:
    """The image (height, width, 3) under the ``weights`` (m,) of its patches and of other tokens,
    which have no place in it: as bright as the largest weight of all, of patches of several vectors
    the sum."""
    pixels = _opened(url)
    rows, columns = grid["rows"], grid["columns"]
    sizes = np.abs(summed(grid, weights))
    of_patches = sizes[: rows * columns].reshape(rows, columns)
    light = 1 - SHADE * (1 - np.sqrt(of_patches / (sizes.max() or 1)))
    high, wide = pixels.shape[:2]
    row, column = np.arange(high) * rows // high, np.arange(wide) * columns // wide
    return np.asarray((pixels * light[row][:, column, None]).round(), np.uint8)


def parts(grid: Mapping[str, Any] | None, count: int) -> list[list[int]]:
    """The tokens of each patch, in reading order, then each of the others alone."""
    patches = range(grid["rows"] * grid["columns"]) if grid else ()
    found = [_tokens(grid, at) for at in patches if grid]
    inside = {token for tokens in found for token in tokens}
    return [*found, *([token] for token in range(count) if token not in inside)]


def summed(grid: Mapping[str, Any] | None, weights: np.ndarray) -> list[float]:
    """The sum of ``weights`` (m,) for each of the ``parts``."""
    return [float(weights[tokens].sum()) for tokens in parts(grid, len(weights))]


def indexed(pixels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The image as levels (height, width) of a palette of at most 255 colours."""
    from PIL import Image

    image = Image.fromarray(pixels).quantize(255)
    colours = np.asarray(image.getpalette(), np.uint8).reshape(-1, 3)
    return np.asarray(image), [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in colours]


def patch(grid: Mapping[str, Any], token: int, box: tuple[float, ...]) -> tuple[float, ...] | None:
    """Where the patch of a token lies in an image drawn in ``box`` (x, y, width, height)."""
    rows, columns = grid["rows"], grid["columns"]
    at = next((at for at in range(rows * columns) if token in _tokens(grid, at)), None)
    if at is None:
        return None
    x, y, wide, high = box
    row, column = divmod(at, columns)
    return x + column * wide / columns, y + row * high / rows, wide / columns, high / rows


def _tokens(grid: Mapping[str, Any], at: int) -> list[int]:
    """The tokens of one patch, by its number in reading order."""
    return list(grid["tokens"][at]) if "tokens" in grid else [grid["first"] + at]


def _opened(url: str) -> np.ndarray:
    from PIL import Image

    encoded = url.partition("base64,")[2]
    return np.asarray(Image.open(BytesIO(b64decode(encoded))).convert("RGB"))
