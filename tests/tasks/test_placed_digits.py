"""Placed digits: where they stand, and what stands around them."""

import numpy as np
import pytest
import torch

from attnlab.tasks.digits import images_of_split, into_patches
from attnlab.tasks.placed_digits import CANVAS, PlacedDigits, placed_at


def corner_of(image: np.ndarray, digit: np.ndarray) -> tuple[int, int] | None:
    """Where the digit stands in the image, if the image is the digit and blank elsewhere."""
    for row in range(9):
        for column in range(9):
            if np.array_equal(placed_at(digit[None], [[row, column]])[0], image):
                return row, column
    return None


def levels(batch, patch: int) -> np.ndarray:
    from attnlab.systems.patches import from_patches

    images = from_patches(batch.inputs, (CANVAS // patch,) * 2, patch)[:, 0]
    return (images * 16).numpy().astype(np.int64)


def test_an_image_is_put_at_its_corner_and_nothing_else_is_there() -> None:
    digits = np.arange(2 * 64).reshape(2, 8, 8) + 1
    placed = placed_at(digits, np.array([[0, 3], [8, 5]]))
    assert placed.shape == (2, 16, 16)
    assert np.array_equal(placed[0, :8, 3:11], digits[0])
    assert np.array_equal(placed[1, 8:, 5:13], digits[1])
    assert (placed > 0).sum() == 2 * 64


@pytest.mark.parametrize(("patch", "step"), [(4, 1), (2, 4), (8, 8), (1, 2)])
def test_every_place_of_its_step_is_drawn_with_digits_of_the_split(patch: int, step: int) -> None:
    batch = PlacedDigits(patch=patch, step=step).batch("validation", 400, seed=3)
    known, labels = images_of_split("validation")
    by_pixels = {}
    for digit, label in zip(known, labels, strict=True):
        by_pixels.setdefault(digit.sum(), []).append((digit, label))
    corners = set()
    for image, answer in zip(levels(batch, patch)[:120], batch.targets[:120].tolist(), strict=True):
        found = [
            (corner, label)
            for digit, label in by_pixels[image.sum()]
            if (corner := corner_of(image, digit)) is not None
        ]
        assert answer in {label for _, label in found}
        corners |= {corner for corner, _ in found}
    places = {(row, column) for row in range(0, 9, step) for column in range(0, 9, step)}
    # a digit with a blank edge could stand at a neighbouring place as well
    assert len(corners) >= min(0.6 * len(places), 60)
    if step >= 4:
        assert places <= corners


def test_patches_are_cut_from_the_whole_image() -> None:
    task = PlacedDigits(patch=4)
    batch = task.batch("train", 3, seed=1)
    assert batch.inputs.shape == (3, task.length, task.features) == (3, 16, 16)
    again = torch.from_numpy(into_patches(levels(batch, 4), 4))
    assert torch.equal(again, batch.inputs)


def test_an_example_is_said_in_words() -> None:
    task = PlacedDigits(patch=2)
    example, batch = task.example(2), task.batch("validation", 1, seed=2)
    assert example.title == f"A {batch.targets.item()} somewhere"
    assert np.array_equal(example.image, levels(batch, 2)[0])


@pytest.mark.parametrize("name", ["patch", "step"])
def test_sides_that_do_not_divide_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} should divide 8: 1, 2, 4 or 8, got 3"):
        PlacedDigits(**{name: 3})
    with pytest.raises(ValueError, match=name):
        PlacedDigits(**{name: 0})
