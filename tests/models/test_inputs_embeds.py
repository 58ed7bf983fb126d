"""Vectors in the place of tokens: the same values, positions, padding, gradients and maps."""

import re

import pytest
import torch

import attnlab
from attnlab.core.visibility import Visibility
from attnlab.lens.sources.inputs import inputs_of
from attnlab.models.tiny import TinyTransformer

KINDS = ("language_model", "classifier", "token_classifier", "encoder_decoder")


def both_ways(model, tokens, source, **options):
    """What the model gives for tokens, and for the vectors of the same tokens."""
    vectors = model.embedding(tokens)
    if model.kind == "encoder_decoder":
        by_source = {"source_embeds": model.embedding(source)}
        by_vectors = model(inputs_embeds=vectors, **by_source, **options)
        return model(tokens, source=source, **options), by_vectors
    return model(tokens, **options), model(inputs_embeds=vectors, **options)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope", "alibi", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_tokens_are_read_as_the_tokens_are(make, tokens, source, kind, positions):
    by_tokens, by_vectors = both_ways(make(kind, positions=positions), tokens, source)
    assert torch.equal(by_tokens, by_vectors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_takes_no_position_and_may_hold_anything(make, tokens, source, kind, side):
    model = make(kind).double()
    real = torch.arange(11) < 7 if side == "right" else torch.arange(11) >= 4
    padding = real.expand(3, 11)
    vectors = model.embedding(tokens)
    filled = vectors.masked_fill(~padding[..., None], torch.nan)
    given = {"source": source} if kind == "encoder_decoder" else {}
    padded = model(inputs_embeds=filled, padding=padding, **given)
    padded = padded if kind == "classifier" else padded[:, real]
    torch.testing.assert_close(padded, model(inputs_embeds=vectors[:, real], **given))
    padded.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_padding_of_vectors_of_the_source(make, tokens, source):
    model = make("encoder_decoder").double()
    padding = (torch.arange(17) < 13).expand(3, 17)
    vectors = model.embedding(source)
    filled = vectors.masked_fill(~padding[..., None], torch.nan)
    padded = model(tokens, source_embeds=filled, source_padding=padding)
    torch.testing.assert_close(padded, model(tokens, source_embeds=vectors[:, :13]))


def test_encode_decode_and_both_ways_to_step(make, tokens, source):
    pair, writer = make("encoder_decoder"), make()
    memory = pair.encode(inputs_embeds=pair.embedding(source))
    assert torch.equal(memory, pair.encode(source))
    vectors = pair.embedding(tokens)
    assert torch.equal(
        pair.decode(inputs_embeds=vectors, memory=memory), pair.decode(tokens, memory=memory)
    )
    vectors = writer.embedding(tokens)
    all_at_once = writer(tokens)
    _, state = writer.advance(inputs_embeds=vectors[:, :5])  # vectors first, then tokens
    logits, state = writer.step(tokens[:, 5:9], state)
    torch.testing.assert_close(logits, all_at_once[:, 8])
    logits, state = writer.step(None, state, inputs_embeds=vectors[:, 9:])
    torch.testing.assert_close(logits, all_at_once[:, 10])
    assert state.position == 11


def test_a_model_of_features_takes_vectors_behind_its_map(make):
    model = make("classifier", features=5, classes=7)
    x = torch.randn(3, 11, 5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(model(x), model(inputs_embeds=model.embedding(x)))


def test_who_sees_whom_is_told_beside_vectors(make, tokens):
    model = make("token_classifier")
    seen = Visibility(torch.rand(3, 11, 11, generator=torch.Generator().manual_seed(4)) < 0.6)
    by_tokens, by_vectors = both_ways(model, tokens, None, structure=seen)
    assert torch.equal(by_tokens, by_vectors)
    assert not torch.allclose(by_tokens, model(tokens), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_vector_and_no_weight_that_is_frozen(make, tokens, source, kind):
    """Through a frozen model, as a picture's vectors are learned in front of a language model."""
    model = make(kind).requires_grad_(False)
    vectors = model.embedding(tokens).clone().requires_grad_()
    given = {"source": source} if kind == "encoder_decoder" else {}
    model(inputs_embeds=vectors, **given).square().sum().backward()
    assert vectors.grad is not None
    assert (vectors.grad != 0).any(-1).all()
    assert all(each.grad is None for each in model.parameters())


def test_the_gradient_is_that_of_a_difference(make, tokens):
    model = make().double()
    vectors = model.embedding(tokens[:1, :3]).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model(inputs_embeds=x), (vectors,))


@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
def test_what_is_watched_is_the_same(make, tokens, source, kind):
    model = make(kind)
    of_tokens = {"source": source} if kind == "encoder_decoder" else {}
    of_vectors = {"source_embeds": model.embedding(source)} if of_tokens else {}
    with attnlab.watch(model) as by_tokens:
        model(tokens, **of_tokens)
    with attnlab.watch(model) as by_vectors:
        model(inputs_embeds=model.embedding(tokens), **of_vectors)
    assert len(by_tokens) == len(by_vectors) > 0
    for one, other in zip(by_tokens, by_vectors, strict=True):
        assert one.name == other.name
        assert torch.equal(one.weights, other.weights)


def test_a_tensor_of_vectors_is_recognised_when_a_model_is_looked_into(make, tokens, source):
    model, pair = make(), make("encoder_decoder")
    vectors = model.embedding(tokens)
    assert list(inputs_of(model, vectors, None, None, None).named) == ["inputs_embeds"]
    found = inputs_of(pair, {"source_embeds": vectors, "inputs_embeds": vectors}, None, None, None)
    found.run(pair)
    assert list(inputs_of(pair, vectors, None, tokens, None).named) == ["source_embeds", "tokens"]
    with pytest.raises(ValueError, match="goes on writing tokens, and `inputs` holds vectors"):
        inputs_of(model, vectors, None, None, 3)


def test_other_dtypes_are_read_in_the_model_s(make, tokens):
    model = make()
    vectors = model.embedding(tokens)
    torch.testing.assert_close(model(inputs_embeds=vectors.double()), model(tokens))


def test_a_compiled_model_reads_vectors(make, tokens):
    model = make()
    vectors = model.embedding(tokens).detach()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs_embeds=vectors), model(tokens))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x[0], r"inputs_embeds should be float vectors of shape \(b, n, dim=12\), as"),
        (lambda x: x[..., :7], r"got torch.float32 of shape \(3, 11, 7\)"),
        (lambda x: x.long(), r"got torch.int64 of shape \(3, 11, 12\)"),
        (lambda x: x.to(torch.complex64), "inputs_embeds should be float vectors"),
        (lambda x: x[:, :0], r"the sequence is empty \(n = 0\)"),
        (lambda x: x.repeat(1, 3, 1), "33 positions, more than the model's max_len=23"),
        (lambda x: x.to("meta"), "inputs_embeds is on meta but the model is on cpu"),
    ],
)
def test_vectors_that_do_not_fit(make, tokens, change, sentence):
    model = make()
    with pytest.raises(ValueError, match=sentence):
        model(inputs_embeds=change(model.embedding(tokens)))


