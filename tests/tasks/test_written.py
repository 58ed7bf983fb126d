"""Written: digits in another order of their pixels."""

import torch

from attnlab.experiments.grids import STACKS
from attnlab.tasks.written import Written


def test_pixels_are_written_in_their_order():
    stack = STACKS["2-D blocks"]
    assert stack.order[:6] == (0, 1, 8, 9, 2, 3)
    plain = Written().batch("train", 3, seed=2)
    ordered = Written(stack.order).batch("train", 3, seed=2)
    assert torch.equal(ordered.targets[:, 2], plain.targets[:, 8])
    assert torch.equal(ordered.inputs[:, 1:], ordered.targets[:, :-1])
    assert torch.equal(ordered.inputs[:, 0], plain.inputs[:, 0])
