"""The topic of kernelized attention: every row comes, and a crossover is where it should be."""

import math
import sys

import pytest

from attnlab.measure.benchmarks import kernelized
from attnlab.measure.benchmarks.kernelized import crossover


def test_crossover_lies_on_the_line_between_logarithms() -> None:
    """t = n² overtaken by t = 1000 n: the ratio 1000 / n passes through one at 1000."""
    lengths = (128, 512, 2048, 8192)
    assert crossover(lengths, [1000 / n for n in lengths]) == pytest.approx(1000)
    assert crossover(lengths, [2.0, 0.9, 2.0, 0.5]) == pytest.approx(4096)  # the last time
    assert crossover(lengths, [0.9, 0.8, 0.7, 0.6]) is None
    assert crossover(lengths, [2.0, 1.5, 1.2, 1.1]) is None


def test_quick_rows() -> None:
    found = {row.figure: row for row in kernelized.rows(quick=True, threads=1)}
    for one in kernelized.CONTENDERS:
        for causal in ("", ", causal"):
            assert f"{one.name}{causal}: |exponent of time − 1|" in found
            assert found[f"{one.name}{causal}: exponent of largest tensor"].met
            assert f"{one.name}{causal}: overtakes SDPA at" in found
    assert found["linear, causal / not, form, n = 128"].at_most == 1.5
    assert found["performer-pytorch / performer, n = 128"].at_least == 2
    assert found["performer-pytorch / performer, causal, n = 128"].at_least == 5
    assert found["linear, causal: token by token / by chunks, n = 128"].at_least == 5
    assert all(row.measured is None or math.isfinite(row.measured) for row in found.values())


def test_peers_have_rows_of_their_form_and_of_their_layer() -> None:
    pytest.importorskip("performer_pytorch")
    rows = list(kernelized._performer_beside_its_peer(128, True, 1))
    assert [row.figure for row in rows] == [
        "performer-pytorch / performer, n = 128",
        "the package's layer / ours, performer, n = 128",
        "performer-pytorch / performer, causal, n = 32",
        "performer-pytorch / performer, causal, n = 128",
    ]
    for row, seen in zip(rows, ("keys", "keys", "keys up to its own"), strict=False):
        assert f"a query sees all {seen} in both" in row.note


def test_linear_attention_stands_beside_the_package_of_its_name() -> None:
    pytest.importorskip("linear_attention_transformer")
    rows = list(kernelized._linear_beside_its_peer(128, True, 1))
    assert [row.figure for row in rows] == [
        "linear-attention-transformer / linear, n = 128",
        "linear-attention-transformer / linear, causal, n = 32",
        "the package's layer / ours, linear, n = 128",
    ]
    assert all(row.measured is not None and "package: " in row.note for row in rows)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "linear_attention_transformer", None)
    (row,) = kernelized._linear_beside_its_peer(64, True, 1)
    assert row.measured is None
    assert row.note == "linear-attention-transformer cannot be imported"
    monkeypatch.setitem(sys.modules, "performer_pytorch", None)
    rows = list(kernelized._performer_beside_its_peer(64, True, 1))
    assert len(rows) == 3
    assert all(row.measured is None for row in rows)
    assert all(row.note == "performer-pytorch cannot be imported" for row in rows)
