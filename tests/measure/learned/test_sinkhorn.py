"""The rows of Sparse Sinkhorn attention."""

import sys

import pytest

from attnlab.measure.topics.learned import sinkhorn


def test_quick_rows() -> None:
    found = {row.figure: row for row in sinkhorn.rows(quick=True, threads=1)}
    assert found["largest tensor / its claim, n = 512"].met
    assert len(found) == 3


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sinkhorn_transformer.sinkhorn_transformer", None)
    (row,) = sinkhorn._beside_the_package(64, 1, None, 1)
    assert row.measured is None
    assert row.note == "sinkhorn-transformer cannot be imported"
