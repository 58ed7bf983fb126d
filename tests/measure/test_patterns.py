"""The topic patterns: its rows exist, and what it compares sees the same pairs."""

import pytest
import torch

from attnlab.core.patterns import local
from attnlab.core.sparse.blocked import blocked
from attnlab.measure.benchmarks import patterns as topic
from attnlab.measure.peers import longformer


def test_the_topic_measures_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(topic.patterns(512)) == 5
    monkeypatch.setattr(topic, "patterns", lambda n: {"window 128": local(64)})
    monkeypatch.setattr(topic, "resident", lambda call, **options: 1)
    found = list(topic._extra_memory(512)) + list(topic._layouts(512, 1))
    assert len(found) == 3 * len(topic.patterns(512))
    assert all(row.measured is not None and row.measured > 0 for row in found)
    for row in topic._growth((256, 512), quick=True, threads=1):
        assert row.measured is not None
        assert row.met is None  # small sizes are a look, not a figure
    monkeypatch.undo()
    assert next(row.figure for row in topic._sparse_transformer(256, 1, 1)).startswith(
        "causal SDPA"
    )


def test_a_missing_peer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "find_spec", lambda name: None)
    rows = [*topic._window(256, 1, 1), *topic._bigbird(256, 1, 1)]
    assert [row.measured for row in rows] == [None] * 3
    assert all("is not installed" in row.note for row in rows)


def test_local_attention_has_rows_of_its_form_and_of_its_layer() -> None:
    pytest.importorskip("local_attention")
    form, layer = topic._beside_local_attention(128, 512, 1, 1)
    assert form.figure == "local-attention's time / blocked's, window 128, n = 512"
    assert layer.figure == "local-attention, window 128, layer's time / ours, n = 512"
    for row, ours in ((form, "blocked"), (layer, "our layer")):
        assert row.measured is not None
        assert "package: " in row.note
        assert f"; {ours}: " in row.note
        assert "keys of a query: 121 seen in both; 192 computed by package" in row.note


def test_hugging_face_has_rows_beside_layer_and_form() -> None:
    pytest.importorskip("transformers")
    rows = list(topic._bigbird(1024, 1, 1))
    assert [row.figure for row in rows] == [
        f"Hugging Face BigBird layer's time / {whose}, n = 1,024" for whose in ("ours", "blocked's")
    ]
    assert all("576 seen by package" in row.note for row in rows)  # 512, and all for 2 blocks


def test_local_attention_sees_the_same_pairs() -> None:
    package = pytest.importorskip("local_attention")
    peer = package.LocalAttention(64, look_backward=1, look_forward=1, exact_windowsize=True)
    q, k, v = torch.randn(3, 1, 2, 256, 16)
    torch.testing.assert_close(peer(q, k, v), blocked(q, k, v, local(64)), rtol=1e-4, atol=1e-5)


def test_projections_of_global_tokens_are_not_trained() -> None:
    pytest.importorskip("transformers")
    layer = longformer(512, 64, 2, window=128)[0]
    assert len(topic._used(layer)) == len(list(layer.parameters())) / 2
