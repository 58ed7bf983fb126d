"""The experiment `pixels`, small: every pattern, one budget, nothing of the caller's disturbed."""

import json
import math

import pytest
import torch
from torch.nn import functional as F

from attnlab.experiments import asset
from attnlab.experiments.pixels import (
    PATTERNS,
    SIDE,
    SIZES,
    VARIANTS,
    bits_per_pixel,
    build,
    complete,
    recognised,
    train,
)
from attnlab.tasks import task

MOST = 20_000


def test_bits_are_the_mean_over_every_unseen_image():
    model = build(VARIANTS["dense"], 0)
    unseen = task("digits", unit="pixels", kind="language_model").batch("validation", 355, seed=7)
    assert len(torch.unique(unseen.targets, dim=0)) == 355  # all of them, in another order
    with torch.no_grad():
        logits = model.eval()(unseen.inputs)
    nats = F.cross_entropy(logits.mT, unseen.targets).item()
    assert bits_per_pixel(model.train()) == pytest.approx(nats / math.log(2), rel=1e-5)
    assert model.training


def test_the_aligned_column_is_that_of_the_pixel_asked_for():
    """Key j holds pixel j − 1, so the pixel above pixel i is key i − 7."""
    row = VARIANTS["aligned"].row(61, SIDE**2).tolist()
    pixels_seen = [key - 1 for key in row if key < 61 - SIDE]
    assert pixels_seen == [61 - SIDE * up for up in range(7, 1, -1)]
    assert row[-9:] == list(range(53, 62))


@pytest.mark.parametrize("name", PATTERNS)
def test_models_differ_in_their_pattern_alone_and_none_sees_the_future(name):
    model, dense = build(PATTERNS[name], 0).eval(), build(VARIANTS["dense"], 0)
    for ours, theirs in zip(model.parameters(), dense.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    inputs = task("digits", unit="pixels", kind="language_model").batch("train", 2, 0).inputs
    later = inputs.clone()
    later[:, 41:] = 3
    with torch.no_grad():
        assert torch.equal(model(inputs)[:, :41], model(later)[:, :41])
    seen = PATTERNS[name].dense(SIDE**2)
    assert seen.diagonal().all()
    assert not seen.triu(1).any()


def test_the_window_has_about_as_many_pairs_as_the_others():
    counts = [VARIANTS[name].count(SIDE**2) for name in ("strided", "fixed", "window", "aligned")]
    assert max(counts) < 1.05 * min(counts)


def test_completions_keep_the_upper_half_and_are_read_by_the_nearest_neighbour():
    unseen = task("digits", unit="pixels").batch("validation", 355, seed=0).inputs
    drawn = complete(build(VARIANTS["window"], 0).eval())
    assert torch.equal(drawn[:, :32], unseen[:, :32])
    assert drawn.max() <= 16
    assert not torch.equal(drawn[:, 32:], unseen[:, 32:])
    assert recognised(unseen) > 0.95
    assert recognised(unseen.roll(1, 0)) < 0.3


def test_other_sizes_are_the_same_patterns_with_fewer_or_more_pairs():
    counts = {name: pattern.count(SIDE**2) for name, pattern in PATTERNS.items()}
    for kind, small, large in (("window", 2, 24), ("fixed", 1, 4)):
        assert counts[f"{kind} {small}"] < counts[kind] < counts[f"{kind} {large}"]
    assert not set(SIZES) & set(VARIANTS)
    assert max(counts.values()) == counts["dense"]


def test_a_training_tells_its_losses():
    model, history = train("window 2", 0, steps=3)
    assert [row["step"] for row in history.rows] == [1, 2, 3]
    assert not model.training


def test_the_stored_rows_say_how_many_pairs_there_are() -> None:
    rows = json.loads(asset("10_sparse_transformer.json").read_text())["experiments"]["pixels"]
    for row in rows[::2]:
        pairs = PATTERNS[row["figure"].split(", ")[0]].count(SIDE**2)
        assert row["note"].startswith(f"{pairs:,} pairs per layer and head, ")
