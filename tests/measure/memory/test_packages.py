"""The rows of other packages' memories."""

import pytest

from attnlab.measure.benchmarks.memory import packages


def test_quick_rows() -> None:
    found = list(packages.rows(quick=True, threads=1))
    assert len(found) == 4
    for row in found:
        assert (row.measured or 0) > 0 or "pip install" in row.note
    assert {"x-transformers", "package", "perceiver-pytorch"} == {
        row.figure.split(" / ")[0] for row in found
    }


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    for row in packages.rows(quick=True, threads=1):
        assert row.measured is None
        assert "pip install 'attnlab[peers]'" in row.note
