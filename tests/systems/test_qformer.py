"""The Q-Former: its masks, its two ways to compute, its weights from Transformers, its size."""

import pytest
import torch
from torch import Tensor
from transformers import Blip2QFormerConfig, Blip2QFormerModel
from transformers.models.blip_2.modeling_blip_2 import Blip2TextEmbeddings

import attnlab
from attnlab.systems.qformer import QFormer, visible
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.systems.qformer_released import from_transformers
from tests.systems.built import large, texts_and_images

SIZES = {"dim": 20, "layers": 3, "heads": 5, "hidden": 28, "queries": 3, "image_dim": 11}
WORDS = QFormerOptions(**SIZES, vocab=17, max_len=13)


@pytest.fixture
def model() -> QFormer:
    return large(QFormer(WORDS).double())


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tokens, padding, image, hides = texts_and_images()
    return image, tokens, padding, hides


def test_masks_by_hand():
    padding = torch.tensor([[True, True, False]])
    seen = {name: visible(name, 2, padding)[0, 0].int().tolist() for name in MASKS}
    assert seen["together"] == [[1, 1, 1, 1, 0]] * 5
    assert seen["apart"] == [[1, 1, 0, 0, 0]] * 2 + [[0, 0, 1, 1, 0]] * 3
    queries, words = [[1, 1, 0, 0, 0]] * 2, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 0]]
    assert seen["captioning"] == queries + words


MASKS = ("apart", "together", "captioning")


def test_reading_and_writing_apart_is_the_equation_under_its_mask(model, given):
    image, tokens, padding, hides = given
    read = model.read(image, hides)
    for mask, past in (("apart", None), ("captioning", read)):
        whole = model(image, tokens, padding, image_padding=hides, mask=mask)
        torch.testing.assert_close(read.queries, whole.queries)
        written = model.write(tokens, padding, past)
        torch.testing.assert_close(written[padding], whole.text[padding])
    together = model(image, tokens, padding, image_padding=hides)
    assert (together.queries - read.queries).abs().max() > 0.1


@pytest.mark.parametrize("mask", MASKS)
def test_who_depends_on_what(model, given, mask):
    """By gradients: queries on words, words on the image, words on later words."""
    image, tokens, _, _ = given
    embedded = model.table(tokens).detach().requires_grad_()
    image = image.clone().requires_grad_()
    model.table.forward = lambda _: embedded
    out = model(image, tokens, mask=mask)

    def reaches(what: Tensor, source: Tensor) -> Tensor:
        """Which positions of the source have a gradient."""
        weights = torch.arange(1.0, 1 + what.shape[-1], dtype=what.dtype)
        (found,) = torch.autograd.grad(
            (what * weights).sum(), source, retain_graph=True, allow_unused=True
        )
        return torch.zeros(source.shape[1]) if found is None else (found.abs() > 1e-9).any(-1)[0]

    assert reaches(out.queries[0], image).all()
    assert reaches(out.queries[0], embedded).any() == (mask == "together")
    assert reaches(out.text[0], image).any() == (mask != "apart")
    of_third = reaches(out.text[0, 2], embedded)
    assert of_third[:3].all()
    assert of_third[3:].any() == (mask != "captioning")


def test_padding_changes_nothing_and_may_hold_anything(model, given):
    image, tokens, padding, hides = given
    alone = model(image[:1, :5], tokens[:1], image_padding=None)
    other = image.clone()
    other[0, 5:] = float("nan")
    both = model(other, tokens, padding, image_padding=hides)
    torch.testing.assert_close(both.queries[:1], alone.queries)
    shorter = model(image[1:], tokens[1:, :4])
    torch.testing.assert_close(both.text[1:, :4], shorter.text)
    wild = tokens.clone()
    wild[1, 4:] = 999
    assert torch.equal(model(other, wild, padding, image_padding=hides).queries, both.queries)


def test_images_are_read_in_every_other_layer_by_queries_alone(model, given):
    with attnlab.watch(model) as seen:
        model(*given[:2])
    found = {each.name: tuple(each.weights.shape[-2:]) for each in seen}
    assert found == {
        "layers.0.attention": (9, 9),
        "layers.0.cross": (3, 7),
        "layers.1.attention": (9, 9),
        "layers.2.attention": (9, 9),
        "layers.2.cross": (3, 7),
    }


