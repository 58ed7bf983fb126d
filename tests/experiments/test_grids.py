"""The experiment `grids`, small: who is known, one price, two tasks; nothing else is disturbed."""

import math
import re

import pytest
import torch
from torch.nn import functional as F

from attnlab.experiments import grids
from attnlab.experiments.grids import (
    COLOURS,
    SIDE,
    STACKS,
    Written,
    bits_per_pixel,
    ceiling,
    point,
    write,
    writer,
)

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
