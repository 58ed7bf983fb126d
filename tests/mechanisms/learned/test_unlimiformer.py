"""Unlimiformer: the rewritten score, its limit (U3), windows, and the search in trained models."""

import pytest
import torch
from torch import Tensor

from attnlab.core import search
from attnlab.core.probe import record
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.learned.unlimiformer import (
    FORMS,
    Unlimiformer,
    UnlimiformerOptions,
    encode,
    in_states,
    naive,
    windows,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.models.unlimited import Retrieving, retrieving

B, H, N, M, D, E, DIM = 2, 3, 5, 19, 4, 7, 11
by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def made() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shapes = ((B, H, N, D), (B, M, DIM), (H, D, DIM), (H, E, DIM))
    return tuple(torch.randn(s, dtype=torch.float64) for s in shapes)


def by_loops(q, states, key_map, value_map, bias, real, k: int) -> Tensor:
    """Head by head and query by query: keys, the k best, their softmax, their values."""
    out = torch.zeros(B, H, N, E, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            for i in range(N):
                scores = {j: float(q[b, h, i] @ (key_map[h] @ states[b, j])) for j in range(M)}
                best = sorted((j for j in scores if real[b, j]), key=lambda j: -scores[j])[:k]
                weights = torch.tensor([scores[j] for j in best]).double().mul(D**-0.5).softmax(0)
                for j, weight in zip(best, weights, strict=True):
                    out[b, h, i] += weight * (value_map[h] @ states[b, j] + bias[h])
    return out


@by_form
@pytest.mark.parametrize("k", [1, 4, 30])
@pytest.mark.parametrize("by", ["exact", "approximate"])
def test_the_equation_by_loops(form, k: int, by) -> None:
    inputs = made()
    bias = torch.randn(H, E, dtype=torch.float64)
    real = torch.rand(B, M) > 0.4
    options = UnlimiformerOptions(neighbours=k, search=by)
    out = form(*inputs, value_bias=bias, padding=real, options=options)
    expected = by_loops(*inputs, bias, real, k)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


# ---- U3


def test_the_score_can_be_moved_to_the_query() -> None:
    """(W_kᵀ q)·s = q·(W_k s + b_k) − q·b_k."""
    q, states, key_map, _ = made()
    bias = torch.randn(H, D, dtype=torch.float64)
    keys = torch.einsum("hdx,bmx->bhmd", key_map, states) + bias[:, None]
    moved = in_states(q, key_map) @ states[:, None].mT
    torch.testing.assert_close(moved, q @ keys.mT - q @ bias[..., None])


@by_form
def test_with_every_state_it_is_cross_attention(form) -> None:
    torch.manual_seed(1)
    full = FullAttention(12, 3).double()
    name = next(n for n, f in FORMS.items() if f is form)
    layer = Unlimiformer(12, 3, form=name, options=UnlimiformerOptions(neighbours=M)).double()
    layer.projections.load_state_dict(full.heads.state_dict())
    x, context = (torch.randn(2, n, 12, dtype=torch.float64) for n in (N, M))
    real = torch.rand(2, M) > 0.4
    given = {"context": context, "context_padding": real}
    torch.testing.assert_close(layer(x, **given), full(x, **given))
    few = Unlimiformer(12, 3, form=name, options=UnlimiformerOptions(neighbours=3)).double()
    few.projections.load_state_dict(full.heads.state_dict())
    assert not torch.allclose(few(x, **given), full(x, **given))


def test_what_is_fetched_is_noted() -> None:
    inputs = made()
    told = []
    for form in FORMS.values():
        with record() as notes:
            form(*inputs, options=UnlimiformerOptions(neighbours=4))
        told.append({name: notes.last(name) for name in ("neighbours", "neighbour_weights")})
    for name, value in told[0].items():
        torch.testing.assert_close(told[1][name], value)
    assert told[0]["neighbours"].shape == (B, H, N, 4)
    real = torch.zeros(B, M, dtype=torch.bool)
    real[:, 5:7] = True
    with record() as notes:
        naive(*inputs, padding=real, options=UnlimiformerOptions(neighbours=3))
    assert set(notes.last("neighbours").flatten().tolist()) == {5, 6, search.NOTHING}


# ---- windows


@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 0.9])
@pytest.mark.parametrize(("n", "length"), [(1, 8), (8, 8), (9, 8), (50, 8), (64, 16), (97, 13)])
def test_windows_keep_each_position_once(n: int, length: int, overlap: float) -> None:
    found = windows(n, length, overlap)
    assert [i for w in found for i in range(w.first, w.last)] == list(range(n))
    margin = int(length * overlap / 2)
    for w in found:
        assert w.stop - w.start == min(n, length)
        assert 0 <= w.start <= w.first < w.last <= w.stop <= n
        assert w.first - w.start >= margin or w.first == 0
        assert w.stop - w.last >= margin or w.last == n


def test_windows_by_hand() -> None:
    assert [tuple(w) for w in windows(20, 8)] == [
        (0, 8, 0, 6), (4, 12, 6, 10), (8, 16, 10, 14), (12, 20, 14, 20)
    ]  # fmt: skip
    assert [tuple(w) for w in windows(11, 8)] == [(0, 8, 0, 6), (3, 11, 6, 11)]
    for wrong, words in (((0, 4), "n should be at least 1"), ((9, 4, 1.0), "below 1, got 1.0")):
        with pytest.raises(ValueError, match=words):
            windows(*wrong)


