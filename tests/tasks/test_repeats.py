"""Repeats: half of the windows of a text repeat something."""

import pytest
import torch

from attnlab.tasks.repeats import Repeats

LENGTH = 64


def period(row: torch.Tensor) -> int:
    """After how many places a row repeats; its length if it does not."""
    n = len(row)
    return next((p for p in range(1, n) if torch.equal(row[p:], row[:-p])), n)


@pytest.mark.parametrize("repeats", ["none", "passages", "random tokens"])
def test_half_of_the_windows_repeat(repeats: str) -> None:
    plain, batch = Repeats().batch("train", 14, 5), Repeats(repeats).batch("train", 14, 5)
    count = 0 if repeats == "none" else 7
    assert torch.equal(batch.inputs[count:], plain.inputs[count:])
    assert torch.equal(batch.targets[count:], plain.targets[count:])
    for row, text, target in zip(batch.inputs[:count], plain.inputs, batch.targets, strict=False):
        run = period(row)
        assert LENGTH // 4 <= run <= LENGTH // 2
        asked = target >= 0
        assert torch.equal(target[:-1][asked[:-1]], row[1:][asked[:-1]])
        assert int(target[-1]) == int(row[LENGTH % run])
        if repeats == "passages":
            assert torch.equal(row[:run], text[:run])
            assert asked.all()
        else:
            assert len(set(row[:run].tolist())) == run
            assert asked.tolist() == [place >= run for place in range(LENGTH)]


def test_runs_of_passages_differ_in_length() -> None:
    runs = {period(row) for row in Repeats("passages").batch("train", 60, 0).inputs[:30]}
    assert len(runs) > 8


def test_half_of_the_rows_repeat_their_beginning() -> None:
    batch = Repeats("beginnings", 256).batch("train", 10, seed=0)
    rows = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)
    assert rows.shape == (10, 257)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])

    def repeats(row: torch.Tensor) -> list[int]:
        return [run for run in range(16, 129) if torch.equal(row[run:], row[:-run])]

    assert [bool(repeats(row)) for row in rows] == 5 * [True] + 5 * [False]
    runs = [
        repeats(row)[0]
        for seed in range(20)
        for row in Repeats("beginnings", 256).batch("train", 4, seed).inputs[:2]
    ]
    assert min(runs) < 32
    assert max(runs) > 64
