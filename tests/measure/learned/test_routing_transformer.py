"""The rows of the Routing Transformer."""

import sys

import pytest

from attnlab.measure.benchmarks.learned import routing_transformer


def test_quick_rows() -> None:
    found = {row.figure: row for row in routing_transformer.rows(quick=True, threads=1)}
    span = "n = 256 … 1,024, clusters = √n"
    assert found[f"exponent in n, FLOPs, {span}"].measured == pytest.approx(1.5, abs=0.01)
    assert found[f"exponent in n, FLOPs, {span}, from below"].met
    assert found["largest tensor / its claim, n = 256"].met
    assert len(found) == 8
    name = "package routing-transformer's time / ours, both passes, n = 256"
    for which in ("layer", "form"):
        assert "16 seen in both; 16 computed in both" in found[f"{name}, {which}"].note


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "routing_transformer.routing_transformer", None)
    (row,) = routing_transformer._beside_the_package(64, 1, 1)
    assert row.measured is None
    assert row.note == "routing-transformer cannot be imported"
