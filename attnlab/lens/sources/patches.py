"""An image and its patches: which tokens of a layer are which squares of the picture."""

import math
from base64 import b64encode
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 224
"""Pixels of the longer side of the image as it is sent; larger ones are made smaller."""
SMALL = 64
"""Up to this side an image is sent as it is, without loss."""
SPECIAL = (0, 1, 2, 4, 5)
"""How many tokens may stand before the patches: a class token, one for distillation, registers."""
Grid = tuple[int, int]


@dataclass(frozen=True)
class Patch:
    """The token of one patch, by its row and column from 0."""

    row: int
    column: int

    def __str__(self) -> str:
        return f"{self.row}, {self.column}"

    @property
    def label(self) -> list[str]:
        return [str(self), f"patch in row {self.row}, column {self.column}"]


class Patches:
    """The image of a view, and the grid of patches of each layer that reads it."""

    def __init__(self, image: Any, grid: Grid | None = None) -> None:
        self.pixels = pixels_of(image)
        self.grid = _checked(grid)
        self._known: dict[int, list[Any]] = {}
        self.read = False

    def fits(self, n: int) -> bool:
        return self.grid_of(n) is not None

    def grid_of(self, n: int) -> Grid | None:
        """(rows, columns) of the patches among n tokens, or None."""
        if self.grid is None:
            return self._guessed(n)
        rows, columns = self.grid
        if 0 <= n - rows * columns <= max(SPECIAL):
            return rows, columns
        while rows * columns > n and rows > 1 and columns > 1:
            rows, columns = -(-rows // 2), -(-columns // 2)  # stages of a Swin transformer
        return (rows, columns) if rows * columns == n else None

    def _guessed(self, n: int) -> Grid | None:
        """The grid with the form of the image or, as most models see it, a square one."""
        high, wide = self.pixels.shape[:2]
        for tall, broad in ((high, wide), (1, 1)):
            for special in SPECIAL:
                rows = round(math.sqrt(max(n - special, 0) * tall / broad))
                columns = (n - special) // rows if rows else 0
                alike = columns and abs(math.log(rows * broad / (columns * tall))) < 0.1
                if alike and rows * columns == n - special > 3:
                    return rows, columns
        return None

    def tokens(self, n: int) -> list[Any]:
        """The n tokens of a layer that reads the image: what stands before the patches, patches."""
        if n not in self._known:
            grid = self.grid_of(n)
            assert grid is not None
            rows, columns = grid
            special = n - rows * columns
            names = ["[CLS]"] if special == 1 else [f"special {at}" for at in range(special)]
            patches = [Patch(row, column) for row in range(rows) for column in range(columns)]
            self._known[n] = [*names, *patches]
        self.read = True
        return self._known[n]

    def grids(self, sets: list[list[Any]]) -> list[dict[str, int] | None]:
        """For each list of tokens its grid: {"rows", "columns", "first"}, or None."""
        return [self._described(tokens) for tokens in sets]

    def _described(self, tokens: list[Any]) -> dict[str, int] | None:
        if not any(tokens is known for known in self._known.values()):
            return None
        grid = self.grid_of(len(tokens))
        assert grid is not None
        rows, columns = grid
        return {"rows": rows, "columns": columns, "first": len(tokens) - rows * columns}

    def sent(self) -> dict[str, Any]:
        """The image for the front end: as a data URI, with its size."""
        high, wide = self.pixels.shape[:2]
        return {"url": data_uri(self.pixels), "width": wide, "height": high}

    def all_read(self) -> None:
        if not self.read:
            raise ValueError(
                "no layer reads the image: none has as many tokens as it has patches; give "
                "`grid=(rows, columns)`, the patches of the image"
            )


def pixels_of(image: Any) -> np.ndarray:
    """(height, width, 3) bytes of an array, a tensor or a PIL image.

    Channels come last or, as torch has them, first. Values are bytes, or from 0 to 1; others
    (normalised ones) are stretched so that they fill the range.
    """
    found = _array(image)
    if found.ndim == 4 and found.shape[0] == 1:
        found = found[0]
    if found.ndim == 3 and found.shape[0] in (1, 3) and found.shape[2] not in (3, 4):
        found = np.moveaxis(found, 0, -1)
    if found.ndim == 2:
        found = found[..., None]
    if found.ndim != 3 or found.shape[2] not in (1, 3, 4) or found.size == 0:
        raise ValueError(
            "`image` should be (height, width), (height, width, 3) or (3, height, width), got the "
            f"shape {np.shape(found)}"
        )
    return np.repeat(_bytes(found), 3, axis=2) if found.shape[2] == 1 else _bytes(found[..., :3])


def _array(image: Any) -> np.ndarray:
    if isinstance(image, Tensor):
        if image.is_meta or image.layout != torch.strided:
            raise TypeError("`image` should be a dense tensor with values")
        return (
            image.detach().cpu().float().numpy()
            if image.is_floating_point()
            else image.cpu().numpy()
        )
    if hasattr(image, "convert") and hasattr(image, "mode"):  # PIL
        return np.asarray(image.convert("RGB"))
    found = np.asarray(image)
    if found.dtype.kind not in "biuf":
        raise TypeError(
            f"`image` should be an array, a tensor or a PIL image, got {type(image).__name__}"
        )
    return found


def _bytes(pixels: np.ndarray) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    if not np.isfinite(pixels).all():
        raise ValueError("`image` holds values that are not finite")
    values = pixels.astype(np.float64)
    low, high = values.min(), values.max()
    if low < 0 or high > 255 or (high > 1 and pixels.dtype.kind == "f" and (values % 1).any()):
        values = (values - low) / max(high - low, 1e-9)
    elif high > 1:
        values = values / 255
    return (255 * values).round().astype(np.uint8)


def _checked(grid: Any) -> Grid | None:
    if grid is None:
        return None
    numbers = tuple(grid) if isinstance(grid, tuple | list) else ()
    if len(numbers) != 2 or not all(isinstance(x, int) and x > 0 for x in numbers):
        raise ValueError(f"`grid` should be (rows, columns) of the patches, got {grid!r}")
    return numbers[0], numbers[1]


def data_uri(pixels: np.ndarray) -> str:
    """The image as text that a page can show: PNG where it is small, otherwise JPEG."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((LARGEST, LARGEST))
    small = max(pixels.shape[:2]) <= SMALL
    written = BytesIO()
    image.save(written, "PNG", optimize=True) if small else image.save(written, "JPEG", quality=85)
    return (
        f"data:image/{'png' if small else 'jpeg'};base64,{b64encode(written.getvalue()).decode()}"
    )
