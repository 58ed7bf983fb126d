"""Every row comes, a missing peer is said, and Hugging Face's block computes the same."""

import math

import pytest
import torch

from attnlab.measure.benchmarks.architecture import experts


def test_quick_rows() -> None:
    found = list(experts.rows(quick=True, threads=1))
    assert len({row.figure for row in found}) == len(found)
    assert all(row.at_least is not None for row in found)
    assert all(math.isfinite(row.measured) for row in found if row.measured is not None)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "find_spec", lambda name: None)
    missing = [row for row in experts.rows(quick=True, threads=1) if row.measured is None]
    assert len(missing) == 2
    assert all("pip install" in row.note for row in missing)


def test_the_peer_computes_the_same() -> None:
    pytest.importorskip("transformers")
    x, mine = torch.randn(1, 40, experts.DIM), experts.ours("switch")
    torch.testing.assert_close(experts.hugging_face_switch(mine)(x), mine(x), rtol=1e-4, atol=1e-5)
