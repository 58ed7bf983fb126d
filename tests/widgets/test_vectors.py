"""Queries, keys and values as bytes: the weights that follow from them are those recorded."""

import gc
from typing import Any

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.attention_view import vectors as vectors
from torch import Tensor, nn

import attnlab
from attnlab.lens.sources import layers

LAYERS, HEADS, N, DIM = 2, 3, 7, 24


def opened(header: dict[str, Any], data: bytes, n: int, m: int) -> list[np.ndarray]:
    """Queries, keys, values and bias as the front end reads them."""
    d, e, found, at = header["d"], header["e"], [], header.get("at", 0)
    shapes = [(n, d), (m, d), (m, e), (n, m)]
    for kind, shape in zip(header["kinds"], shapes, strict=False):
        part = np.frombuffer(data, f"<{kind}", int(np.prod(shape)), at).reshape(shape)
        found.append(part.astype(np.float64))
        at += part.nbytes + -part.nbytes % 4
    return found


def followed(header: dict[str, Any], data: bytes, mask: np.ndarray | None, n: int, m: int) -> Any:
    """Weights from scores, step by step."""
    queries, keys, _, *bias = opened(header, data, n, m)
    scores = queries @ keys.T * header["scale"] + sum(bias)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def recorded(**options: object) -> Any:
    model = attnlab.TinyTransformer(13, dim=DIM, layers=LAYERS, heads=HEADS, **options)
    with attnlab.watch(model) as seen, torch.no_grad():
        model(torch.arange(N)[None])
    return seen


@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_the_weights_follow_from_the_vectors(positions: str) -> None:
    """A rotation is in the queries and keys, a bias comes with them."""
    seen = recorded(positions=positions)
    for layer, head in np.ndindex(LAYERS, HEADS):
        block = vectors.of_head(seen[layer], 0, head)
        assert block.header["bias"] is (positions == "alibi")
        assert block.header["doubt"] is None
        mask = seen[layer].mask.expand(1, HEADS, N, N)[0, head].numpy()
        found = followed(block.header, block.data, mask, N, N)
        np.testing.assert_allclose(found, seen[layer].weights[0, head], atol=2e-3)
        values = opened(block.header, block.data, N, N)[2]
        np.testing.assert_allclose(values, seen[layer].values[0, head], atol=2e-3)


class Capped(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (5 * (q @ k.mT / 5).tanh()).softmax(-1) @ v


def test_what_else_happened_to_the_scores_is_said() -> None:
    q, k, v = (torch.randn(1, 2, size, 4) for size in (5, 7, 7))
    with attnlab.watch(model := Capped()) as seen:
        model(q, k, v)
    header = vectors.of_head(seen[0], 0, 1).header
    assert header["scale"] is None
    assert "tanh" in header["doubt"]


def test_shared_keys_and_wide_numbers() -> None:
    q, k, v = torch.randn(2, 4, 5, 3), torch.randn(2, 2, 5, 3), 1e6 * torch.randn(2, 2, 5, 6)
    with attnlab.watch(model := Shared()) as seen:
        model(q, k, v)
    block = vectors.of_head(seen[0], 1, 3)
    assert block.header["kinds"] == ["f2", "f2", "f4"]
    found = opened(block.header, block.data, 5, 5)
    np.testing.assert_allclose(found[1], k[1, 1], atol=2e-3)
    np.testing.assert_allclose(found[2], v[1, 1])


class Shared(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def asked(view: AttentionView, *place: int) -> tuple[dict[str, Any], list[bytes]]:
    sent: list[Any] = []
    view.send = lambda content, buffers=(): sent.append((content, buffers))  # type: ignore[method-assign]
    view._asked(view, {"vectors": list(place)}, [])
    return sent[0]


def test_the_kernel_answers_for_one_head() -> None:
    seen = recorded()
    content, buffers = asked(AttentionView(seen), 0, 0, 1, 2)
    assert content["vectors"] == [0, 0, 1, 2]
    found = opened(content["header"], buffers[0], N, N)
    np.testing.assert_allclose(found[0], seen[1].queries[0, 2], atol=2e-3)


def test_weights_alone_and_forgotten_records_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    content, _ = asked(AttentionView(torch.full((1, 2, 5, 5), 0.2)), 0, 0, 0, 1)
    assert "weights only" in content["said"]
    monkeypatch.setattr(layers, "_HELD", 0)
    view = AttentionView(recorded())
    gc.collect()
    assert "Keep it in a variable" in asked(view, 0, 0, 0, 1)[0]["said"]


def test_a_saved_page_holds_the_vectors_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = recorded()
    state = AttentionView(seen)._saved_state()
    header = state["_vector_blocks"][0][0][1][2]
    found = opened(header, state["_vectors"], N, N)
    np.testing.assert_allclose(found[1], seen[1].keys[0, 2], atol=2e-3)
    monkeypatch.setattr(vectors, "PAGE", 100)
    assert "the kernel has them" in AttentionView(seen)._saved_state()["_vector_blocks"]
