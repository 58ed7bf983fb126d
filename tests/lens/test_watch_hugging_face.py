"""watch on tiny random Hugging Face models: records equal the model's own attentions."""

import pytest
import torch

from attnlab.lens.watch import watch

transformers = pytest.importorskip("transformers")

B, N, HEADS, LAYERS, WIDTH, WORDS = 2, 7, 6, 2, 30, 37
PADDING = torch.arange(N) < torch.tensor([[N], [N - 2]])


def bert(**kw):
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=41, max_position_embeddings=N + 4, **kw,
    )  # fmt: skip
    return transformers.BertModel(config, add_pooling_layer=False)


def gpt2(**kw):
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=N + 4,
        bos_token_id=0, eos_token_id=0, **kw,
    )  # fmt: skip
    return transformers.GPT2Model(config)


def llama(**kw):
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH * 2, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 2, intermediate_size=41,
        max_position_embeddings=N + 4, **kw,
    )  # fmt: skip
    return transformers.LlamaModel(config)


def vit(**kw):
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=41, image_size=12, patch_size=4, num_channels=1, **kw,
    )  # fmt: skip
    return transformers.ViTModel(config, add_pooling_layer=False)


MAKERS = {"bert": bert, "gpt2": gpt2, "llama": llama, "vit": vit}
PATHS = {
    "bert": "encoder.layer.{}.attention.self",
    "gpt2": "h.{}.attn",
    "llama": "layers.{}.self_attn",
    "vit": "layers.{}.attention",
}


def pair(name, implementation):
    """The model, and an eager twin with the same parameters that tells its own attentions."""
    model = MAKERS[name](attn_implementation=implementation).eval()
    twin = MAKERS[name](attn_implementation="eager").eval()
    twin.load_state_dict(model.state_dict())
    return model, twin


def inputs(name, padded):
    if name == "vit":
        return {"pixel_values": torch.randn(B, 1, 12, 12)}
    words = {"input_ids": torch.randint(1, WORDS, (B, N))}
    return words | ({"attention_mask": PADDING.long()} if padded else {})


CASES = [
    (name, padded) for name in MAKERS for padded in (False, True) if (name, padded) != ("vit", True)
]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(("name", "padded"), CASES)
@torch.no_grad()
def test_weights_are_the_models_own(name, padded, implementation):
    model, twin = pair(name, implementation)
    given = inputs(name, padded)
    expected = model(**given).last_hidden_state
    own = twin(**given, output_attentions=True).attentions
    with watch(model) as seen:
        out = model(**given).last_hidden_state
    assert torch.equal(out, expected)
    assert len(seen) == len(own) == LAYERS
    for layer, (record, weights) in enumerate(zip(seen, own, strict=True)):
        assert record.name == PATHS[name].format(layer)
        assert record.shape == tuple(weights.shape)
        real = PADDING[:, None, :, None] if padded else torch.ones((), dtype=torch.bool)
        assert torch.allclose(record.weights * real, weights * real, atol=1e-5)
        assert record.form == {"sdpa": "fused", "eager": "softmax"}[implementation]
        width = model.config.hidden_size // HEADS
        assert record.queries.shape == (B, HEADS, record.shape[2], width)
        assert HEADS % record.keys.shape[1] == 0
        assert record.scale == pytest.approx(width**-0.5)
        assert record.bias is None
        check_mask(record, name, padded)


def check_mask(record, name, padded):
    n = record.shape[2]
    allowed = torch.ones(B, HEADS, n, n, dtype=torch.bool)
    allowed &= PADDING[:, None, None] if padded else allowed
    allowed &= allowed.tril() if name in ("gpt2", "llama") else allowed
    if bool(allowed.all()):
        assert record.mask is None
    else:
        assert torch.equal(record.mask.expand(allowed.shape), allowed)


@torch.no_grad()
def test_llama_shares_keys_under_sdpa():
    model, _ = pair("llama", "sdpa")
    with watch(model) as seen:
        model(**inputs("llama", padded=False))
    assert [record.keys.shape[1] for record in seen] == [HEADS // 2] * LAYERS


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@torch.no_grad()
def test_decoding_with_a_cache(implementation):
    model, _ = pair("gpt2", implementation)
    words = torch.randint(1, WORDS, (B, N))
    with watch(model) as whole:
        model(words)
    cache = model(words[:, :-1], use_cache=True).past_key_values
    with watch(model) as seen:
        model(words[:, -1:], past_key_values=cache)
    for record, all_rows in zip(seen, whole, strict=True):
        assert record.shape == (B, HEADS, 1, N)
        assert torch.allclose(record.weights, all_rows.weights[:, :, -1:], atol=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_bfloat16_and_training(implementation):
    model = MAKERS["bert"](attn_implementation=implementation).to(torch.bfloat16).train()
    with watch(model) as seen:
        model(**inputs("bert", padded=True)).last_hidden_state.float().sum().backward()
    assert len(seen) == LAYERS
    for record in seen:
        assert record.queries.dtype == torch.bfloat16
        assert record.dropout == 0.1
        assert torch.allclose(record.weights.float().sum(-1), torch.ones(()), atol=2e-2)


def gpt_oss():
    config = transformers.GptOssConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2, head_dim=4, intermediate_size=8, num_local_experts=2,
        num_experts_per_tok=1, sliding_window=3, max_position_embeddings=N + 4,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4}, attn_implementation="eager",
    )  # fmt: skip
    return transformers.GptOssModel(config).eval()


def xglm():
    config = transformers.XGLMConfig(
        vocab_size=WORDS, d_model=WIDTH, ffn_dim=41, num_layers=LAYERS, attention_heads=HEADS,
        max_position_embeddings=N + 4, attn_implementation="eager",
    )  # fmt: skip
    return transformers.XGLMModel(config).eval()


