import numpy as np
import pytest
import torch

from attnlab.tasks.digits import images_of, images_of_split
from attnlab.tasks.scenes import Scenes, draw_scenes, scene_of


@pytest.mark.parametrize("patch", [1, 2, 4, 8])
def test_a_scene_is_two_images_of_its_pair(patch):
    task = Scenes(patch=patch)
    images, labels = images_of_split("validation")
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    batch = task.batch("validation", 31, seed=1)
    for patches, pair in zip(batch.inputs, batch.targets.tolist(), strict=True):
        scene = scene_of(patches.numpy(), patch)
        left, right = (np.ascontiguousarray(scene[:, half : half + 8]) for half in (0, 8))
        assert (label_of[left.tobytes()], label_of[right.tobytes()]) == divmod(pair, 10)


def test_patches_are_read_row_by_row_through_both_digits():
    scenes, _ = draw_scenes("train", 1, np.random.default_rng([0, 3]))
    batch = Scenes(patch=4).batch("train", 1, seed=3)
    for place, (row, column) in enumerate([(0, 0), (0, 4), (0, 8), (0, 12), (4, 0)]):
        wanted = torch.from_numpy(scenes[0, row : row + 4, column : column + 4]).flatten() / 16
        assert torch.equal(batch.inputs[0, place], wanted.float())


def test_no_image_is_shared_and_every_pair_occurs_in_each_split():
    halves = []
    for split in ("train", "validation"):
        scenes, digits = draw_scenes(split, 3000, np.random.default_rng(5))
        assert len(np.unique(digits @ [10, 1])) == 100
        halves.append(
            {np.ascontiguousarray(s[:, h : h + 8]).tobytes() for s in scenes for h in (0, 8)}
        )
    assert halves[0].isdisjoint(halves[1])


def test_every_image_of_a_digit_is_drawn():
    images, labels = images_of_split("validation")
    wanted = {image.tobytes() for image in images[labels == 7]}
    drawn = images_of(np.full((500, 3), 7), "validation", np.random.default_rng(0))
    assert drawn.shape == (500, 3, 8, 8)
    assert {image.tobytes() for image in drawn.reshape(-1, 8, 8)} == wanted


def test_an_example_is_said_in_words():
    example, batch = Scenes().example(2), Scenes().batch("validation", 1, seed=2)
    left, right = divmod(batch.targets.item(), 10)
    assert example.title == f"A {left} left of a {right}"
    assert example.labels == [f"{left}{right}"]
    assert example.image.shape == (8, 16)


def test_a_patch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="patch should divide 8: 1, 2, 4 or 8, got 3"):
        Scenes(patch=3)
