"""The experiment `grids`, small: who is known, one price, two tasks; nothing else is disturbed."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from attnlab.experiments import grids
from attnlab.experiments.grids import (
    ARROWS,
    COLOURS,
    FIELD,
    PATIENT,
    REACHES,
    SEEDS,
    SIDE,
    STACKS,
    Arrows,
    Written,
    bits_per_pixel,
    ceiling,
    point,
    write,
    writer,
)

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/12_grids.json"
MOST = 20_000


@pytest.mark.parametrize("name", STACKS)
def test_what_is_said_to_be_known_is_what_moves_the_output(name):
    """Influence on the mixing layers alone: the residual stream adds what a place holds itself."""
    stack, model = STACKS[name], writer(name, 0).double().eval()
    x = torch.randn(1, SIDE**2, 32, dtype=torch.float64, requires_grad=True)
    out = x
    for block in model.decoder.blocks:
        out = out + block.attention(out)
    for pixel in ((0, 0), (3, 5), (5, 0), (4, 6)):
        place = stack.order.index(pixel[0] * SIDE + pixel[1])
        (moved,) = torch.autograd.grad(out[0, place].sum(), x, retain_graph=True)
        known = (moved[0].abs().sum(-1) > 0)[torch.tensor(stack.order).argsort()].view(SIDE, SIDE)
        assert torch.equal(known, stack.known(pixel, max(1, len(stack.layers)))[-1])


@pytest.mark.parametrize("name", STACKS)
def test_nothing_unmade_is_known(name):
    stack = STACKS[name]
    assert sorted(stack.order) == list(range(SIDE**2))
    for pixel in ((0, 0), (4, 3), (7, 7)):
        assert not (stack.known(pixel, 3)[-1] & stack.future(pixel)).any()
        assert stack.known(pixel, 1)[0][pixel]


def test_prices_are_those_that_are_said():
    pairs = {name: stack.pairs for name, stack in STACKS.items()}
    message = [4160, 620, 560, 548, 848, 512, 576, 1088]
    assert list(pairs.values()) == message
    assert all(re.search(rf"\({number}[ )]", grids.__doc__) for number in message)


def test_pixels_are_written_in_their_order():
    stack = STACKS["2-D blocks"]
    assert stack.order[:6] == (0, 1, 8, 9, 2, 3)
    plain = Written().batch("train", 3, seed=2)
    ordered = Written(stack.order).batch("train", 3, seed=2)
    assert torch.equal(ordered.targets[:, 2], plain.targets[:, 8])
    assert torch.equal(ordered.inputs[:, 1:], ordered.targets[:, :-1])
    assert torch.equal(ordered.inputs[:, 0], plain.inputs[:, 0])


def test_one_training_is_a_function_of_its_seed_and_disturbs_nothing():
    first = write("axial", 3, steps=1)[0]
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again, other = (write("axial", seed, steps=1)[0] for seed in (3, 5))
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), before)


def test_bits_are_the_mean_over_every_unseen_image():
    model, task = writer("2-D blocks", 0).eval(), Written(STACKS["2-D blocks"].order)
    unseen = task.batch("validation", 355, seed=7)
    assert len(torch.unique(unseen.targets, dim=0)) == 355
    with torch.no_grad():
        nats = F.cross_entropy(model(unseen.inputs).mT, unseen.targets).item()
    assert bits_per_pixel(model, task) == pytest.approx(nats / math.log(2), rel=1e-5)


def test_arrows_point_where_they_say():
    across, near = Arrows("across"), Arrows("neighbour")
    assert across.goals()[1 * FIELD + 2] == 4 * FIELD + 3
    assert near.goals()[1 * FIELD + 2] == 0 * FIELD + 1
    assert (near.goals() < 0).sum() == 2 * FIELD - 1
    batch = near.batch("validation", 5, seed=3)
    assert batch.targets[2, 8] == batch.inputs[2, 1]
    assert (batch.targets[:, :FIELD] == -100).all()
    assert not torch.equal(batch.inputs, near.batch("train", 5, seed=3).inputs)
    assert batch.inputs.max() < COLOURS


def test_the_ceiling_is_what_reach_allows():
    assert ceiling("axial × 1", "neighbour") == pytest.approx(25)
    assert ceiling("axial × 1", "across") == pytest.approx(25)
    assert ceiling("axial × 2", "across") == 100
    assert ceiling("2-D window × 1", "neighbour") == 100
    middle = 100 * (4 + 32 / COLOURS) / 36  # the four cells whose image touches them
    assert ceiling("2-D window × 2", "across") == pytest.approx(middle)


def test_arrows_are_scored_on_cells_that_ask():
    share, _ = point("axial × 1", "neighbour", 0, steps=1)
    assert 22 < share < 30


def test_rows_name_every_training(monkeypatch):
    asked = []
    monkeypatch.setattr(grids, "write", lambda *args, **more: asked.append((args, more)) or (2.0,))
    monkeypatch.setattr(grids, "point", lambda *args, **more: asked.append((args, more)) or (25.0,))
    threads = torch.get_num_threads()
    rows = list(grids.rows(quick=True, threads=1))
    assert torch.get_num_threads() == threads
    assert (rows[0].figure, rows[0].unit) == ("full, seed 0", "bits per pixel")
    assert rows[0].note == "4,160 pairs per head, over all layers"
    assert (rows[-1].figure, rows[-1].unit) == ("across, axial × 2, seed 0", "%")
    assert rows[-1].note == "the pattern allows 100.0"
    assert all(more == {"steps": 2} for _, more in asked)
    assert len(list(grids.rows(quick=False, threads=1))) == 3 * len(rows)
    assert asked[-31] == (("axial + shift", 2), {"steps": 900})
    assert asked[-1] == (("axial × 2", "across", 2), {"steps": grids.ARROW_STEPS})


def test_what_is_stored_for_the_lesson_is_a_whole_run():
    assert STORED.stat().st_size < MOST
    run = json.loads(STORED.read_text())
    assert run["quick"] is False
    figures = [row["figure"] for row in run["experiments"]["grids"]]
    digits = [f"{name}, seed {seed}" for name in STACKS for seed in SEEDS]
    arrows = [f"{k}, {name}, seed {seed}" for k in ARROWS for name in REACHES for seed in SEEDS]
    longer = [f"{name}, 900 steps, seed {seed}" for name in PATIENT for seed in SEEDS]
    assert figures == digits + longer + arrows
