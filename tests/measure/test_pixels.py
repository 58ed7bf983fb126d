"""The topic `pixels`, small: every pattern, one budget, nothing of the caller's disturbed."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from attnlab.measure.topics import pixels
from attnlab.measure.topics.pixels import SEEDS, SIDE, VARIANTS, bits_per_pixel, build, grid
from attnlab.tasks import task

STORED = Path(__file__).parents[2] / "notebooks/assets/10_sparse_transformer.json"
MOST = 20_000


def test_one_cell_is_a_function_of_its_seed_and_disturbs_nothing():
    before = torch.get_rng_state()
    first, again, other = (next(grid(("strided",), (seed,), steps=1)) for seed in (3, 3, 5))
    assert first == again
    assert first.bits != other.bits
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_name_pattern_and_seed(monkeypatch):
    asked = []

    def one(variants=("fixed",), seeds=(0,), *, steps=600):
        asked.append((seeds, steps))
        yield from grid(variants, (0,), steps=1)

    monkeypatch.setattr(pixels, "grid", one)
    threads = torch.get_num_threads()
    (row,) = pixels.rows(quick=True, threads=1)
    assert (row.figure, row.unit) == ("fixed, seed 0", "bits per pixel")
    assert row.note.startswith("736 pairs per layer and head, ")
    assert torch.get_num_threads() == threads
    list(pixels.rows(quick=False, threads=1))
    assert asked == [((0,), 2), ((0,), 600)]


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


@pytest.mark.parametrize("name", VARIANTS)
def test_models_differ_in_their_pattern_alone_and_none_sees_the_future(name):
    model, dense = build(VARIANTS[name], 0).eval(), build(VARIANTS["dense"], 0)
    for ours, theirs in zip(model.parameters(), dense.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    inputs = task("digits", unit="pixels", kind="language_model").batch("train", 2, 0).inputs
    later = inputs.clone()
    later[:, 41:] = 3
    with torch.no_grad():
        assert torch.equal(model(inputs)[:, :41], model(later)[:, :41])
    seen = VARIANTS[name].dense(SIDE**2)
    assert seen.diagonal().all()
    assert not seen.triu(1).any()


def test_the_window_has_about_as_many_pairs_as_the_others():
    counts = [VARIANTS[name].count(SIDE**2) for name in ("strided", "fixed", "window", "aligned")]
    assert max(counts) < 1.05 * min(counts)


def test_what_is_stored_for_the_lesson_is_a_whole_run():
    assert STORED.stat().st_size < MOST
    run = json.loads(STORED.read_text())
    assert run["quick"] is False
    figures = [row["figure"] for row in run["topics"]["pixels"]]
    assert figures == [f"{name}, seed {seed}" for name in VARIANTS for seed in SEEDS]
