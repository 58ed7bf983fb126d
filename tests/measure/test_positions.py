"""The topic positions: what it says beside the times of layers and peers."""

import pytest

from attnlab.measure.benchmarks import positions as topic


def test_the_relative_shift_holds_one_number_more_for_each_query() -> None:
    row = topic._shifted(128)
    assert row.measured == 1
    assert row.met
    assert row.note == f"largest tensor: {8 * 128 * 129:,} numbers, scores: {8 * 128 * 128:,}"


def test_complex_layers_are_compared_with_two_real_ones() -> None:
    rows = list(topic._complex(8, 2, 1, long=False))
    assert [row.figure.split(",")[1] for row in rows] == [" naive", " fused"]
    assert all(row.measured is not None and row.measured > 0 for row in rows)
    assert all(row.met is None for row in rows)
    assert [row.at_most for row in topic._complex(8, 1, 1, long=True)] == [4.5, 4.5]


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "find_spec", lambda name: None)
    monkeypatch.setattr(topic, "_compared", lambda *given: iter(()))
    rows = list(topic.rows(quick=True, threads=1))
    assert [row.figure for row in rows[:2]] == ["x_transformers", "transformers"]
    assert all(row.measured is None for row in rows[:2])
