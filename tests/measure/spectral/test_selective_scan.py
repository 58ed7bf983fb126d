"""Every row comes, and a missing peer is said."""

import math

import pytest

from attnlab.measure.benchmarks.spectral import selective_scan


def test_quick_rows() -> None:
    found = {row.figure: row for row in selective_scan.rows(quick=True, threads=1)}
    size = "n = 256, 32 channels"
    for name in ("forward", "forward and backward"):
        loop = found[f"Selective scan: token by token / chunked, {size}, {name}"]
        assert loop.at_least == 10
        assert found[f"Selective scan: Hugging Face / chunked, {size}, {name}"].at_least == 3
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selective_scan, "find_spec", lambda name: None)
    _, peer = selective_scan._beside_loops("forward", selective_scan._infer, 64, 8, 1, 1, 10)
    assert peer.measured is None
    assert "pip install" in peer.note


def test_the_peer_computes_the_same() -> None:
    import torch

    pytest.importorskip("transformers")
    given = [x.detach() for x in selective_scan._sequence(11, 8)]
    mine = selective_scan.selective_scan.naive(*given)
    torch.testing.assert_close(selective_scan._peer(*given), mine, rtol=1e-5, atol=1e-5)
