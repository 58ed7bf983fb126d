"""The rows of `learned/memorizing_transformer`, small."""

import pytest
import torch

from attnlab.measure.benchmarks.learned import memorizing_transformer


@pytest.fixture(scope="module")
def quick():
    before = torch.get_num_threads()
    found = list(memorizing_transformer.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_a_quick_run_has_every_figure(quick):
    pytest.importorskip("faiss", reason="for the approximate search")
    for where in ("anywhere", "in clusters"):
        assert sum(figure.startswith(f"20,000 keys {where}, 32 queries") for figure in quick) == 5
    assert sum(figure.startswith("one token with a memory") for figure in quick) == 2
    assert sum(figure.startswith("peak memory / claim") for figure in quick) == 1
    assert "256 tokens with a memory of 1,024: approximate / exact search" in quick
    assert all(row.measured > 0 for row in quick.values())
    assert sum(", built in " in row.note for row in quick.values()) == 4


def test_recall_is_that_of_the_true_neighbours(quick):
    """1 of each exact search; by lists more in clusters than anywhere."""
    pytest.importorskip("faiss", reason="for the approximate search")
    shares = {
        figure: float(row.note.split("recall ")[1].split(";")[0].split(",")[0])
        for figure, row in quick.items()
        if "recall " in row.note
    }
    assert all(share == 1 for figure, share in shares.items() if ": exact" in figure)
    anywhere, clusters = (
        [
            share
            for figure, share in shares.items()
            if f"keys {where}" in figure and "codes" in figure
        ]
        for where in ("anywhere", "in clusters")
    )
    assert 0.9 < anywhere[0] < 1
    assert anywhere[1] < clusters[1]
    (of_layer,) = (share for figure, share in shares.items() if "tokens with a memory" in figure)
    assert 0.9 < of_layer <= 1


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(memorizing_transformer, "find_spec", lambda name: None)
    first = next(memorizing_transformer.rows(quick=True, threads=1))
    assert first.measured is None
    assert "pip install" in first.note
