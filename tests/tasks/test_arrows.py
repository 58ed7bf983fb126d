"""Arrows: cells that are asked for the colour of another cell."""

import torch

from attnlab.tasks.arrows import COLOURS, FIELD, Arrows


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
