"""A pretrained encoder, tuned on a task in a second call."""

from itertools import pairwise

import pytest
import torch

import attnlab
from attnlab.models.heads import OneLayerDecoder, with_head
from attnlab.tasks import task
from attnlab.tasks.sentences import Sentences
from attnlab.train import fine_tune, fit, model_options
from attnlab.train.fine_tuning import Labelled
from attnlab.train.optimizer import learning_rate

VERBS = task("agreement", form="words", words=20, most=1)
SIZES = {"dim": 16, "heads": 2, "layers": 1, "max_len": 24}


def encoder(kind: str = "token_classifier", **options):
    torch.manual_seed(0)
    own = {"classes": 200} if kind == "token_classifier" else {}
    return attnlab.TinyTransformer(200, kind=kind, **own, **SIZES, **options)


def tokens():
    torch.manual_seed(1)
    return torch.randint(1, 200, (3, 7)), torch.arange(7) < torch.tensor([[7], [5], [2]])


def test_two_calls_pretrain_and_tune() -> None:
    text = Sentences()
    torch.manual_seed(0)
    options = model_options(text, "masked_lm") | SIZES | {"vocab": 200, "classes": 200}
    model = attnlab.TinyTransformer(**options)
    fit(model, text, 5, objective="masked_lm", progress=False)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    tuned, history = fine_tune(model, VERBS, examples=32, epochs=2, progress=False)
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())
    assert len(history.rows) == 4  # 32 examples, twice, 16 at a time
    assert tuned.config["classes"] == 2
    assert tuned(VERBS.batch("validation", 3, 0).inputs).shape == (3, 2)
    again, _ = fine_tune(model, VERBS, examples=32, epochs=2, progress=False)
    assert all(
        torch.equal(a, b) for a, b in zip(tuned.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.parametrize("kind", ["token_classifier", "encoder_decoder"])
@pytest.mark.parametrize("head", ["mean", "decoder"])
def test_a_new_head_keeps_what_the_encoder_computes(kind, head) -> None:
    model = encoder(kind)
    inputs, padding = tokens()
    made = with_head(model, "classifier", 5, head=head)
    own = made.body if head == "decoder" else made
    assert torch.equal(own.encode(inputs, padding), model.encode(inputs, padding))
    assert made(inputs, padding).shape == (3, 5)
    for parameter in made.parameters():  # nothing is shared with the pretrained model
        assert all(parameter is not other for other in model.parameters())
    changed = inputs.masked_fill(~padding, 3)
    torch.testing.assert_close(made(changed, padding), made(inputs, padding))
    made(inputs, padding).sum().backward()
    assert all(p.grad is not None for p in made.parameters())


@pytest.mark.parametrize("head", ["mean", "decoder"])
def test_a_new_head_keeps_the_precision_of_the_model(head) -> None:
    model, (inputs, padding) = encoder().double(), tokens()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-12)  # which float32 does not hold
    made = with_head(model, "classifier", 5, head=head)
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float64}
    own = made.body if head == "decoder" else made
    assert torch.equal(own.encode(inputs, padding), model.encode(inputs, padding))


def test_the_decoder_layer_is_the_first_of_an_encoder_decoder() -> None:
    model = encoder("encoder_decoder")
    made = with_head(model, "classifier", 2, head="decoder")
    assert isinstance(made, OneLayerDecoder)
    assert len(made.decoder.blocks) == 1
    own, first = made.decoder.blocks[0].state_dict(), model.decoder.blocks[0].state_dict()
    assert all(torch.equal(own[name], first[name]) for name in first)


def test_the_answer_is_what_one_learned_vector_reads_of_the_text() -> None:
    """The layer by hand: the vector attends to itself alone, then to the encoded text."""
    made = with_head(encoder(), "classifier", 2, head="decoder").double()
    inputs, padding = tokens()
    memory = made.body.encode(inputs, padding)
    x = made.latents[:1].expand(3, -1, -1)
    expected = made.body.logits(made.decoder(x, None, memory, padding))[:, 0]
    torch.testing.assert_close(made(inputs, padding), expected)
    row = made(inputs[1:2, :5])  # without its padding
    torch.testing.assert_close(made(inputs, padding)[1:2], row)


def test_a_block_without_a_decoder_has_no_decoder_head() -> None:
    model = encoder(block="mobilebert")
    assert with_head(model, "classifier", 2).config["block"] == "mobilebert"
    with pytest.raises(ValueError, match="block='mobilebert' stands in models of kind"):
        with_head(model, "classifier", 2, head="decoder")


def test_one_vector_for_each_token_tags() -> None:
    made = with_head(encoder(), "token_classifier", 4, head="decoder")
    inputs, padding = tokens()
    assert made(inputs, padding).shape == (3, 7, 4)


def test_the_rate_climbs_and_falls_in_a_straight_line() -> None:
    rates = [learning_rate(step, 20, 1.0, 4, "linear") for step in range(1, 21)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    steps = [a - b for a, b in pairwise(rates[4:])]
    assert steps == pytest.approx([1 / 16] * 15)
    assert rates[-1] > 0
    assert learning_rate(12, 20, 1.0, 4) == pytest.approx(learning_rate(12, 20, 1.0, 4, "cosine"))


def test_there_are_only_so_many_examples() -> None:
    few = Labelled(VERBS, 5)
    known = {tuple(row) for row in few.batch("train", 200, 0).inputs.tolist()}
    assert len(known) == 5
    assert {tuple(row) for row in few.batch("train", 50, 9).inputs.tolist()} <= known
    assert len({tuple(row) for row in few.batch("validation", 50, 0).inputs.tolist()}) > 5
    assert few.classes == 2


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fine_tune(encoder("language_model"), VERBS), ValueError, "has no encoder to put"),
        (lambda: fine_tune(encoder(), task("copying")), ValueError, "train the model on with fit"),
        (lambda: fine_tune(encoder(), VERBS, head="max"), ValueError, "no head 'max'"),
        (lambda: fine_tune(encoder(), VERBS, steps=3), TypeError, "fine_tune decides steps itself"),
        (lambda: fine_tune(encoder(), VERBS, epochs=0), ValueError, "epochs"),
        (lambda: fine_tune(encoder(), task("listops")), ValueError, "pretrained model knows 24"),
        (lambda: fine_tune(torch.nn.Linear(2, 2), VERBS), TypeError, "should be a TinyTransformer"),
        (
            lambda: fit(encoder(), VERBS, 1, schedule="line"),
            ValueError,
            "schedule should be .cosine. or .linear., got",
        ),
    ],
)
def test_what_cannot_be_tuned(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()


def test_trees_are_tuned_as_words() -> None:
    with pytest.raises(ValueError, match="another form of it, such as form='words'"):
        Labelled(task("agreement"), 3).batch("train", 2, 0)
