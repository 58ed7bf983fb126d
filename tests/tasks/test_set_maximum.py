"""The largest of a set: sizes, padding, and what is asked for."""

import pytest
import torch

from attnlab.tasks.set_maximum import SetMaximum


def test_the_largest_real_number_is_asked_for() -> None:
    task = SetMaximum(fewest=2, most=7, levels=5)
    batch, largest = task.values("train", 701, seed=3)
    assert batch.inputs.shape == (701, 7, 1)
    for row in range(701):
        numbers = batch.inputs[row, batch.padding[row], 0].tolist()
        assert 2 <= len(numbers) <= 7
        assert largest[row] == max(numbers)
        assert batch.targets[row] == int(5 * max(numbers))
    assert (batch.inputs[~batch.padding] == 0).all()
    sizes = batch.padding.sum(1).bincount()[2:]
    assert ((sizes > 80) & (sizes < 160)).all()


def test_numbers_are_uniform_and_members_in_no_order() -> None:
    batch, _ = SetMaximum(fewest=6, most=6).values("validation", 5003, seed=1)
    assert batch.padding is None
    torch.testing.assert_close(batch.inputs.mean(0), torch.full((6, 1), 0.5), rtol=0, atol=0.02)
    torch.testing.assert_close(batch.inputs.var(0), torch.full((6, 1), 1 / 12), rtol=0, atol=0.005)


def test_fewer_than_none_is_refused() -> None:
    with pytest.raises(ValueError, match="most=3 should be at least fewest=5"):
        SetMaximum(fewest=5, most=3)
