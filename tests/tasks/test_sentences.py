"""Sentences without labels."""

import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.sentences import Sentences, corpus


def test_every_next_word_is_asked_and_padding_is_not() -> None:
    problem = Sentences(words=12)
    batch = problem.batch("train", 40, 0)
    assert batch.padding is not None
    assert torch.equal(batch.targets != UNSCORED, batch.padding)
    row = batch.inputs[0][batch.padding[0]]
    sentence = [int(row[0]), *batch.targets[0][batch.padding[0]].tolist()]
    assert tuple(sentence) in corpus(12, "train")
    assert max(map(len, corpus(12, "train"))) <= 12


def test_it_is_a_fixed_corpus_of_different_sentences() -> None:
    train, validation = (corpus(16, split) for split in ("train", "validation"))
    assert not {*train} & {*validation}
    assert len({*train}) == len(train) > 2000
    assert 0.08 < len(validation) / len(train) < 0.22


def test_words_are_encoded_and_unknown_ones_refused() -> None:
    problem = Sentences()
    assert problem.tokens(problem.encode("the dog barks")) == ["the", "dog", "barks"]
    with pytest.raises(ValueError, match="no word 'dig'"):
        problem.encode("the dig")
    with pytest.raises(ValueError, match="words should be at least 6"):
        Sentences(words=3)