def theirs(text: bool) -> tuple[Blip2QFormerModel, Blip2TextEmbeddings | None]:
    config = Blip2QFormerConfig(
        vocab_size=17, hidden_size=20, num_hidden_layers=3, num_attention_heads=5,
        intermediate_size=28, max_position_embeddings=13, encoder_hidden_size=11,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, use_qformer_text_input=text,
    )  # fmt: skip
    model = large(Blip2QFormerModel(config).double()).eval()
    return model, large(Blip2TextEmbeddings(config).double()) if text else None


@pytest.mark.parametrize("text", [False, True])
def test_values_and_gradients_are_those_of_transformers(text, given):
    image, tokens, padding, hides = given
    other, embeddings = theirs(text)
    queries = torch.randn(3, 20, generator=torch.Generator().manual_seed(2)).double()
    ours = from_transformers(other, queries, embeddings)
    assert not ours.training
    x, mask = queries.expand(2, -1, -1), torch.ones(2, 3, dtype=torch.bool)
    if text:  # its mask of the image has a row for each word too, which its attention refuses
        hides = None
        x, mask = embeddings(tokens, query_embeds=x), torch.cat([mask, padding], 1)
        found = ours(image, tokens, padding, image_padding=hides)
        mine = torch.cat([found.queries, found.text], 1)
    else:
        mine = ours.read(image, hides).queries
    wanted = other(
        x, query_length=3, attention_mask=mask, encoder_hidden_states=image,
        encoder_attention_mask=hides,
    ).last_hidden_state  # fmt: skip
    torch.testing.assert_close(mine[mask], wanted[mask])
    weights = torch.randn(mine[mask].shape, generator=torch.Generator().manual_seed(3)).double()
    for out in (mine, wanted):
        (out[mask] * weights).sum().backward()
    here = ours.layers[2].cross.heads.key.weight.grad
    there = other.encoder.layer[2].crossattention.attention.key.weight.grad
    assert here.abs().max() > 1e-6
    torch.testing.assert_close(here, there)
    here = ours.layers[0].feed.expand.weight.grad
    torch.testing.assert_close(here, other.encoder.layer[0].intermediate_query.dense.weight.grad)


def test_text_alone_is_that_of_transformers(given):
    _, tokens, padding, _ = given
    other, embeddings = theirs(text=True)
    ours = from_transformers(other, torch.zeros(3, 20).double(), embeddings)
    wanted = other(embeddings(tokens), query_length=0, attention_mask=padding).last_hidden_state
    torch.testing.assert_close(ours.write(tokens, padding)[padding], wanted[padding])


def test_the_printed_size():
    with torch.device("meta"):
        alone = QFormer()
    parameters = sum(p.numel() for p in alone.parameters())
    with torch.device("meta"):
        other = Blip2QFormerModel(Blip2QFormerConfig())
    assert parameters == sum(p.numel() for p in other.parameters()) + 32 * 768
    assert parameters == 105_162_240


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, g: m(*g[:2], mask="apar"), ValueError, "no mask 'apar'|mask .*'apart'"),
        (lambda m, g: m(g[0], g[1].repeat(1, 3)), ValueError, "18 tokens, more than max_len=13"),
        (lambda m, g: m(g[0], g[1] + 17), ValueError, "vocab is 17"),
        (lambda m, g: m(g[0][..., :5], g[1]), ValueError, "width 5"),
        (lambda m, g: m.read(g[0].float()), ValueError, "float32"),
        (lambda m, g: m(g[0][:1], g[1]), ValueError, "`tokens`.*b is 2, expected 1"),
        (lambda m, g: QFormer(QFormerOptions(**SIZES)).write(g[1]), ValueError, "has no words"),
        (lambda m, g: QFormerOptions(queries=0), ValueError, "queries should be at least 1"),
        (lambda m, g: from_transformers(m, g[0]), TypeError, "takes a Blip2QFormerModel"),
        (
            lambda m, g: from_transformers(theirs(True)[0], g[0][0]),
            ValueError,
            "reads words: give their embeddings",
        ),
    ],
)
def test_what_does_not_fit_is_refused(model, given, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(model, given)
