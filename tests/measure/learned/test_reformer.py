"""The topic's module on LSH attention, small."""

from importlib.util import find_spec

import pytest
import torch

from attnlab.measure.benchmarks.learned import reformer


@pytest.fixture(scope="module")
def quick():
    before = torch.get_num_threads()
    found = list(reformer.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_a_quick_run_has_every_figure(quick):
    for peer, rows in zip(reformer.PEERS, (4, 3), strict=True):  # only one has its form alone
        found = [row for row in quick.values() if row.figure.startswith(peer)]
        assert len(found) == (rows if find_spec(peer) else 1)
        times = [row for row in found if row.measured is not None and "memory" not in row.figure]
        assert all("keys of a query: 512 computed in both" in row.note for row in times)
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
