import pytest
import torch

from attnlab.tasks.captions import END, START, Captions
from attnlab.tasks.scenes import Scenes


def test_a_caption_by_hand():
    task = Captions()
    left, right = (task.caption(3, 7, side) for side in ("left", "right"))
    assert task.tokens(left) == ["start", "a", "three", "left", "of", "a", "seven"]
    assert task.tokens(right) == ["start", "a", "seven", "right", "of", "a", "three"]
    assert task.pair(left) == task.pair(right) == (3, 7)


@pytest.mark.parametrize("sides", [("left",), ("right",), ("right", "left")])
def test_captions_describe_their_scenes(sides):
    task = Captions(sides=sides)
    batch, scenes = task.batch("train", 211, seed=4), Scenes().batch("train", 211, seed=4)
    assert torch.equal(batch.source, scenes.inputs)
    said = set()
    for inputs, targets, pair in zip(batch.inputs, batch.targets, scenes.targets, strict=True):
        assert task.pair(inputs) == task.pair(targets) == divmod(pair.item(), 10)
        assert inputs[0] == START
        assert targets[-1] == END
        said.add(task.tokens(inputs)[3])
    assert said == set(sides)


def test_what_is_no_caption_has_no_pair():
    task = Captions()
    row = task.caption(0, 9)
    longer = torch.cat([row, torch.tensor([END, 5])])
    assert task.pair(row[1:]) == task.pair(longer) == (0, 9)
    for place in range(1, 7):
        wrong = row.clone()
        wrong[place] = START if place == 1 else 10 if row[place] < 10 else 4
        assert task.pair(wrong) is None, place
    assert task.pair(row[:-1]) is None
    assert task.pair([]) is None


def test_an_example_shows_the_scene_and_says_its_caption():
    example = Captions(patch=4).example(1)
    assert example.image.shape == (8, 16)
    assert example.description == f"From 8 patches the model is to write: {example.title.lower()}."


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Captions(patch=5), "patch should divide 8"),
        (lambda: Captions(sides=()), r"'left', 'right' or both, each once, got \(\)"),
        (lambda: Captions(sides=("left", "left")), "each once"),
        (lambda: Captions(sides=("above",)), "no side 'above'; known: left, right"),
        (lambda: Captions().caption(3, 10), "digits are from 0 to 9, got 3 and 10"),
        (lambda: Captions().caption(-1, 3), "a digit should be at least 0"),
        (lambda: Captions().caption(1, 3, "lef"), "no side 'lef'; did you mean 'left'"),
    ],
)
def test_what_describes_no_scene_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
