"""Planted lessons: what a training has made is followed to the cell that prints it."""

import pytest

from tests.trained import first_training, printing_cells

TRAINING = "from attnlab.train import fit\nmodel = build()\nfit(model, task, 300)"
BY_HAND = "def learn(model):\n    for batch in batches:\n        optimizer.step()\n\nlearn(model)"
IN_PIXELS = "from attnlab.experiments import pixels\nmodel, _ = pixels.train('dense', seed=0)"


def cells(*sources):
    return [{"cell_type": "code", "metadata": {}, "source": [each]} for each in sources]


@pytest.mark.parametrize("training", [TRAINING, BY_HAND, IN_PIXELS])
@pytest.mark.parametrize(
    "later",
    [
        "print(score(model))",
        "def shown():\n    return score(model)\n\nprint(shown())",
        "found = {}\nfor name in names:\n    found[name] = model(name)\nprint(found)",
        "rows = []\nrows.append(score(model))\nfor row in rows:\n    print(row)",
    ],
)
def test_what_a_training_has_made_is_followed(training, later):
    lesson = cells("print(1)", training, later)
    assert printing_cells(lesson) == lesson[2:]
    assert first_training(lesson) == 1


@pytest.mark.parametrize(
    "later",
    [
        "print(stored('rows.json'))",
        "model = load('shipped')\nprint(score(model))",  # another one by the same name
        "seen = [model(x) for x in inputs]\nx = 1\nprint(x)",
        "fit(lengths, times)\nprint(lengths)",  # of attnlab.measure
        "state = step(state)\nprint(state)",
    ],
)
def test_other_things_are_not(later):
    others = "from attnlab.measure.fits import fit" if later.startswith("fit") else ""
    assert printing_cells(cells(TRAINING, others, later)) == []


def test_a_lesson_may_train_nothing():
    assert first_training(cells("print(1)", "model = load('shipped')")) is None
