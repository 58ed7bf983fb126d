"""Full attention in somebody else's model gives what the model gave: outputs, gradients, tokens."""

import copy
import functools
import importlib.metadata
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import (
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        StaticCache,
    )

SIZES = {"vocab_size": 31, "attn_implementation": "sdpa"}
GPT2 = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 64}
LIKE_LLAMA = {"hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
MADE = {
    "gpt2": lambda **o: GPT2LMHeadModel(GPT2Config(**SIZES | GPT2 | NO_DROPOUT | o)),
    "gpt2, other scales": lambda **o: GPT2LMHeadModel(
        GPT2Config(scale_attn_by_inverse_layer_idx=True, **SIZES | GPT2 | NO_DROPOUT | o)
    ),
    "bert": lambda **o: BertModel(
        BertConfig(num_attention_heads=3, **SIZES | LIKE_LLAMA | o), add_pooling_layer=False
    ),
    "llama": lambda **o: LlamaForCausalLM(
        LlamaConfig(num_attention_heads=6, num_key_value_heads=2, **SIZES | LIKE_LLAMA | o)
    ),
}
LAYERS = {"num_layers": 2, "enable_nested_tensor": True}


@functools.cache
def kept(name: str) -> nn.Module:
    torch.manual_seed(3)
    model = MADE[name]().double().eval()
    for parameter in model.parameters():  # biases begin at zero
        nn.init.normal_(parameter, std=0.3)
    return model


def made(name: str) -> nn.Module:
    return copy.deepcopy(kept(name))


def replaced(name: str, mechanism: str = "full", **options: Any) -> nn.Module:
    return attnlab.replace(made(name), mechanism, **options).model


def outputs(model: nn.Module, ids: Tensor, mask: Tensor | None = None, **more: Any) -> Tensor:
    found = model(input_ids=ids, attention_mask=mask, **more)
    return found.logits if "logits" in found else found.last_hidden_state


IDS = torch.randint(31, (2, 7), generator=torch.Generator().manual_seed(1))
RIGHT, LEFT = torch.ones(2, 2, 7, dtype=torch.long).unbind()
RIGHT[1, 5:] = 0
LEFT[1, :3] = 0
EVERY = pytest.mark.parametrize("name", list(MADE))


@EVERY
@pytest.mark.parametrize("mask", [None, RIGHT, LEFT], ids=["all", "right", "left"])
def test_full_attention_gives_the_same(name: str, mask: Tensor | None) -> None:
    model, other = made(name), replaced(name)
    found = []
    for each in (model, other):
        out = outputs(each, IDS, mask)
        out = out if mask is None else out[mask.bool()]
        word = each.get_input_embeddings().weight
        (gradient,) = torch.autograd.grad(out.square().sum(), word)
        found.append((out, gradient))
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@EVERY
def test_masks_that_are_added_are_understood(name: str) -> None:
    """Those of the kernel "eager", which computes its softmax in float32."""
    model, other = made(name).float(), replaced(name).float()
    for each in (model, other):
        each.set_attn_implementation("eager")
    for mask in (None, LEFT):
        seen = torch.ones_like(IDS) if mask is None else mask
        found, wanted = (outputs(each, IDS, mask)[seen.bool()] for each in (other, model))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("mechanism", ["full", "flash"])
@pytest.mark.parametrize(
    "how", [{}, {"attention_mask": LEFT}, {"num_beams": 2}], ids=["plain", "padded", "beams"]
)
def test_generated_tokens_are_those_of_the_model(name, mechanism, how) -> None:
    written = [
        model.generate(IDS, max_new_tokens=6, do_sample=False, pad_token_id=0, **given)
        for given in ({**how}, {**how, "use_cache": False})
        for model in (made(name), replaced(name, mechanism))
    ]
    for other in written[1:]:
        assert torch.equal(other, written[0])


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [*(("gpt2", each) for each in ("longformer", "linear", "retention", "gru")),
     ("llama", "longformer"), ("llama", "linear")],
)  # fmt: skip
def test_other_mechanisms_write_the_same_with_a_cache(name: str, mechanism: str) -> None:
    options = {"window": 4} if mechanism == "longformer" else {}
    model = replaced(name, mechanism, **options)
    steps = []
    for layer in (each.layer for each in model.modules() if hasattr(each, "layer")):
        step = layer.step
        layer.step = lambda *given, step=step: steps.append(given[0].shape[1]) or step(*given)
    for how in ({}, {"attention_mask": LEFT}, {"num_beams": 2}):
        with_cache, without = (
            model.generate(
                IDS, max_new_tokens=6, do_sample=False, pad_token_id=0, use_cache=cached, **how
            )
            for cached in (True, False)
        )
        assert torch.equal(with_cache, without), how
        assert set(steps) >= {1, 8}, "the first step reads the prompt, too"


def test_a_mechanism_without_step_refuses_a_cache() -> None:
    model = replaced("gpt2", "reformer")
    outputs(model, IDS)
    with pytest.raises(ValueError, match=r"Reformer cannot go on from a cache.*use_cache"):
        model.generate(IDS, max_new_tokens=3, pad_token_id=0)
    cache = StaticCache(config=model.config, max_cache_len=16)
    with pytest.raises(ValueError, match="a DynamicCache; it was given a StaticLayer"):
        outputs(replaced("gpt2"), IDS, past_key_values=cache)