def test_calls_that_are_refused(make, tokens, source):
    model, pair = make(), make("encoder_decoder")
    vectors = model.embedding(tokens)
    with pytest.raises(ValueError, match=r"either tokens or inputs_embeds, .*; both are given"):
        model(tokens, inputs_embeds=vectors)
    with pytest.raises(ValueError, match=r"either tokens or inputs_embeds, .*; neither is given"):
        model()
    with pytest.raises(ValueError, match=r"either source or source_embeds, .*; both are given"):
        pair(tokens, source=source, source_embeds=vectors)
    with pytest.raises(ValueError, match=re.escape("source_embeds should be float vectors")):
        pair(tokens, source_embeds=tokens)
    with pytest.raises(ValueError, match="source is for kind='encoder_decoder'"):
        model(tokens, source_embeds=vectors)
    with pytest.raises(TypeError, match="inputs_embeds should be a tensor, got a list"):
        model(inputs_embeds=[1.0])
    with pytest.raises(ValueError, match="padding should be bool of shape"):
        model(inputs_embeds=vectors, padding=torch.ones(3, 5, dtype=torch.bool))
    complex_words = TinyTransformer(29, dim=12, heads=2, layers=1, positions="complex")
    with pytest.raises(ValueError, match="from the token and its position together"):
        complex_words(inputs_embeds=vectors)
