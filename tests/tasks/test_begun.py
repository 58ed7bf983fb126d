"""Begun: every sequence has one token more."""

import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.begun import Begun
from attnlab.tasks.copying import Copying


def test_a_token_of_its_own_begins_every_sequence() -> None:
    task = Copying(5, symbols=7)
    inner, begun = task.batch("train", 3, 1), Begun(task).batch("train", 3, 1)
    assert Begun(task).vocab == 9
    assert begun.inputs[:, 0].tolist() == [8, 8, 8]
    assert begun.targets[:, 0].tolist() == [UNSCORED] * 3
    assert torch.equal(begun.inputs[:, 1:], inner.inputs)
    assert torch.equal(begun.targets[:, 1:], inner.targets)
    assert Begun(task).length == inner.inputs.shape[1]