def test_what_was_replaced_is_told() -> None:
    model = made("gpt2")
    account = attnlab.replace(model, "linear")
    assert account.model is model
    assert [each.name for each in account.modules] == [f"transformer.h.{i}.attn" for i in (0, 1)]
    assert account.modules[0].copied == ("query", "key", "value", "output")
    assert account.modules[0].left == account.modules[0].drawn == ()
    assert repr(account).startswith("2 × GPT2Attention → linear\ncopied: query, key, value, output")
    account = attnlab.replace(made("gpt2"), "reformer", modules=["transformer.h.1.attn"])
    assert "query" in account.modules[0].left
    assert "bias of value" in account.modules[0].left
    assert len(account.modules) == 1
    account = attnlab.replace(made("gpt2"), "gru")
    assert account.modules[0].copied == ()
    assert account.modules[0].drawn
    grouped = attnlab.replace(made("llama"), "multi_query", kv_heads=1)
    assert grouped.modules[0].copied == ("query", "key", "value", "output")
    dropped = MADE["bert"](attention_probs_dropout_prob=0.5)
    assert attnlab.replace(dropped, "full").modules[0].left == ("dropout of the weights",)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_layers_of_pytorch(batch_first: bool, causal: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 4, 20, 0.0, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first).double().eval()
    other = attnlab.replace(copy.deepcopy(model), "full", causal=causal).model
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    hidden = ~RIGHT.bool()
    mask = nn.Transformer.generate_square_subsequent_mask(7).double() if causal else None
    found = []
    for each in (model, other):
        seen = x if batch_first else x.transpose(0, 1)
        out = each(
            seen, mask=mask, src_key_padding_mask=hidden.double() * -1e30 if causal else hidden
        )
        out = (out if batch_first else out.transpose(0, 1))[~hidden]
        found.append((out, torch.autograd.grad(out.square().sum(), x)[0]))
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_cross_attention_of_pytorch_stays() -> None:
    model = nn.TransformerDecoderLayer(12, 4, 20, batch_first=True)
    account = attnlab.replace(model, "full", causal=True)
    assert [each.name for each in account.modules] == ["self_attn"]
    assert type(model.multihead_attn) is nn.MultiheadAttention


class Holder(nn.Module):
    """One attention at two addresses."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.one = self.other = nn.MultiheadAttention(12, 4, batch_first=True, **options)


def test_one_module_at_two_places_stays_one() -> None:
    model = Holder()
    assert len(attnlab.replace(model, "full").modules) == 1
    assert model.one is model.other
    x = torch.randn(1, 3, 12)
    assert model.one(x, x, x)[1] is None


X = torch.randn(1, 5, 12)
WINDOW = torch.ones(5, 5).triu(2).bool() | torch.ones(5, 5).tril(-2).bool()
REFUSED = [
    (
        lambda: attnlab.replace(nn.Linear(2, 2), "full"),
        "no attention that it knows inside",
    ),
    (
        lambda: attnlab.replace(Holder(), "full", modules=["two"]),
        r"addresses, of \['one', 'oth",
    ),
    (lambda: attnlab.replace(Holder(), "full", modules="one"), "a list of addresses"),
    (lambda: attnlab.replace(Holder(add_zero_attn=True), "full"), "add_zero_attn"),
    (lambda: attnlab.replace(Holder(), "rope"), "rope cannot stand in .* mixes no positions"),
    (lambda: attnlab.replace(Holder(), "tree"), "tree cannot stand in .* structure"),
    (lambda: replaced("bert", causal=True), "sees tokens on both sides"),
    (lambda: replaced("gpt2", "linformer"), "linformer cannot be causal"),
    (lambda: replaced("llama", "retention"), "retention cannot take rotated queries and keys"),
    (lambda: attnlab.replace(MADE["llama"](head_dim=4), "full"), "6 heads of width 4"),
    (
        lambda: replaced("gpt2").transformer.h[0].attn(X.double(), head_mask=X),
        "head_mask was asked",
    ),
    (
        lambda: attnlab.replace(Holder(), "full").model.one(X, X, X, attn_mask=WINDOW),
        "mask hides other tokens than padding, which",
    ),
    (
        lambda: attnlab.replace(Holder(), "full", causal=True).model.one(X, X, X),
        "hides other tokens than padding and the future",
    ),
    (
        lambda: attnlab.replace(Holder(), "full").model.one(X, X, X, attn_mask=WINDOW * 0.5),
        "adds numbers to the scores",
    ),
    (
        lambda: attnlab.replace(Holder(), "full").model.one(X, X + 1, X),
        "attends to the sequence",
    ),
    (lambda: attnlab.replace(Holder(), "full").model.one(X[0], X[0], X[0]), "give a batch"),
    (
        lambda: outputs(replaced("gpt2"), IDS, torch.ones(2, 1, 7, 7).bool(), use_cache=False),
        "hides other tokens than padding and the future",
    ),
]


@pytest.mark.parametrize(("ask", "sentence"), REFUSED, ids=[each[1][:30] for each in REFUSED])
def test_what_cannot_be_honoured_is_refused(ask: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ask()


def test_an_earlier_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("gpt2")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.48.0")
    with pytest.raises(ValueError, match=r"Transformers from 5 on, not of 4\.48"):
        attnlab.replace(model, "full")
    assert "GPT2Attention" in repr(model)
