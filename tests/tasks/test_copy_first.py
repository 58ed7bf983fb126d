"""Copying the first input: what is drawn, and what is asked for."""

import pytest
import torch

from attnlab.tasks.copy_first import CopyFirst


def test_all_numbers_are_drawn_alike_and_the_first_is_asked_for() -> None:
    task = CopyFirst(length=47)
    inputs, first = task.values("train", 4001, seed=3)
    assert inputs.shape == (4001, 47, 1)
    assert torch.equal(first, inputs[:, 0, 0])
    torch.testing.assert_close(inputs.mean(0), torch.zeros(47, 1), rtol=0, atol=0.08)
    torch.testing.assert_close(inputs.square().mean(0), torch.ones(47, 1), rtol=0, atol=0.11)
    assert first.square().mean().item() == pytest.approx(1, abs=0.1)


def test_two_classes_are_the_sign() -> None:
    batch = CopyFirst(length=5).batch("validation", 501, seed=1)
    assert torch.equal(batch.targets, (batch.inputs[:, 0, 0] > 0).long())


def test_classes_are_equally_likely_and_in_the_order_of_the_numbers() -> None:
    batch = CopyFirst(length=1, levels=7).batch("train", 7001, seed=1)
    counts = batch.targets.bincount()
    assert len(counts) == 7
    assert ((counts > 850) & (counts < 1150)).all()
    order = batch.inputs[:, 0, 0].argsort()
    assert (batch.targets[order].diff() >= 0).all()
