"""attnlab.view: one line for models of many kinds, and a sentence where that cannot be."""

import numpy as np
import pytest
import torch
from attnlab_widgets.attention_view import AttentionView
from torch import nn

import attnlab
from attnlab.lens.sources.readers import Reader

transformers = pytest.importorskip("transformers", reason="needs transformers")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")

N, M, WORDS, HEADS, LAYERS = 7, 5, 41, 4, 2
IDS = torch.arange(3, 3 + N)[None]
TARGET = torch.arange(4, 4 + M)[None]
WIDE = {
    "hidden_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 29,
}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HALVES = {
    "d_model": 24,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 29,
    "decoder_ffn_dim": 29,
}


def made(name: str) -> nn.Module:
    t = transformers
    words = {"vocab_size": WORDS}
    places = {"max_position_embeddings": 32}
    if name == "bert":
        return t.BertModel(t.BertConfig(**WIDE, **words, **places))
    if name == "gpt2":
        small = {"n_embd": 24, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 32}
        return t.GPT2LMHeadModel(t.GPT2Config(**words, **small, bos_token_id=1, eos_token_id=2))
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**WIDE, **words, num_key_value_heads=2))
    if name == "qwen2":
        return t.Qwen2ForCausalLM(t.Qwen2Config(**WIDE, **words, num_key_value_heads=2))
    if name == "deberta":
        relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
        return t.DebertaV2Model(t.DebertaV2Config(**WIDE, **words, **places, **relative))
    if name == "t5":
        small = {"d_model": 24, "d_kv": 6, "d_ff": 29, "num_layers": LAYERS, "num_heads": HEADS}
        config = t.T5Config(**words, **small, decoder_start_token_id=0)
        return t.T5ForConditionalGeneration(config)
    if name == "bart":
        config = t.BartConfig(**HALVES, **words, **MARKS, **places, decoder_start_token_id=2)
        return t.BartForConditionalGeneration(config)
    if name == "whisper":
        sound = {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": 32}
        none = {"begin_suppress_tokens": None, "suppress_tokens": None}
        config = t.WhisperConfig(
            **HALVES, **words, **MARKS, **sound, **none, decoder_start_token_id=1
        )
        return t.WhisperForConditionalGeneration(config)
    if name == "clip":
        text = WIDE | words | MARKS | places
        image = WIDE | {"image_size": 24, "patch_size": 6}
        return t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=image, projection_dim=16))
    if name == "vit":
        return t.ViTModel(t.ViTConfig(**WIDE, image_size=24, patch_size=6))
    grid = {"image_size": 32, "patch_size": 4, "window_size": 4}
    return t.SwinModel(t.SwinConfig(**grid, embed_dim=12, depths=[2, 2], num_heads=[2, 4]))


def layers(view: AttentionView) -> list[tuple[str | None, int, int]]:
    return [(x["title"], x["n"], x["m"]) for x in view._recording["layers"]]


def words(view: AttentionView, layer: int, side: str = "q") -> list[str]:
    """The labels of a layer's queries or keys."""
    place = view._recording["layers"][layer][side]
    return [token[-1] for token in view._recording["tokens"][place["set"]]]


def weights(view: AttentionView, layer: int) -> np.ndarray:
    """The first column is sent as it is: enough to know a map by."""
    header, shape = view._recording["blocks"][0][0][layer], view._recording["layers"][layer]
    at = header["at"] + (4 * shape["h"] * shape["m"] if header["norms"] else 0)
    found = np.frombuffer(view._data, "<f4", shape["h"] * shape["n"], at)
    return found.reshape(shape["h"], shape["n"])


SELF = [(None, N, N)] * LAYERS
TWO_SIDED = [
    *((f"encoder {at}", N, N) for at in range(LAYERS)),
    *((f"decoder {at}", M, M) for at in range(LAYERS)),
    *((f"cross {at}", M, N) for at in range(LAYERS)),
]


