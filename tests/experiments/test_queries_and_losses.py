"""The experiment `queries_and_losses`, small: which losses, which beginnings, and how it scores."""

import pytest
import torch

from attnlab.experiments import queries_and_losses as experiment
from attnlab.experiments import stored
from attnlab.systems.blip2 import LOSSES
from attnlab.tasks import UNSCORED
from attnlab.tasks.scenes import Scenes

QUICK = experiment.QUICK
STILL = 1e-30  # a learning rate that moves nothing


def test_each_loss_is_left_out_once() -> None:
    given = [arm.training.get("losses", LOSSES) for arm in experiment.FIRST.arms.values()]
    assert [len(losses) for losses in given] == [3, 2, 2, 2, 3]
    for loss in LOSSES:
        assert set(experiment.FIRST.arms[f"no {loss}"].training["losses"]) == {*LOSSES} - {loss}


def test_all_arms_of_the_first_stage_begin_with_the_same_q_former() -> None:
    models = [experiment.FIRST.build(arm, 2) for arm in experiment.FIRST.arms]
    first = models[0].state_dict()
    for model in models[1:]:
        assert all(torch.equal(first[name], value) for name, value in model.state_dict().items())


def test_without_training_only_the_encoder_has_learned() -> None:
    before = experiment.FIRST.build(experiment.NONE, 1)
    after, history = experiment.FIRST.train(experiment.NONE, 1, steps=QUICK)
    assert history is None
    for name, value in after.state_dict().items():
        same = torch.equal(value, before.state_dict()[name])
        assert same or name.startswith("encoder.")
    learned = experiment.learned("encoder", 1, quick=True)
    assert all(torch.equal(after.encoder.state_dict()[name], learned[name]) for name in learned)


def test_the_second_stage_begins_with_the_q_former_of_its_arm() -> None:
    for arm, begins in (("after stage one", "three losses"), ("without stage one", None)):
        model = experiment.SECOND.build(arm, 1)
        start = {name: value.clone() for name, value in model.qformer.state_dict().items()}
        training = {"batch_size": 8, "learning_rate": STILL, "weight_decay": 0.0}
        experiment.second_loop(model, experiment.TASK, QUICK, seed=1, begins=begins, **training)
        if begins is not None:
            start = experiment.stage_one(begins, 1, QUICK)
        found = model.qformer.state_dict()
        assert all(found[name].allclose(value) for name, value in start.items())
        words = experiment.learned("words", 1, quick=True)
        assert words["embedding.weight"].equal(model.language_model.embedding.weight)


@pytest.mark.parametrize(
    ("halves", "every"), [([0, 1], True), ([1, 0], False), ([0, 0], False), ([1, 1], False)]
)
def test_the_encoder_is_asked_for_both_halves(halves: list[int], every: bool, monkeypatch) -> None:
    """One that names each patch rightly is right for all. One that names the digit of another half
    is right where both digits are the same."""
    batch = experiment.SCENES.batch("validation", 100, seed=0)
    assert isinstance(batch.targets, torch.Tensor)
    of_halves = batch.targets.unflatten(1, (4, 2, 4))[:, :, halves]
    named = torch.nn.functional.one_hot(of_halves.flatten(1), 10).double()

    def model(scenes: torch.Tensor) -> torch.Tensor:
        assert torch.equal(scenes, batch.inputs)
        return named

    monkeypatch.setattr(experiment, "knowing", lambda *_, **__: model)
    (name, measure), *_ = experiment.FIRST.baselines.items()
    assert name.endswith("seed 0")
    same = experiment.percent(batch.targets[:, 0] == batch.targets[:, -1])
    assert 0 < same < 50
    assert measure(True) == (100 if every else same)


def test_black_scenes_have_the_same_captions() -> None:
    one, other = (
        each.batch("validation", 9, seed=0) for each in (experiment.TASK, experiment.Black())
    )
    assert torch.equal(one.inputs, other.inputs)
    assert one.source.any()
    assert not other.source.any()


def test_the_words_are_captions_behind_their_numbers_and_without_scenes() -> None:
    batch = experiment.Words().batch("train", 7, seed=0)
    assert batch.source is None
    captions = experiment.TASK.batch("train", 7, seed=0)
    assert torch.equal(batch.inputs[:, 4:], captions.inputs)
    assert torch.equal(batch.targets[:, 4:], captions.targets)
    assert (batch.targets[:, :4] == UNSCORED).all()
    for said, caption in zip(batch.inputs[:, :4].tolist(), captions.inputs, strict=True):
        left, right = experiment.TASK.pair(caption) or (None, None)
        assert said == [left, left, right, right]


