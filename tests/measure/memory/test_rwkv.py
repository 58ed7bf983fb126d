"""Every row comes, and a missing peer is said."""

import math

import pytest

from attnlab.measure.benchmarks.memory import rwkv


def test_quick_rows() -> None:
    found = {row.figure: row for row in rwkv.rows(quick=True, threads=1)}
    for name in ("forward", "forward and backward"):
        assert found[f"RWKV: token by token / chunked, n = 256, {name}"].at_least == 5
        assert found[f"RWKV: Hugging Face / chunked, n = 256, {name}"].at_least == 1
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rwkv, "find_spec", lambda name: None)
    _, peer = rwkv._beside_loops("forward", rwkv._infer, 64, 1, 1)
    assert peer.measured is None
    assert "pip install" in peer.note