# ------------------------------------------------------------------------------- ten kinds and more


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "qwen2", "deberta"])
def test_models_of_one_text(name: str) -> None:
    model = made(name).train()
    view = attnlab.view(model, IDS)
    assert layers(view) == SELF
    assert words(view, 0) == [str(number) for number in IDS[0].tolist()]
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    with attnlab.watch(model.eval()) as seen, torch.no_grad():
        model(IDS)
    for layer, record in enumerate(seen):
        np.testing.assert_allclose(weights(view, layer), record.weights[0, :, :, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_and_a_decoder(name: str) -> None:
    model = made(name)
    view = attnlab.view(model, IDS, target=TARGET)
    names = [x["name"] for x in view._recording["layers"]]
    read = words(view, LAYERS)
    assert read == [str(number) for number in TARGET[0].tolist()]
    assert layers(view) == TWO_SIDED
    assert all("encoder" in path for path in names[:LAYERS])
    assert words(view, 0) == words(view, 2 * LAYERS, "k") == [str(x) for x in IDS[0].tolist()]
    assert words(view, 2 * LAYERS) == read


def test_a_decoder_without_a_target_writes_one() -> None:
    model = made("t5").eval()  # with dropout, what it writes would be chance
    view = attnlab.view(model, IDS, generate=3)
    written = model.generate(IDS, max_new_tokens=3, do_sample=False)[0].tolist()
    assert words(view, LAYERS) == [str(number) for number in written]


def test_sound_and_text() -> None:
    sound = {"input_features": torch.randn(1, 8, 100), "decoder_input_ids": TARGET}
    view = attnlab.view(made("whisper"), sound)
    assert layers(view)[0] == ("encoder 0", 50, 50)
    assert words(view, 2 * LAYERS, "k") == [str(place) for place in range(50)]
    assert words(view, 2 * LAYERS) == [str(number) for number in TARGET[0].tolist()]


def test_text_and_image() -> None:
    both = {"input_ids": IDS, "pixel_values": torch.randn(1, 3, 24, 24)}
    view = attnlab.view(made("clip"), both)
    found = {title: words(view, at) for at, (title, _, _) in enumerate(layers(view))}
    assert found["text 1"] == [str(number) for number in IDS[0].tolist()]
    assert found["vision 0"][0] == "[CLS]"
    assert found["vision 0"][-1] == "patch in row 3, column 3"
    assert view._recording["grids"] == [{"rows": 4, "columns": 4, "first": 1}, None]


def test_an_image() -> None:
    view = attnlab.view(made("vit"), torch.rand(1, 3, 24, 24))
    assert layers(view) == [(None, 17, 17)] * LAYERS
    assert view._recording["grids"] == [{"rows": 4, "columns": 4, "first": 1}]
    assert view._recording["image"]["url"].startswith("data:image/png;base64,")
    assert (view._recording["image"]["width"], view._recording["image"]["height"]) == (24, 24)


def test_windows_of_an_image() -> None:
    model, image = made("swin").eval(), torch.randn(1, 3, 32, 32)
    view = attnlab.view(model, image)
    assert [x[1:] for x in layers(view)] == [(64, 64)] * 2 + [(16, 16)] * 2
    with attnlab.watch(model) as seen, torch.no_grad():
        model(image)
    first = seen[0].weights  # (windows, h, tokens of a window, the same)
    assert first.shape[0] == 4
    found = weights(view, 0).reshape(-1, 8, 8)
    np.testing.assert_allclose(found[:, :4, :4], first[0, :, :, 0].unflatten(1, (4, 4)), atol=1e-6)
    assert (found[:, 4:, :] == 0).all(), "the first patch is in no other window"
    # The second block moves its windows by half: the first patch is in the one at the corners,
    # and attends there only to those that are its neighbours in the image.
    moved = weights(view, 1).reshape(-1, 8, 8)
    corner = seen[1].weights[3].unflatten(2, (4, 4)).unflatten(1, (4, 4))
    assert (moved[:, :2, :2] > 0.01).all()
    np.testing.assert_allclose(moved[:, :2, :2], corner[:, 2:, 2:, 2, 2], atol=1e-6)


def test_models_of_torch() -> None:
    model = nn.Transformer(24, HEADS, LAYERS, LAYERS, 29, batch_first=True)
    view = attnlab.view(model, (torch.randn(1, N, 24), torch.randn(1, M, 24)))
    assert layers(view) == TWO_SIDED


def test_models_of_attnlab() -> None:
    small = {"dim": 24, "layers": LAYERS, "heads": HEADS}
    assert layers(attnlab.view(attnlab.TinyTransformer(WORDS, **small), IDS)) == SELF
    model = attnlab.TinyTransformer(WORDS, **small, kind="encoder_decoder")
    assert layers(attnlab.view(model, IDS, target=TARGET)) == TWO_SIDED
    assert layers(attnlab.view(model, {"tokens": TARGET, "source": IDS})) == TWO_SIDED


def test_a_shipped_model_reads_text() -> None:
    model, task = attnlab.pretrained.load("documentation")
    text = "the value of each"
    view = attnlab.view(model, text, task)
    found = [token[0] for token in view._recording["tokens"][0]]
    assert found == task.tokens(task.encode(text))


def test_generated_tokens() -> None:
    model = made("gpt2")
    options = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True}
    outputs = model.generate(IDS, **options)
    first, second = attnlab.view(model, outputs), attnlab.view(model, IDS, generate=3)
    assert words(first, 0) == words(second, 0) == [str(x) for x in outputs.sequences[0].tolist()]
    encoder_decoder = made("bart")
    written = encoder_decoder.generate(IDS, **options)
    with pytest.raises(ValueError, match="give what the encoder read as `inputs`"):
        attnlab.view(encoder_decoder, written)
    view = attnlab.view(encoder_decoder, IDS, target=written)
    assert words(view, LAYERS) == [str(x) for x in written.sequences[0].tolist()]


def test_the_row_of_a_batch() -> None:
    view = attnlab.view(made("bert"), torch.cat([IDS, IDS + 20]), batch=1)
    assert words(view, 0)[0] == str(int(IDS[0, 0]) + 20)


# --------------------------------------------------------------------------------- names of tokens


def trained(model: object, before: object, **options: object) -> object:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = before
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def byte_level() -> object:
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0} | {letter: 1 + at for at, letter in enumerate(letters)}
    merged = [("Ġ", "d"), ("Ġd", "o"), ("Ã", "¤")]
    vocabulary |= {a + b: len(vocabulary) + at for at, (a, b) in enumerate(merged)}
    before = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return trained(tokenizers.models.BPE(vocabulary, merged), before, bos_token="<s>")


