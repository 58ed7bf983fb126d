import sys

import numpy as np
import pytest
import torch

from attnlab.tasks.digits import Digits, from_patches, images_of_split, into_patches


def test_no_image_is_in_both_splits_and_none_is_lost():
    train, validation = (images_of_split(split)[0] for split in ("train", "validation"))
    both = {image.tobytes() for image in np.concatenate([train, validation])}
    assert len(both) == len(train) + len(validation) == 1797


def test_every_digit_gives_the_same_share():
    train, validation = (images_of_split(split)[1] for split in ("train", "validation"))
    ours, all_of_them = np.bincount(validation), np.bincount(np.concatenate([train, validation]))
    assert (ours == all_of_them // 5).all()


def test_labels_stay_with_their_images():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    label_of = {
        image.astype(np.int64).tobytes(): label
        for image, label in zip(digits.images, digits.target, strict=True)
    }
    batch = Digits().batch("train", 101, seed=0)
    looked_up = [label_of[row.numpy().tobytes()] for row in batch.inputs]
    assert batch.targets.tolist() == looked_up


def test_no_image_comes_twice_before_every_image_has_come():
    count = len(images_of_split("validation")[0])
    batch = Digits().batch("validation", count + 13, seed=0)
    rows = [row.numpy().tobytes() for row in batch.inputs]
    assert len(set(rows[:count])) == count
    assert len(rows) == count + 13


def test_a_language_model_starts_from_a_token_of_its_own():
    task = Digits(kind="language_model")
    batch = task.batch("train", 7, seed=5)
    assert (batch.inputs[:, 0] == 17).all()
    assert torch.equal(batch.targets, Digits().batch("train", 7, seed=5).inputs)
    assert task.tokens(batch.inputs[0])[0] == "start"


def test_patches_by_hand():
    image = np.arange(64).reshape(1, 8, 8)
    patches = into_patches(image, 2)
    assert patches.shape == (1, 16, 4)
    assert (patches[0, 0] * 16).tolist() == [0, 1, 8, 9]
    assert (patches[0, 1] * 16).tolist() == [2, 3, 10, 11]
    assert (patches[0, 4] * 16).tolist() == [16, 17, 24, 25]


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_patches_give_the_image_back(patch):
    task, pixels = Digits(unit="patches", patch=patch), Digits()
    batch = task.batch("train", 7, seed=0)
    assert 0 <= batch.inputs.min() < batch.inputs.max() == 1
    images = from_patches(batch.inputs.numpy(), patch).reshape(7, 64)
    assert (images == pixels.batch("train", 7, seed=0).inputs.numpy()).all()


@pytest.mark.parametrize(
    "task", [Digits(), Digits(kind="language_model"), Digits(unit="patches", patch=4)]
)
def test_the_picture_is_the_image(task):
    expected = Digits().batch("validation", 1, seed=3).inputs.reshape(8, 8).numpy()
    assert (task.example(3).image == expected).all()


def test_options_that_make_no_task_are_refused():
    with pytest.raises(ValueError, match="Patches are vectors"):
        Digits(unit="patches", kind="language_model")
    with pytest.raises(ValueError, match="patch=2 has no effect with unit='pixels'"):
        Digits(patch=2)
    with pytest.raises(ValueError, match="patch should divide 8: 1, 2 or 4, got 3"):
        Digits(unit="patches", patch=3)
    with pytest.raises(ValueError, match="patch should divide 8: 1, 2 or 4, got 8"):
        Digits(unit="patches", patch=8)
    with pytest.raises(ValueError, match="no unit 'patch'; did you mean 'patches'"):
        Digits(unit="patch")


def test_without_scikit_learn_there_is_a_sentence(monkeypatch):
    from attnlab.tasks import digits

    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        digits._load.__wrapped__()
