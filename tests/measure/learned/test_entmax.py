"""The rows of α-entmax: times beside the package, and memory."""

import pytest

from attnlab.measure.benchmarks.learned import entmax


def test_quick_rows() -> None:
    found = {row.figure: row for row in entmax.rows(quick=True, threads=1)}
    for name in ("1.5-entmax", "sparsemax", "α = 1.3", "α as a tensor"):
        assert found[f"package entmax / ours, {name}, 4 × 64 × 64"].at_least == 1
        assert found[f"package entmax / ours, {name}, 1 × 256 × 64"].at_least == 1
        assert found[f"memory: ours / package entmax, {name}, 4 × 64 × 64"].at_most == 1
    if found["package entmax / ours, sparsemax, 4 × 64 × 64"].measured is None:
        pytest.skip("the package entmax is not installed")
    assert all(row.met for name, row in found.items() if name.startswith("memory"))


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entmax, "find_spec", lambda name: None)
    rows = list(entmax.rows(quick=True, threads=1))
    assert rows
    assert all(row.measured is None for row in rows)
    assert {row.note for row in rows} == {"entmax is not installed"}