def test_tokens_of_bytes_are_readable() -> None:
    tokenizer = byte_level()
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_layer=1, n_head=HEADS, bos_token_id=0, eos_token_id=0
    )
    view = attnlab.view(transformers.GPT2Model(config), "<s>to do\nä€", tokenizer)
    shown = [token[0] for token in view._recording["tokens"][0]]
    assert shown == ["<s>", "t", "o", "␣do", "↵", "ä", "xE2", "x82", "xAC"]


def test_tokens_of_sentence_pieces_are_readable() -> None:
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁to", -1.0), ("▁do", -1.0), ("<0x0A>", -1.0)]
    before = tokenizers.pre_tokenizers.Metaspace()
    tokenizer = trained(tokenizers.models.Unigram(pieces, 0), before, eos_token="</s>")
    model = made("t5")
    view = attnlab.view(model, "to do</s>", tokenizer, target="do</s>")
    assert words(view, 0) == [" to", " do", "</s>"]
    assert words(view, LAYERS)[1:] == [" do"], "the end is predicted, not read"
    assert Reader(tokenizer).tokens(torch.tensor([4])) == ["\n"]


def test_a_tokenizer_of_the_library_tokenizers() -> None:
    plain = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]")
    )
    view = attnlab.view(made("bert"), "playing", plain)
    assert words(view, 0) == ["play", "##ing"]


def test_an_image_by_its_processor() -> None:
    processor = transformers.ViTImageProcessor(size={"height": 24, "width": 24})
    image = np.zeros((30, 40, 3), np.uint8)
    image[:, 20:] = (255, 0, 0)
    view = attnlab.view(made("vit"), image, processor)
    from PIL import Image

    assert layers(attnlab.view(made("vit"), Image.fromarray(image), processor)) == layers(view)
    shown = pixels(view)
    assert np.abs(shown[12, 2].astype(int) - (0, 0, 0)).max() < 3, "colours as they were"
    assert np.abs(shown[12, 22].astype(int) - (255, 0, 0)).max() < 3


def pixels(view: AttentionView) -> np.ndarray:
    from base64 import b64decode
    from io import BytesIO

    from PIL import Image

    data = b64decode(view._recording["image"]["url"].partition(",")[2])
    return np.asarray(Image.open(BytesIO(data)).convert("RGB"))


def test_a_sound_by_its_processor() -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    view = attnlab.view(made("whisper"), np.zeros(8000, np.float32), extractor, target=TARGET)
    assert layers(view)[0] == ("encoder 0", 50, 50)


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attnlab.view(3, "a"), "`model` should be an nn.Module, got 3"),
        (lambda: attnlab.view(made("gpt2"), "a text"), "a text needs the model's own `tokenizer`"),
        (lambda: attnlab.view(made("gpt2"), ""), "is an empty text"),
        (lambda: attnlab.view(made("gpt2"), 3), "should be a text, a tensor of tokens, an image"),
        (lambda: attnlab.view(made("gpt2"), "a", 3), "`tokenizer` should be a tokenizer or"),
        (lambda: attnlab.view(made("gpt2"), IDS[:, :0]), "`inputs` is empty"),
        (lambda: attnlab.view(made("gpt2"), IDS, batch=1), "`batch` should be from 0 to 0"),
        (lambda: attnlab.view(made("gpt2"), IDS, target=IDS), "has one side only"),
        (lambda: attnlab.view(made("gpt2"), IDS, generate=0), "should be at least 1"),
        (lambda: attnlab.view(made("gpt2"), IDS + 90), r"tensor \(1, 7\): index out of range"),
        (lambda: attnlab.view(made("gpt2"), {}), "forward takes input_ids"),
        (lambda: attnlab.view(made("bert"), IDS, generate=2), "cannot generate text"),
        (lambda: attnlab.view(made("t5"), IDS, target=3), "`target` should be a text"),
        (lambda: attnlab.view(made("t5"), IDS, target="a"), "needs the model's own `tokenizer`"),
        (lambda: attnlab.view(made("clip"), IDS), "reads an image and a text"),
        (lambda: attnlab.view(made("vit"), IDS), "reads an image: give what its processor"),
        (lambda: attnlab.view(made("vit"), np.zeros((9, 9, 3))), "an image needs the model's own"),
        (lambda: attnlab.view(made("whisper"), np.zeros(99)), "a sound needs the model's own"),
        (lambda: attnlab.view(nn.Linear(3, 3), torch.ones(2, 3)), "no attention was recognised"),
        (
            lambda: attnlab.view(
                attnlab.TinyTransformer(9, dim=8, kind="encoder_decoder"), IDS % 9
            ),
            "say what the decoder reads, as `target=`",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(call: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()  # type: ignore[operator]
