"""The rows of Sparse Sinkhorn attention."""

import importlib.util
import sys

import pytest

from attnlab.measure.benchmarks.learned import sinkhorn


def test_quick_rows() -> None:
    found = {row.figure: row for row in sinkhorn.rows(quick=True, threads=1)}
    assert found["largest tensor / its claim, n = 512"].met
    assert len(found) == 4
    if importlib.util.find_spec("sinkhorn_transformer") is None:
        pytest.skip("the package sinkhorn-transformer is not installed")
    name = "package sinkhorn-transformer's time / ours, both passes, n = 512"
    for which in ("layer", "form"):
        note = found[f"{name}, {which}"].note
        assert note.endswith("keys of a query: 128 seen in both; 128 computed in both")


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sinkhorn_transformer.sinkhorn_transformer", None)
    (row,) = sinkhorn._beside_the_package(64, 1, None, 1)
    assert row.measured is None
    assert row.note == "sinkhorn-transformer cannot be imported"
