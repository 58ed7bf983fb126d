"""The experiment `embodied_plans`, small: what an arm is, how answers are judged, and what the
stored rows say."""

import torch

from attnlab.experiments import embodied_plans as experiment
from attnlab.experiments import stored
from attnlab.tasks.blocks import written
from attnlab.tasks.grid_world import GridWorld


def test_arms_differ_in_what_they_say_and_encoders_begin_alike() -> None:
    arms = experiment.GRID.arms
    models = {arm: experiment.GRID.build(arm, 1) for arm in arms}
    first = models["named objects"].encoder.state_dict()
    blind = ["blind", "blind, frozen"]
    for arm in ("named objects, frozen", "longer texts, frozen", *blind, "with texts", "objects"):
        own = models[arm].encoder.state_dict()
        assert all(torch.equal(first[name], value) for name, value in own.items())
    assert {arm for arm in arms if models[arm].freeze} == {a for a in arms if "frozen" in a}
    assert [arm for arm in arms if models[arm].blind] == blind
    assert [arm for arm in arms if arms[arm].problem.also_words] == ["with texts"]
    assert {arms[arm].problem.most for arm in arms} == {experiment.KNOWN}
    read = {arm: arms[arm].training["read"] for arm in arms}
    assert [arm for arm in arms if read[arm] == experiment.LONGEST] == ["longer texts, frozen"]


def test_every_arm_goes_on_from_the_language_model_of_its_seed() -> None:
    for arm, read in (("objects, frozen", experiment.KNOWN), ("longer texts, frozen", 4)):
        model, _ = experiment.GRID.train(arm, 1, steps=1)
        begun = experiment.language_model(1, 2, read).state_dict()
        own = model.language_model.state_dict()
        assert all(torch.equal(begun[name], value) for name, value in own.items())


def test_six_vectors_are_as_many_as_those_of_the_objects() -> None:
    tasks = {arm: experiment.GRID.arms[arm].problem for arm in ("six vectors", "named objects")}
    assert {task.vectors * task.markers for task in tasks.values()} == {6}


def test_plans_are_judged_by_carrying_them_out() -> None:
    questions = GridWorld(most=2).questions("validation", 12, seed=0)
    answers = [(question, [*written(question.plan), "."]) for question in questions]
    assert experiment.right(answers) == 100
    others = [answers[0], *((question, ["red", "to"]) for question, _ in answers[1:])]
    assert experiment.right(others) == 8.33


def test_stored_plans_need_the_observation_and_no_length_is_exceeded_without_longer_texts() -> None:
    rows = stored("92_embodied_plans.json", "embodied_plans")
    for seed in experiment.GRID.seeds:
        known, longer = (
            {arm: rows[f"{arm}, {what}, seed {seed}"] for arm in experiment.GRID.arms}
            for what in ("known lengths", "longer")
        )
        assert known["named objects"] > known["blind"] + 15
        assert known["named objects, frozen"] > known["blind, frozen"] + 15
        assert known["named objects, frozen"] > known["six vectors, frozen"] + 5
        assert known["six vectors, frozen"] > known["one vector, frozen"] + 20
        assert longer.pop("longer texts, frozen") > 20
        assert set(longer.values()) == {0}
        words = {arm: rows[f"{arm}, words, seed {seed}"] for arm in experiment.GRID.arms}
        frozen = {words[f"{arm}, frozen"] for arm in (*experiment.TOLD, "blind")}
        assert len(frozen) == 1  # the language model is what it was
        assert words["with texts"] > words["named objects"] + 20
