"""The experiment `words_for_images`, small: what an arm is, and what the stored rows say."""

import torch

from attnlab.experiments import stored
from attnlab.experiments import words_for_images as experiment


def test_every_arm_begins_with_the_same_language_model_and_encoder() -> None:
    models = [experiment.GRID.build(arm, 1) for arm in experiment.GRID.arms]
    first = models[0].state_dict()
    for other in models[1:]:
        assert all(torch.equal(first[name], value) for name, value in other.state_dict().items())
    assert [model.freeze for model in models] == [True, True, False]
    assert [model.blind for model in models] == [False, True, False]


def test_stored_captions_need_the_image_and_the_language_model_stays_as_it_was() -> None:
    rows = stored("91_words_for_images.json", "words_for_images")
    for seed in experiment.GRID.seeds:
        seen, blind = (
            {kind: rows[f"{arm}, {kind} shown, seed {seed}"] for kind in experiment.KINDS}
            for arm in ("frozen", "black images")
        )
        assert seen["is"] > 60 > 20 > blind["is"]
        assert rows[f"frozen, written, seed {seed}"] == rows[f"black images, written, seed {seed}"]
        assert max(seen["after"], seen["before"]) < 25  # never shown: the transfer is small
