"""The topic `lowrank`, small, and the published table it stands beside."""

import importlib.util
import sys

import pytest
import torch

from attnlab.measure.benchmarks import lowrank
from attnlab.measure.benchmarks.lowrank import PUBLISHED


def test_the_published_table_has_every_cell_of_the_paper():
    """Thirty-four cells: k from 128 to 2,048, always at most half of n."""
    assert list(PUBLISHED) == [2**i for i in range(9, 17)]
    for n, cells in PUBLISHED.items():
        assert list(cells) == [k for k in (128, 256, 512, 1024, 2048) if 2 * k <= n]
        for one in zip(*cells.values(), strict=True):  # a larger k saves less
            assert sorted(one, reverse=True) == list(one)
    for k in (128, 256, 512, 1024, 2048):  # a longer sequence saves more, or as much
        for one in zip(*(cells[k] for cells in PUBLISHED.values() if k in cells), strict=True):
            assert sorted(one) == list(one)
    assert PUBLISHED[16384][128] == (8.6, 56)


@pytest.fixture(scope="module")
def quick():
    before = torch.get_num_threads()
    found = list(lowrank.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_a_quick_run_has_every_figure(quick):
    assert sum(figure.startswith("memory saved") for figure in quick) == 34
    times = [row for row in quick.values() if row.figure.startswith("time saved, n")]
    assert [row.measured is not None for row in times] == [True] * 2 + [False] * 32
    assert sum(figure.startswith("crossover") for figure in quick) == 2
    assert sum(figure.startswith("SDPA's time") for figure in quick) == 4
    assert sum(figure.startswith("SDPA's peak memory") for figure in quick) == 2
    assert any(figure.startswith("time saved against naive") for figure in quick)


@pytest.mark.skipif(importlib.util.find_spec("linformer") is None, reason="linformer is no peer")
def test_the_package_stands_beside_both_orders_and_the_form(quick):
    rows = [row for name, row in quick.items() if name.startswith("package linformer's time")]
    whose = [row.figure.split("(")[1].split(")")[0] for row in rows]
    assert whose == ["early", "late", "form alone"]
    for row in rows:
        assert row.note.endswith("keys of a query: 512 seen in both; 128 computed in both")


def test_counted_figures_are_exact_and_pass_the_paper(quick):
    """What is counted does not depend on the machine, so the targets hold here, too."""
    row = quick["memory saved, n = 16,384, k = 128"]
    assert row.met
    assert "published: 56×" in row.note
    assert row.measured < 128  # the naive forms: weights of 16,384 × 128 are among what is held
    growth = [row for row in quick.values() if row.figure.startswith("exponent in n, largest")]
    assert len(growth) == 2
    assert all(row.met for row in growth)


def test_the_crossover_is_where_it_stays_faster():
    def first(*ahead):
        return lowrank._first(dict(zip((3, 5, 7), ahead, strict=True)), "forward").measured

    assert first(False, True, True) == 5
    assert first(True, False, True) == 7
    assert first(True, True, True) == 3
    assert first(True, True, False) is None


def test_a_missing_peer_is_said(monkeypatch):
    monkeypatch.setattr(lowrank, "find_spec", lambda name: None)
    (row,) = lowrank._beside_peer(512, 1, 1)
    assert row.measured is None
    assert "pip install" in row.note


@pytest.mark.skipif(importlib.util.find_spec("linformer") is None, reason="linformer is no peer")
def test_the_peer_computes_the_same():
    """With the same weights, the package and ours agree: the comparison is of like with like."""
    from linformer import LinformerSelfAttention

    peer = LinformerSelfAttention(256, 31, k=17, heads=4)
    ours = lowrank._linformer(31, 17)
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "output"}
    for theirs, own in names.items():
        getattr(ours.heads, own).weight.data = getattr(peer, theirs).weight.data
    ours.e.weight.data, ours.f.weight.data = peer.proj_k.data.mT, peer.proj_v.data.mT
    x = torch.randn(2, 29, 256)
    torch.testing.assert_close(ours(x) + peer.to_out.bias, peer(x), rtol=1e-4, atol=1e-5)
    assert "linformer" in sys.modules


def test_naive_is_not_started_without_the_memory(monkeypatch):
    monkeypatch.setattr(lowrank, "available", lambda: 1e6)
    (row,) = lowrank._longest_naive(512, 1, 1)
    assert row.measured is None
    assert "GB are free" in row.note
