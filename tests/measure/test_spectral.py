"""The topic of mixing without attention: every row comes."""

import math
import sys

import pytest

from attnlab.measure.benchmarks import spectral
from attnlab.measure.benchmarks.spectral import fnet


def test_quick_rows() -> None:
    found = {row.figure: row for row in spectral.rows(quick=True, threads=1)}
    for name in ("forward", "forward and backward"):
        assert found[f"Hugging Face / FNet, n = 256, {name}"].at_least == 1
        assert f"full attention (SDPA) / FNet, n = 256, {name}" in found
    assert found["Hyena: a of n^a log n, both passes, n = 128 … 512"].at_most == 1.15
    for title in ("Hyena", "Dynamic convolution", "Lightweight convolution"):
        assert "faster" in found[f"causal SDPA layer / {title}, both passes, n = 512"].note
        assert found[f"{title}: exponent of largest tensor, n = 128 … 512"].met
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fnet, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    (row,) = fnet._beside_peer(64, 1, 1)
    assert row.measured is None
    assert "pip install" in row.note