def test_encoding_keeps_the_middle_of_each_window() -> None:
    model = tiny()
    tokens = torch.randint(50, (2, 37))
    real = torch.arange(37) < torch.tensor([[37], [30]])
    states = encode(model.encode, tokens, 8)
    for w in windows(37, 8):
        whole = model.encode(tokens[:, w.start : w.stop])
        kept = whole[:, w.first - w.start : w.last - w.start]
        torch.testing.assert_close(states[:, w.first : w.last], kept)
    short = encode(model.encode, tokens[:, :8], 8, padding=real[:, :8])
    torch.testing.assert_close(short, model.encode(tokens[:, :8], real[:, :8]))
    padded = encode(model.encode, tokens, 8, padding=real)
    noisy = encode(model.encode, tokens.where(real, 3), 8, padding=real)
    torch.testing.assert_close(padded[real], noisy[real])


# ---- trained models


def tiny() -> TinyTransformer:
    torch.manual_seed(2)
    sizes = {"dim": 12, "heads": 3, "layers": 2, "max_len": 16}
    return TinyTransformer(50, kind="encoder_decoder", **sizes).double().eval()


def hugging_face(name: str):
    transformers = pytest.importorskip("transformers", reason="for its T5 and BART")
    torch.manual_seed(3)
    sizes = {"vocab_size": 50, "d_model": 12, "pad_token_id": 0, "eos_token_id": 1}
    if name == "t5":
        config = transformers.T5Config(
            d_kv=5, d_ff=16, num_layers=2, num_heads=3, decoder_start_token_id=0, **sizes
        )
        model = transformers.T5ForConditionalGeneration(config)
    else:
        shape = {"layers": 2, "attention_heads": 3, "ffn_dim": 16}
        both = {
            f"{side}_{key}": value
            for side in ("encoder", "decoder")
            for key, value in shape.items()
        }
        config = transformers.BartConfig(
            max_position_embeddings=64, bos_token_id=2, decoder_start_token_id=2,
            forced_eos_token_id=None, **both, **sizes,
        )  # fmt: skip
        model = transformers.BartForConditionalGeneration(config)
    for parameter in model.parameters():  # biases start at zero, where nothing depends on them
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def test_a_model_that_fetches_every_state_is_as_it_was() -> None:
    model, prompt = tiny(), torch.randint(50, (2, 5))
    states = model.encode(torch.randint(50, (2, 13)))
    real = torch.arange(13) < torch.tensor([[13], [9]])
    before = {name: type(part) for name, part in model.named_modules()}
    expected = model.decode(prompt, memory=states, memory_padding=real)
    with retrieving(model, neighbours=13):
        torch.testing.assert_close(
            model.decode(prompt, memory=states, memory_padding=real), expected
        )
    with retrieving(model, neighbours=2):
        fewer = model.decode(prompt, memory=states, memory_padding=real)
    assert not torch.allclose(fewer, expected)
    assert before == {name: type(part) for name, part in model.named_modules()}
    with pytest.raises(RuntimeError, match="on the way"), retrieving(model):
        raise RuntimeError("on the way")
    assert not any(isinstance(part, Retrieving) for part in model.modules())


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_hugging_face_models(name: str) -> None:
    """Logits and greedy generation, with padding; and a source longer than the model's window."""
    model = hugging_face(name)
    from transformers.modeling_outputs import BaseModelOutput

    tokens, prompt = torch.randint(2, 50, (2, 13)), torch.randint(2, 50, (2, 5))
    real = torch.arange(13) < torch.tensor([[13], [9]])
    given = {"input_ids": tokens, "attention_mask": real.long()}
    expected = model(**given, decoder_input_ids=prompt).logits
    written = model.generate(**given, max_new_tokens=6, do_sample=False)
    with retrieving(model, neighbours=13):
        torch.testing.assert_close(model(**given, decoder_input_ids=prompt).logits, expected)
        assert torch.equal(model.generate(**given, max_new_tokens=6, do_sample=False), written)
        with pytest.raises(ValueError, match="no weights over all states"):
            model(**given, decoder_input_ids=prompt, output_attentions=True)
    long = torch.randint(2, 50, (1, 200))
    encoder = model.get_encoder()
    states = encode(lambda part: encoder(part).last_hidden_state, long, 32)
    assert states.shape == (1, 200, 12)
    outputs = BaseModelOutput(last_hidden_state=states)
    whole = model(encoder_outputs=outputs, decoder_input_ids=prompt[:1]).logits
    with retrieving(model, neighbours=200, indexes=[search.Index(states[0])]):
        mine = model(encoder_outputs=outputs, decoder_input_ids=prompt[:1]).logits
    torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_refused() -> None:
    model, prompt = tiny(), torch.randint(50, (2, 5))
    states = model.encode(torch.randint(50, (2, 13)))
    with (
        pytest.raises(ValueError, match="one index for each sequence"),
        retrieving(model, indexes=[search.Index(states[0])]),
    ):
        model.decode(prompt, memory=states)
    real = torch.arange(13) < torch.tensor([[13], [9]])
    with (
        pytest.raises(ValueError, match="search without indexes"),
        retrieving(model, indexes=[search.Index(each) for each in states]),
    ):
        model.decode(prompt, memory=states, memory_padding=real)
    with (
        pytest.raises(ValueError, match="has no cross-attention"),
        retrieving(torch.nn.Linear(2, 3)),
    ):
        pass
    with pytest.raises(ValueError, match="the context that it belongs to"):
        Unlimiformer(12, 3)(torch.randn(2, 5, 12), context_padding=torch.ones(2, 5).bool())
