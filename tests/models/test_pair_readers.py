"""A question and a text, read together and apart."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.models.pair_readers import PairReader, TwoEncoders, in_both
from attnlab.structures.text_pairs import TextPairs

SIZES = {"dim": 12, "heads": 2, "layers": 1, "max_len": 11}


def encoder(classes: int = 5) -> attnlab.TinyTransformer:
    return attnlab.TinyTransformer(17, kind="classifier", classes=classes, **SIZES)


def test_marks_are_at_words_of_both() -> None:
    tokens = torch.tensor([[3, 4, 4, 3, 5, 0, 0], [6, 7, 0, 8, 9, 7, 0]])
    pairs = TextPairs.of([3, 2], [2, 3], length=7)
    wanted = [[1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
    assert in_both(tokens, pairs).int().tolist() == wanted


@pytest.mark.parametrize("marks", [True, False])
def test_a_pair_is_read_alone_whatever_stands_beside_it(marks: bool) -> None:
    torch.manual_seed(0)
    model = PairReader(17, dim=12, heads=2, max_len=11, marks=marks)
    tokens, pairs = torch.randint(17, (3, 7)), TextPairs.of([3, 1, 2], [2, 5, 3], length=7)
    out = model(tokens, pairs.padding, structure=pairs)
    for row, (asked, text) in enumerate(((3, 2), (1, 5), (2, 3))):
        alone = tokens[row : row + 1, : asked + text]
        found = model(alone, structure=TextPairs.of([asked], [text]))
        torch.testing.assert_close(found, out[row : row + 1])
    moved = model(tokens, structure=TextPairs.of([2, 1, 2], [3, 5, 3], length=7))
    assert (moved[0] != out[0]).any()
    assert torch.equal(moved[1:], out[1:])


def test_only_with_marks_unknown_words_matter_by_being_equal() -> None:
    """Words whose vectors are equal: a model tells pairs apart by their marks alone."""
    pairs = TextPairs.of([2, 2], [2, 2])
    tokens = torch.tensor([[3, 4, 3, 4], [3, 4, 5, 6]])
    for marks in (True, False):
        model = PairReader(17, dim=12, heads=2, marks=marks)
        model.words.weight.data[:] = model.words.weight.data[0]
        out = model(tokens, structure=pairs)
        assert torch.allclose(out[0], out[1], atol=1e-5) == (not marks)


def test_logits_are_those_of_each_text_alone() -> None:
    """From stored vectors of the texts, and one question after the other without padding."""
    torch.manual_seed(0)
    model = TwoEncoders(encoder(), encoder())
    tokens, pairs = torch.randint(17, (3, 7)), TextPairs.of([3, 1, 2], [2, 5, 3], length=7)
    out = model(tokens, structure=pairs)
    assert torch.equal(out, model(tokens, pairs.padding, structure=pairs))
    for row, (asked, text) in enumerate(((3, 2), (1, 5), (2, 3))):
        a = model.question(tokens[row : row + 1, :asked])
        b = model.text(tokens[row : row + 1, asked : asked + text])
        features = torch.cat([a, b, a * b, (a - b) ** 2], 1)
        torch.testing.assert_close(out[row : row + 1], model.output(features))
        torch.testing.assert_close(model.compared(a, b), model.output(features))


@pytest.mark.parametrize("apart", [True, False])
def test_every_parameter_learns(apart: bool) -> None:
    model = TwoEncoders(encoder(), encoder()) if apart else PairReader(17, dim=12, heads=2)
    pairs = TextPairs.of([3, 1], [2, 5], length=7)
    out = model(torch.tensor([[1, 2, 3, 4, 3, 5, 6], [2, 7, 8, 2, 4, 3, 5]]), structure=pairs)
    nn.functional.cross_entropy(out, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None and (p.grad != 0).any() for p in model.parameters())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"equally many classes, .* got classes=5 and classes=7"):
        TwoEncoders(encoder(5), encoder(7))
    writer = attnlab.TinyTransformer(17, **SIZES)
    with pytest.raises(ValueError, match=r"should be classifiers .* got classes=None"):
        TwoEncoders(writer, writer)
    with pytest.raises(ValueError, match=r"missing: give structure=TextPairs\.of"):
        TwoEncoders(encoder(), encoder())(torch.zeros(2, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="has 7 tokens, but the model was built with max_len=5"):
        PairReader(17, max_len=5)(
            torch.zeros(1, 7, dtype=torch.long), structure=TextPairs.of([3], [4])
        )