@pytest.mark.parametrize("make", [gpt_oss, xglm], ids=lambda make: make.__name__)
@torch.no_grad()
def test_attention_sinks_and_clamped_scores(make):
    """gpt-oss lets a sink share the softmax; XGLM raises masked scores to the lowest number."""
    model = make()
    given = {"input_ids": torch.randint(1, WORDS, (B, N)), "attention_mask": PADDING.long()}
    own = model(**given, output_attentions=True).attentions
    with watch(model) as seen:
        model(**given)
    assert len(seen) == len(own) == LAYERS
    for record, weights in zip(seen, own, strict=True):
        real = PADDING[:, None, :, None]
        assert torch.allclose(record.weights * real, weights * real, atol=1e-5)
        assert record.scale == pytest.approx(0.5 if make is gpt_oss else 1)  # XGLM scales queries
        assert record.bias is None
        future = ~torch.ones(N, N, dtype=torch.bool).tril()
        assert not record.mask.expand(record.shape)[:, :, future].any()
    assert seen[0].weights[0].sum(-1).max() < 1 if make is gpt_oss else True


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_what_is_not_recognised_is_not_described():
    """Longformer in transformers writes diagonals of blocks, which a watch cannot follow."""
    config = transformers.LongformerConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS,
        intermediate_size=41, max_position_embeddings=N + 4, attention_window=[4], pad_token_id=1,
    )  # fmt: skip
    model = transformers.LongformerModel(config, add_pooling_layer=False).eval()
    words = torch.randint(2, WORDS, (B, N))
    with watch(model) as seen:
        model(words)
    assert len(seen) == 0
    assert "no attention was recognised in LongformerModel; what attnlab recognises: " in repr(seen)
    assert "without a softmax" not in repr(seen)
    first = torch.zeros(B, N, dtype=torch.long)
    first[:, 0] = 1
    with watch(model) as seen:
        model(words, global_attention_mask=first)
    (record,) = seen  # that of the token which attends to all
    assert record.shape == (B, HEADS, 1, 8)
    assert torch.allclose(record.weights.sum(-1), torch.ones(B, HEADS, 1))


def grouped(kind, implementation, groups):
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=WORDS, hidden_size=24, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=groups, intermediate_size=41, max_position_embeddings=N + 4,
        attn_implementation=implementation,
    )  # fmt: skip
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mistral"])
@torch.no_grad()
def test_grouped_heads_of_masked_decoding(kind, rows, groups):
    """transformers puts the heads that share a key head into the rows of SDPA's queries."""
    model, twin = (grouped(kind, each, groups) for each in ("sdpa", "eager"))
    twin.load_state_dict(model.state_dict())
    words = torch.randint(1, WORDS, (rows, 4))
    real = torch.arange(4) >= torch.tensor([[2], [0]])[:rows]  # padded at the left
    seen = {}
    for each in (model, twin):
        with watch(each, keep="copy") as seen[each]:
            each.generate(words, attention_mask=real.long(), max_new_tokens=4, min_new_tokens=4,
                          do_sample=False, pad_token_id=0)  # fmt: skip
    assert [record.shape for record in seen[model]][1:] == [(rows, HEADS, 1, m) for m in (5, 6, 7)]
    for record, own in list(zip(seen[model], seen[twin], strict=True))[1:]:
        assert record.doubt is None
        assert record.shape == own.shape
        assert record.queries.shape == (rows, HEADS, 1, 4)
        assert record.keys.shape == (rows, groups, record.shape[3], 4)
        assert torch.allclose(record.weights, own.weights, atol=1e-5)


def nystromformer():
    config = transformers.NystromformerConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS,
        intermediate_size=41, max_position_embeddings=20, segment_means_seq_len=12,
        num_landmarks=4, conv_kernel_size=3, sep_token_id=2,
    )  # fmt: skip
    return transformers.NystromformerModel(config), 12


def big_bird():
    config = transformers.BigBirdConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS,
        intermediate_size=41, max_position_embeddings=80, block_size=5, num_random_blocks=1,
        attention_type="block_sparse", pad_token_id=0, sep_token_id=2,
    )  # fmt: skip
    return transformers.BigBirdModel(config), 60


PARTLY = {
    nystromformer: ((B, HEADS, 4, 12), "its values were computed from attention weights"),
    big_bird: (None, "its 5 queries are only some"),
}
"""Model → the shape of the record that is no approximation, and the doubt of all others."""


@pytest.mark.parametrize("make", PARTLY, ids=lambda make: make.__name__)
@torch.no_grad()
def test_what_is_recorded_in_part_says_so(make):
    model, n = make()
    whole, doubt = PARTLY[make]
    with watch(model.eval(), keep="copy") as seen:
        model(torch.randint(3, WORDS, (B, n)))
    assert [record.shape for record in seen if record.doubt is None] == ([whole] if whole else [])
    assert len(seen) == 4
    assert all(doubt in record.doubt for record in seen if record.shape != whole)


@torch.no_grad()
def test_heads_that_are_merged_after_a_relative_term():
    """The text encoder of VITS adds a relative term to the result before it splits the heads."""
    config = transformers.VitsConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS,
        ffn_dim=41, window_size=2,
    )  # fmt: skip
    layer = transformers.models.vits.modeling_vits.VitsAttention(config).eval()
    with watch(layer) as seen:
        layer(torch.randn(B, N, WIDTH))
    assert [(record.shape, record.doubt) for record in seen] == [((B, HEADS, N, N), None)]
