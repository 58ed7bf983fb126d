"""The experiment `words_for_images`, small: what an arm is, what is asked, what the rows say."""

import pytest
import torch

from attnlab.experiments import stored
from attnlab.experiments import words_for_images as experiment
from attnlab.experiments.words_for_images import RATES, named
from attnlab.tasks.interleaved import NEW_NAMES

STILL = 1e-30  # a learning rate that moves nothing


def test_every_arm_begins_with_the_same_language_model_and_encoder() -> None:
    models = {arm: experiment.WORDS.build(named(arm, RATES[0]), 1) for arm in experiment.ARMS}
    first = models["frozen"].state_dict()
    for arm, other in models.items():
        for name, value in other.state_dict().items():
            if arm != "mixed words" or not name.startswith("project."):
                assert torch.equal(first[name], value)
    assert [arm for arm, model in models.items() if not model.freeze] == [
        "trained too", "from scratch",
    ]  # fmt: skip
    assert [arm for arm, model in models.items() if model.blind] == ["black images"]
    assert [arm for arm, model in models.items() if model.of_words] == ["mixed words"]


def test_only_from_scratch_has_never_read_a_sentence() -> None:
    quick = experiment.language_model(1, experiment.QUICK).state_dict()
    other = experiment.language_model(1, experiment.QUICK, experiment.NAMING).state_dict()
    assert not torch.equal(quick["embedding.weight"], other["embedding.weight"])
    new = experiment.WORDS.build(named("frozen", RATES[0]), 1).language_model.state_dict()
    for arm in ("frozen", "from scratch"):
        model = experiment.WORDS.build(named(arm, RATES[0]), 1)
        training = {"batch_size": 4, "learning_rate": STILL, "weight_decay": 0.0}
        options = experiment.WORDS.arms[named(arm, RATES[0])].training | training
        experiment.loop(model, experiment.Interleaved(), 1, seed=1, **options)
        found, wanted = model.language_model.state_dict(), quick if arm == "frozen" else new
        assert all(found[name].allclose(value) for name, value in wanted.items())


def test_a_new_name_is_chosen_among_those_of_the_prompt() -> None:
    """The likeliest word of all is one that the prompt has not given."""

    class Says(torch.nn.Module):
        def forward(self, tokens, padding, *, source, source_padding):
            logits = torch.zeros(*tokens.shape, len(experiment.NAMES))
            names = torch.tensor([experiment.NAMES.index(name) for name in NEW_NAMES])
            said = (tokens[:, :, None] == names).any(1)
            logits[:, :, names] = torch.where(said, 1.0, 9.0)[:, None]
            rows = torch.arange(len(tokens))
            logits[rows, padding.sum(1) - 2, tokens[rows, padding.sum(1) - 1]] += 1
            return logits

    assert experiment.right(Says(), "named", experiment.asked("named")) == 100.0


@pytest.mark.parametrize("kind", experiment.KINDS)
def test_the_most_frequent_answer_is_the_best_of_those_that_never_change(kind: str) -> None:
    """A model that always says one word is right at most as often; for one word, as often."""

    class Says(torch.nn.Module):
        def __init__(self, word: int) -> None:
            super().__init__()
            self.word = word

        def forward(self, tokens, padding, *, source, source_padding):
            return torch.eye(len(experiment.NAMES))[torch.full_like(tokens, self.word)]

    batch = experiment.asked(kind)
    found = {
        experiment.NAMES[word]: experiment.right(Says(word), kind, batch)
        for word in experiment.CANDIDATES[kind]
    }
    word, often = experiment.most_frequent(kind)
    assert found[word] == often == max(found.values())
    assert often > 100 / len(found)


def test_an_arm_has_the_rate_that_suits_what_it_was_trained_for() -> None:
    rows = {
        f"{named('frozen', rate)}, is shown, seed {seed}": {RATES[0]: 50, RATES[1]: 60}[rate] - seed
        for rate in RATES
        for seed in experiment.SEEDS
    }
    assert experiment.own_rate(rows, "frozen") == RATES[1]
    rows[f"{named('frozen', RATES[0])}, is shown, seed 0"] = 100
    assert experiment.own_rate(rows, "frozen") == RATES[0]


def test_new_names_are_read_by_a_language_model_of_their_own() -> None:
    arm = named("frozen", RATES[0])
    model = experiment.NAMED.build(arm, 1)
    options = experiment.NAMED.training | {"batch_size": 4, "learning_rate": STILL}
    experiment.loop(model, experiment.Interleaved(), 1, seed=1, **options)
    wanted = experiment.language_model(1, experiment.QUICK, experiment.NAMING).state_dict()
    found = model.language_model.state_dict()
    assert all(found[name].allclose(value) for name, value in wanted.items())


def test_stored_captions_need_the_image_and_the_language_model_stays_as_it_was() -> None:
    rows = stored("91_words_for_images.json", "words_for_images")
    shown = {arm: experiment.chosen(rows, arm, "is shown") for arm in experiment.ARMS}
    for seed in experiment.SEEDS:
        assert shown["frozen"][seed] > 50 > 20 > shown["black images"][seed]
        for kind in experiment.KINDS:
            (written,) = {
                rows[f"{named(arm, rate)}, {kind} written, seed {seed}"]
                for arm in ("frozen", "black images", "mixed words")
                for rate in RATES
            }
            assert written > 95
