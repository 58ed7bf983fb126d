"""``collect`` on tiny random Hugging Face models: BERT, GPT-2, Llama, ViT, Bloom, T5 and BART."""

import numpy as np
import pytest
import torch

from attnlab.lens.query_key.collect import collect
from attnlab.lens.query_key.maps import project
from attnlab.lens.watch import watch

transformers = pytest.importorskip("transformers")

B, N, M, HEADS, KEY_HEADS, WIDTH, WORDS, LAYERS = 3, 11, 13, 6, 2, 4, 37, 2
DIM = HEADS * WIDTH
TEXT = ["bert", "gpt2", "llama", "bloom"]
LENGTHS = torch.tensor([[N], [N - 4], [3]])


def made(name, implementation="sdpa"):
    t, common = transformers, {"vocab_size": WORDS, "attn_implementation": implementation}
    wide = {"hidden_size": DIM, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    more = {"intermediate_size": 41, "attn_implementation": implementation}
    makers = {
        "bert": lambda: t.BertModel(
            t.BertConfig(**common | wide | more, max_position_embeddings=N), add_pooling_layer=False
        ),
        "gpt2": lambda: t.GPT2Model(
            t.GPT2Config(**common, n_embd=DIM, n_layer=LAYERS, n_head=HEADS, n_positions=N)
        ),
        "llama": lambda: t.LlamaModel(
            t.LlamaConfig(**common | wide | more, num_key_value_heads=KEY_HEADS)
        ),
        "bloom": lambda: t.BloomModel(
            t.BloomConfig(**common, hidden_size=DIM, n_layer=LAYERS, n_head=HEADS)
        ),
        "vit": lambda: t.ViTModel(
            t.ViTConfig(**wide | more, image_size=12, patch_size=4, num_channels=1),
            add_pooling_layer=False,
        ),
        "t5": lambda: t.T5Model(
            t.T5Config(
                vocab_size=WORDS, d_model=DIM, d_kv=WIDTH, num_heads=HEADS, num_layers=LAYERS,
                d_ff=41,
            )
        ),
        "bart": lambda: t.BartModel(
            t.BartConfig(
                vocab_size=WORDS, d_model=DIM, encoder_layers=LAYERS, decoder_layers=LAYERS,
                encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=41,
                decoder_ffn_dim=43, max_position_embeddings=17,
            )
        ),
    }  # fmt: skip
    return makers[name]().eval()


def words(n=N):
    return torch.randint(3, WORDS, (B, n))


def read(row):
    return [f"w{int(token)}" for token in row]


def padded(side):
    places = torch.arange(N) if side == "right" else torch.arange(N).flip(0)
    return (places < LENGTHS).long()


def weights_of(layer, sequence):
    """(h, n, m): softmax of collected scores where the collected mask allows."""
    found = []
    for head in range(layer.heads):
        scores = torch.from_numpy(layer.scores(sequence, head))
        allowed = torch.from_numpy(layer.allowed(sequence, head))
        found.append(scores.masked_fill(~allowed, -torch.inf).softmax(-1))
    return torch.stack(found)


def seen_by(model, batch):
    with watch(model) as seen, torch.no_grad():
        model(**batch)
    return seen


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_scores_of_the_points_give_the_weights_of_the_model(name, implementation, side):
    """RoPE and keys that query heads share (Llama) included, on real tokens."""
    model = made(name, implementation)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    real = torch.ones(B, N, dtype=torch.long) if side is None else padded(side)
    batch = {"input_ids": words()} | ({} if side is None else {"attention_mask": real})
    points = collect(model, [batch], read)
    seen = seen_by(model, batch)
    assert len(points) == len(seen) == LAYERS
    for layer, record in zip(points, seen, strict=True):
        assert layer.heads == HEADS
        assert layer.keys.shape == layer.queries.shape == (HEADS, int(real.sum()), WIDTH)
        assert layer.outside is None
        assert layer.scale == pytest.approx(WIDTH**-0.5)
        for sequence in range(B):
            keep = real[sequence].bool()
            own = record.weights[sequence][:, keep][:, :, keep]
            assert torch.allclose(weights_of(layer, sequence), own, atol=5e-3)
            rows = layer.query_tokens.of(sequence)
            assert list(layer.query_tokens.texts[rows]) == read(batch["input_ids"][sequence][keep])
            count = min(8, int(keep.sum()))
            best = own.topk(count, dim=-1)
            assert np.allclose(layer.weights[:, rows, :count], best.values, atol=1e-3)


def test_shared_keys_stand_once_for_each_query_head():
    layer = collect(made("llama"), [{"input_ids": words()}])[0]
    shared = HEADS // KEY_HEADS
    for head in range(HEADS):
        twin = layer.keys[head // shared * shared]
        assert np.array_equal(layer.keys[head], twin)
    assert not np.array_equal(layer.keys[0], layer.keys[shared])
    assert not np.array_equal(layer.queries[0], layer.queries[1])


def test_vectors_of_bert_are_its_own_projections():
    model = made("bert")
    batch = {"input_ids": words()}
    points = collect(model, [batch])
    hidden = model(**batch, output_hidden_states=True).hidden_states
    for at, layer in enumerate(points):
        own = model.encoder.layer[at].attention.self
        for made_by, stored in (own.query, layer.queries), (own.key, layer.keys):
            wanted = (
                made_by(hidden[at]).unflatten(-1, (HEADS, WIDTH)).permute(2, 0, 1, 3).flatten(1, 2)
            )
            assert np.allclose(stored, wanted.detach(), atol=2e-3)


def test_patches_of_a_vision_transformer():
    model = made("vit")
    images = torch.rand(B, 1, 12, 12)
    points = collect(
        model, [{"pixel_values": images}], grid=(3, 3), images=images[:, 0], labels=["a", "b", "c"]
    )
    tokens = points[0].query_tokens
    assert len(tokens) == B * 10
    assert tokens.texts[:3] == ("[CLS]", "row 0, column 0", "row 0, column 1")
    assert tokens.texts[9] == "row 2, column 2"
    assert tokens.labels[8:12] == ("a", "a", "b", "b")
    assert np.allclose(tokens.images, images[:, 0])
    for at, record in enumerate(seen_by(model, {"pixel_values": images})):
        for sequence in range(B):
            assert torch.allclose(
                weights_of(points[at], sequence), record.weights[sequence], atol=2e-3
            )


def test_a_vision_transformer_alone_needs_no_names():
    points = collect(made("vit"), [{"pixel_values": torch.rand(B, 1, 12, 12)}])
    assert points[0].query_tokens.texts[:10] == tuple(map(str, range(10)))


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_and_a_decoder_have_texts_of_their_own(name):
    model = made(name)
    source, target = words(M), words()
    real = torch.arange(M) < torch.tensor([[M], [M - 2], [1]])
    batch = {"input_ids": source, "decoder_input_ids": target, "attention_mask": real.long()}
    points = collect(model, [batch], read)
    texts = [text for row in range(B) for text in read(source[row][real[row]])]
    own = [text for row in target for text in read(row)]
    kinds = []
    for layer in points:
        sides = layer.query_tokens.texts, layer.key_tokens.texts
        kinds.append([["own", "source"][list(side) == texts] for side in sides])
        assert all(list(side) in (own, texts) for side in sides)
    assert sorted(map(tuple, kinds)) == sorted(
        [("source", "source")] * LAYERS + [("own", "own")] * LAYERS + [("own", "source")] * LAYERS
    )
    cross = next(p for p, k in zip(points, kinds, strict=True) if k == ["own", "source"])
    record = next(x for x in seen_by(model, batch) if x.name == cross.name)
    assert torch.allclose(weights_of(cross, 0), record.weights[0], atol=3e-3)


def test_a_decoder_without_a_text_is_refused():
    with pytest.raises(ValueError, match=r"needs `decoder_input_ids`.*get_encoder"):
        collect(made("bart"), [{"input_ids": words()}])


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_alone(name):
    points = collect(made(name).get_encoder(), [{"input_ids": words(M)}], read)
    assert [len(layer.key_tokens) for layer in points] == [B * M] * LAYERS


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_the_bias_of_bloom_is_named(side):
    batch = {"input_ids": words()} | ({} if side is None else {"attention_mask": padded(side)})
    for layer in collect(made("bloom", "eager"), [batch]):
        assert "(ALiBi)" in layer.outside


def test_the_bias_of_t5_is_named_where_it_is():
    batch = {"input_ids": words(M), "decoder_input_ids": words()}
    for layer in collect(made("t5"), [batch], read):
        if "EncDec" in layer.name:
            assert layer.outside is None
        else:
            assert "as that of T5" in layer.outside


def test_a_decoding_step_with_a_cache_is_refused():
    model = made("gpt2")
    with torch.no_grad():
        cache = model(input_ids=words(5), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="without the cache of a decoder"):
        collect(model, [{"input_ids": words(1), "past_key_values": cache}])


def test_a_tokenizer_reads_the_tokens_and_its_encoding_is_a_batch():
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"[PAD]": 0, "[UNK]": 1, "a": 2, "cat": 3, "sat": 4}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]"
    )
    batch = tokenizer(["a cat sat", "a dog"], padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    found = collect(made("gpt2"), [batch], tokenizer.convert_ids_to_tokens)[0].query_tokens
    assert found.texts == ("a", "cat", "sat", "a", "[UNK]")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "vit", "t5"])
def test_maps_of_every_head(name):
    """From a model to its maps and their faithfulness."""
    texts = {"input_ids": words()}
    batch = {
        "vit": {"pixel_values": torch.rand(B, 1, 12, 12)},
        "t5": {**texts, "decoder_input_ids": words(7)},
    }.get(name, texts)
    points = collect(made(name), [batch])
    maps = project(points, "pca")
    assert tuple(maps) == points.heads
    for one in maps.values():
        assert np.isfinite(one.all).all()
        assert 0 <= one.faithfulness.trustworthiness <= 1
