"""Every row comes, and the peer computes the same."""

import math

import pytest
import torch

from attnlab.catalog import card
from attnlab.measure.benchmarks import recurrences


def test_quick_rows() -> None:
    found = {row.figure: row for row in recurrences.rows(quick=True, threads=1)}
    assert list(found) == recurrences.figures(quick=True)
    for name in ("deltanet", "gated_deltanet"):
        for which in recurrences.PASSES:
            assert found[f"{name}: token by token / chunked, {which}, n = 16"].at_least == 10
        state = found[f"{name}: bytes of the state, after 16 tokens / after 4"]
        assert state.met
        assert state.measured == 1
    assert found["gated_deltanet: Hugging Face / chunked, forward, n = 16"].at_least == 3
    assert all(math.isfinite(row.measured) for row in found.values() if row.measured is not None)


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrences, "find_spec", lambda name: None)
    figure = "gated_deltanet: Hugging Face / chunked, forward, n = 4"
    row = recurrences.row(figure, quick=True, threads=1)
    assert row.measured is None
    assert "pip install" in row.note


@pytest.mark.parametrize("name", recurrences.PEERS)
def test_the_peer_computes_the_same(name: str) -> None:
    pytest.importorskip("transformers")
    given = [x.detach() for x in recurrences.given(name, 67)]
    mine = card(name).forms["naive"](*given)
    torch.testing.assert_close(recurrences.PEERS[name](*given), mine, rtol=1e-4, atol=1e-4)
