"""Embedding scales: the trials, and the rate that is a scale's own."""

import pytest

from attnlab.experiments import embedding_scales as scales
from attnlab.experiments import length_split, stored
from attnlab.experiments.grid import Trained
from attnlab.tasks import UNSCORED


def test_the_own_rate_has_the_least_loss_in_the_mean_over_seeds():
    losses = {1e-3: (0.3, 0.3, 0.3), 3e-3: (0.1, 0.1, 0.6)}
    rows = {
        f"{scales.arm('up', rate)}; known lengths, loss; seed {seed}": loss
        for rate, found in losses.items()
        for seed, loss in enumerate(found)
    }
    assert scales.own_rate(rows, "up") == 3e-3
    rows[f"{scales.arm('up', 3e-3)}; known lengths, loss; seed 1"] = 0.3
    assert scales.own_rate(rows, "up") == 1e-3


def test_the_rate_left_out_is_the_best_of_no_scale():
    rows = stored("73_embedding_scales.json", "embedding_scales")
    for scale in length_split.SCALES:
        tried = [
            rows[f"{scales.arm(scale, rate)}; known lengths, loss; tried"] for rate in scales.RATES
        ]
        assert min(tried) < tried[-1], scale


def test_all_scales_are_tuned_alike_and_differ_in_nothing_else():
    for grid, rates in ((scales.TRIALS, scales.RATES), (scales.TUNED, scales.COMPARED)):
        assert len(grid.arms) == 3 * len(rates)
        for rate in rates:
            for scale in length_split.SCALES:
                one = grid.arms[scales.arm(scale, rate)]
                assert one.model == {"scale": scale}
                assert one.training == {"learning_rate": rate}
                assert one.steps is None


def test_the_loss_is_that_of_the_tokens_that_are_asked_for():
    model = length_split.build("none", 4)
    batch = length_split.questions("known lengths", 16)
    logits = model(
        batch.inputs, batch.padding, source=batch.source, source_padding=batch.source_padding
    )
    asked = batch.targets != UNSCORED
    said = logits.log_softmax(-1)[asked, batch.targets[asked]]
    found = scales.TRIALS.score(Trained(model, None, "none", 4, quick=True))
    value, unit = found["known lengths, loss"]
    assert unit == "nats"
    assert value == pytest.approx(-said.mean().item(), abs=1e-3)
