"""The experiment `taught_by_a_teacher`, small: which images, and what is learned from them."""

import pytest
import torch
from torch.nn import functional as F

from attnlab import pretrained
from attnlab.experiments import stored
from attnlab.experiments import taught_by_a_teacher as experiment
from attnlab.objectives.batches import UNLABELLED
from attnlab.objectives.distillation import Distillation
from attnlab.pretrained.recipes import RECIPES


def test_a_hundred_images_have_a_label_ten_of_each_digit() -> None:
    _, labels = experiment.pictures("train")
    assert len(labels) == experiment.IMAGES
    one, other = (torch.from_numpy(experiment.known(100, draw)) for draw in (0, 1))
    for known in (one, other):
        assert torch.bincount(labels[known]).tolist() == [10] * 10
    assert not torch.equal(one, other)
    assert experiment.known(experiment.IMAGES, 0).all()


@pytest.mark.parametrize("name", experiment.LEARNS)
def test_what_an_arm_is_shown(name: str) -> None:
    """Which images come, and which targets they have."""
    task, images = experiment.task_of(name, 1), experiment.pictures("train")[0]
    batch = task.batch("train", 1500, seed=0)
    keys, shown = experiment._keys(images), experiment._keys(batch.inputs)
    places = (shown[:, None] == keys).long().argmax(-1)
    assert torch.equal(images[places], batch.inputs)
    labels = experiment.pictures("train")[1][places]
    known = torch.from_numpy(experiment.known(100, 1))[places]
    alone = name in experiment.ALONE
    assert len(set(places.tolist())) == (100 if alone else experiment.IMAGES)
    assert torch.equal(batch.targets[known], labels[known])
    if name == "all labels":
        assert torch.equal(batch.targets, labels)
    elif name.startswith("its"):
        said = experiment.answered().argmax(-1)[places]
        assert torch.equal(batch.targets[~known], said[~known])
    else:
        assert alone == known.all().item()
        assert (batch.targets[~known] == UNLABELLED).all()


def test_unseen_images_keep_their_labels() -> None:
    one, other = (experiment.task_of(name, 0) for name in ("100 labels", "all labels"))
    found = [task.batch("validation", 20, seed=3) for task in (one, other)]
    assert torch.equal(found[0].inputs, found[1].inputs)
    assert torch.equal(found[0].targets, found[1].targets)
    assert (found[0].targets >= 0).all()


def test_a_remembered_teacher_answers_as_the_teacher() -> None:
    images, _ = experiment.pictures("train")
    chosen = images[[700, 3, 1441, 3]]
    with torch.no_grad():
        expected = experiment.teacher()(chosen)
    found = experiment.Remembered(experiment.answered())(chosen)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert len(experiment._keys(images).unique()) == len(images)


def test_shuffled_logits_keep_the_answer_and_the_values() -> None:
    logits = torch.randn(40, 7, generator=torch.Generator().manual_seed(0))
    found, again = (experiment.shuffled(logits, 2) for _ in range(2))
    assert torch.equal(found, again)
    assert torch.equal(found.argmax(-1), logits.argmax(-1))
    assert torch.equal(found.sort(-1).values, logits.sort(-1).values)
    best = F.one_hot(logits.argmax(-1), 7).bool()
    assert torch.equal(found[best], logits[best])
    assert 0.7 < (found != logits)[~best].double().mean() < 0.95
    assert not torch.equal(found, experiment.shuffled(logits, 3))


def test_smoothed_labels_are_a_teacher_of_label_smoothing() -> None:
    labels = torch.tensor([3, 9, 0])
    z = torch.randn(3, 10, generator=torch.Generator().manual_seed(1))
    p = experiment.smoothed(labels).softmax(-1)
    found = -(p * z.log_softmax(-1)).sum(-1).mean()
    wanted = F.cross_entropy(z, labels, label_smoothing=experiment.SMOOTHED)
    torch.testing.assert_close(found, wanted)


def test_objectives_have_the_temperature_and_the_weights_of_their_arm() -> None:
    for name, one in experiment.LEARNS.items():
        made = experiment.objective(name, 0, learning=2)
        if one.logits is None:
            assert made == "next_token"
            continue
        assert isinstance(made, Distillation)
        o = made.options
        assert (o.temperature, o.soft, o.hard) == (one.T, one.soft, one.hard)
        if "T = " in name:
            assert f"T = {o.temperature:g}" in name


def test_the_rate_of_each_arm_is_the_best_that_is_stored_for_seed_0() -> None:
    rows = stored("82_taught_by_a_teacher.json", "taught_by_a_teacher")
    assert list(experiment.BEST) == list(experiment.LEARNS)
    for name, rate in experiment.BEST.items():
        if name == experiment.UNTRIED:
            assert rate == experiment.BEST["teacher, T = 4"]
            continue
        tried = {
            each: rows[f"{experiment.at_rate(name, each)}; right, tried once"]
            for each in experiment.RATES
        }
        assert tried[rate] == max(tried.values()), name
        assert tried[rate] == experiment.scores(rows, name)[0], "the same training"


def test_the_learner_of_100_is_built_and_trained_as_the_shipped_teacher() -> None:
    recipe = RECIPES["digits"]
    config = experiment.teacher().config
    assert {name: config[name] for name in recipe.model} == recipe.model
    steps = {"steps": recipe.training["steps"]}
    assert {**experiment.TAUGHT, **steps} == recipe.training
    mine, shipped = experiment.teacher().state_dict(), pretrained.load("digits")[0].state_dict()
    assert all(torch.equal(weight, mine[name]) for name, weight in shipped.items())