def test_a_caption_is_written_digit_by_digit() -> None:
    """The second digit is asked once the first has been written, right or wrong."""
    digits = torch.tensor([[3, 7], [3, 5], [5, 9]])

    def say(tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(3, 7, 16)
        logits[:, 1, 3] = logits[:, 1, 12] = 1  # "three", and a word that is no number
        logits[:, 1, 12] = 9
        second = 4 + tokens[:, experiment.FIRST_DIGIT]
        logits[torch.arange(3), 5, second] = 1
        return logits

    assert experiment.written(say, digits) == pytest.approx(33.33)


def test_the_left_half_of_a_scene_is_the_left_half_of_its_patches() -> None:
    weights = torch.zeros(1, 1, 2, 32)
    weights[0, 0, 0, [0, 3, 8, 27]] = 0.25  # rows of eight patches
    weights[0, 0, 1, [4, 7, 8, 31]] = 0.25
    assert experiment.on_the_left(weights).tolist() == [[[1.0, 0.25]]]


def test_heads_on_opposite_sides_are_one_sided_and_their_query_is_not() -> None:
    left = torch.tensor([[[1.0, 0.5], [0.0, 0.5]]])  # (b, h, q): two heads, two queries
    assert experiment.one_sided(left) == 50
    assert experiment.one_sided(left.mean(1)) == 0
    assert experiment.one_sided(torch.tensor([0.75])) == 50


def test_each_patch_is_to_name_the_digit_of_its_own_half() -> None:
    scenes, halves = (each.batch("train", 5, seed=4) for each in (Scenes(), experiment.Halves()))
    assert torch.equal(scenes.inputs, halves.inputs)
    named = halves.targets.view(5, 4, 2, 4)  # rows, halves, columns of a half
    assert (named == named[:, :1, :, :1]).all()
    assert torch.equal(10 * named[:, 0, 0, 0] + named[:, 0, 1, 0], scenes.targets)


def test_the_likeliest_caption_is_the_one_that_matching_prefers() -> None:
    model = experiment.FIRST.build(experiment.NONE, 1).eval()
    image = model.see(experiment.asked("validation", 3).scenes)
    with torch.no_grad():
        found = experiment._likeliest(model, image)
        for one, best in zip(image, found, strict=True):
            every = model.matching(one.expand(100, -1, -1), experiment.CAPTIONS)
            assert (every[:, 1] - every[:, 0]).argmax() == best


def test_stored_scores_without_their_loss_or_image_are_those_of_a_guess() -> None:
    """Two losses teach what the third is not needed for, and the second stage needs no first."""
    rows = stored("91_queries_and_losses.json", "queries_and_losses")
    for seed in experiment.SEEDS:
        one, two = (
            {
                (arm, what): rows[f"stage {stage}, {arm}, {what}, seed {seed}"]
                for arm in grid.arms
                for what in whats
            }
            for stage, grid, whats in (
                ("one", experiment.FIRST, ("retrieved", "retrieved by matching", "written")),
                ("two", experiment.SECOND, ("written",)),
            )
        )
        for (arm, what), right in one.items():
            missing = {"retrieved": "contrastive", "retrieved by matching": "matching"}
            guess = arm in (experiment.NONE, f"no {missing.get(what, 'captioning')}")
            assert right < 5 if guess else right > 40, (arm, what, seed)
        after = two["after stage one", "written"]
        assert abs(after - two["without stage one", "written"]) < 5
        assert two["black images", "written"] < 2
        assert rows[f"the language model, in words, seed {seed}"] == 100


def test_stored_heads_and_queries_are_more_one_sided_after_training() -> None:
    rows = stored("91_queries_and_losses.json", "queries_and_losses")
    for seed in experiment.SEEDS:
        for what in ("queries", "heads", "layer 0, queries", "layer 0, heads"):
            trained, not_trained = (
                rows[f"stage one, {arm}, one-sided, {what}, seed {seed}"]
                for arm in ("three losses", experiment.NONE)
            )
            assert trained > 1.5 * not_trained


def test_the_captions_are_in_the_order_of_their_pairs() -> None:
    assert [experiment.TASK.pair(row) for row in experiment.CAPTIONS] == [
        divmod(pair, 10) for pair in range(100)
    ]
