"""An image and its patches: which tokens of a layer are which squares of the picture."""

import math
from base64 import b64encode
from collections.abc import Sequence
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
        self.grid = None if grid is None else checked_grid(grid)
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

    def after(self, text: Sequence[Any], n: int) -> list[Any] | None:
        """The n tokens of a layer that reads a text and then the image; None where they are not
        so many."""
        if self.grid is None or any(isinstance(token, Patch) for token in text):
            return None
        rows, columns = self.grid
        special = n - len(text) - rows * columns
        if special not in (0, 1):
            return None
        patches = [Patch(row, column) for row in range(rows) for column in range(columns)]
        return [*text, *["[image]"] * special, *patches]

    def grids(self, sets: list[list[Any]]) -> list[dict[str, Any] | None]:
        """For each list of tokens its grid: {"rows", "columns", "first"}, or None.

        Where patches stand among words, or are several vectors each, "tokens" are those of every
        patch, in reading order. "text" is there and True where some of the other tokens are words,
        and not what an encoder of images puts before its patches.
        """
        return [self._described(tokens) for tokens in sets]

    def _described(self, tokens: list[Any]) -> dict[str, Any] | None:
        if not any(tokens is known for known in self._known.values()):
            return self._among_words(tokens)
        grid = self.grid_of(len(tokens))
        assert grid is not None
        rows, columns = grid
        return {"rows": rows, "columns": columns, "first": len(tokens) - rows * columns}

    def _among_words(self, tokens: list[Any]) -> dict[str, Any] | None:
        """The grid of a text in which some of the tokens are a `Patch`."""
        places = [(at, token) for at, token in enumerate(tokens) if isinstance(token, Patch)]
        if not places:
            return None
        rows, columns = self.grid or (
            1 + max(token.row for _, token in places),
            1 + max(token.column for _, token in places),
        )
        of_patch: list[list[int]] = [[] for _ in range(rows * columns)]
        for at, token in places:
            if not (0 <= token.row < rows and 0 <= token.column < columns):
                raise ValueError(
                    f"token {at} is the patch in row {token.row} and column {token.column}, and "
                    f"the image has {rows} × {columns} patches"
                )
            of_patch[token.row * columns + token.column].append(at)
        found: dict[str, Any] = {"rows": rows, "columns": columns, "first": places[0][0]}
        if len(places) < len(tokens):
            found["text"] = True
        in_order = [[found["first"] + at] for at in range(rows * columns)]
        return found if of_patch == in_order else found | {"tokens": of_patch}

    def sent(self) -> dict[str, Any]:
        """The image for the front end: as a data URI, with its size."""
        high, wide = self.pixels.shape[:2]
        return {"url": data_uri(self.pixels), "width": wide, "height": high}

    def all_read(self, sets: list[list[Any]]) -> None:
        """Refuse an image that no layer reads and no token is a patch of."""
        if not self.read and not any(isinstance(x, Patch) for tokens in sets for x in tokens):
            raise ValueError(
                "no layer reads the image: none has as many tokens as it has patches; give "
                "`grid=(rows, columns)`, the patches of the image"
            )


def side_by_side(images: Sequence[Any]) -> np.ndarray:
    """Several images of one size as one, in their order; a ValueError for other sizes."""
    found = [pixels_of(image) for image in images]
    if not found or len({each.shape for each in found}) > 1:
        sizes = ", ".join(f"{each.shape[0]} × {each.shape[1]}" for each in found)
        raise ValueError(
            f"images that are drawn side by side should have one size, got {sizes or 'no image'}"
        )
    return np.concatenate(found, 1)


def at_markers(tokens: Sequence[Any], marked: Sequence[bool], grid: Grid, images: int) -> list[Any]:
    """The tokens, with a `Patch` in the place of each that is marked.

    The images stand side by side, each of ``grid`` patches; where there are more markers than
    patches, as many of them in turn are vectors of one patch. A ValueError where that does not
    come out even.
    """
    rows, columns = grid
    count, patches = sum(map(bool, marked)), images * rows * columns
    if count == 0 or count % patches:
        raise ValueError(
            f"the text has {count} markers of vectors, which cannot be shared by {images} images "
            f"of {rows} × {columns} patches; give `image`, as a list where there are several, and "
            "`grid=(rows, columns)`, the patches of each"
        )
    order = [
        Patch(row, image * columns + column)
        for image in range(images)
        for row in range(rows)
        for column in range(columns)
    ]
    each, at = count // patches, iter(range(count))
    return [
        order[next(at) // each] if mark else token
        for token, mark in zip(tokens, marked, strict=True)
    ]


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


def checked_grid(grid: Any) -> Grid:
    """The rows and columns of patches; a ValueError for anything else."""
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
