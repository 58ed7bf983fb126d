"""The topic's module on LSH attention, small."""

import pytest
import torch

from attnlab.measure.topics.learned import reformer


@pytest.fixture(scope="module")
def quick():
    before = torch.get_num_threads()
    found = list(reformer.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_a_quick_run_has_every_figure(quick):
    for peer in reformer.PEERS:
        assert sum(peer in figure for figure in quick) in (1, 2)  # times and memory, or neither
    assert sum(figure.startswith("exponent in n") for figure in quick) == 3
    assert sum(figure.startswith("peak memory of 12") for figure in quick) == 2


def test_counted_figures_keep_their_targets(quick):
    """Counts do not depend on the machine."""
    for row in quick.values():
        if row.at_most is not None:
            assert row.met, row
    ordinary, reversible = (
        quick[f"peak memory of 12 {kind} layers / of 3, n = 256"].measured
        for kind in ("ordinary", "reversible")
    )
    assert ordinary > 2 > reversible


def test_a_missing_peer_is_said(monkeypatch):
    monkeypatch.setattr(reformer, "find_spec", lambda name: None)
    rows = [row for name, make in reformer.PEERS.items()
            for row in reformer._beside(name, make, 512, 1, 1)]  # fmt: skip
    assert [row.measured for row in rows] == [None, None]
    assert all("pip install" in row.note for row in rows)
