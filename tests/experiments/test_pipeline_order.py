"""Pipeline order: what three trainings have learned, and that questions are about their text."""

import torch

from attnlab.experiments import pipeline_order, stored
from attnlab.tasks.asked_spans import SENTENCES
from attnlab.tasks.sentences import Sentences, corpus


def test_sentences_are_read_whole() -> None:
    batch = pipeline_order.TASK.batch("train", 7, seed=1)
    assert batch.padding is not None
    known = set(corpus(pipeline_order.WORDS, "train"))
    for row, target, real in zip(batch.inputs, batch.targets, batch.padding, strict=True):
        assert tuple(row[real].tolist()) in known
        assert torch.equal(target[real], row[real])
        assert (target[~real] == -100).all()


def test_no_sentence_that_is_asked_about_has_been_trained_on() -> None:
    known = set(corpus(pipeline_order.WORDS, "train"))
    asked = pipeline_order.asked_texts("validation", 0, quick=True)
    own = {tuple(row[real].tolist()) for row, real in zip(asked.tokens, asked.padding, strict=True)}
    assert len(own) > 100
    assert not own & known


def test_tokens_are_those_of_the_training() -> None:
    asked = pipeline_order.asked_texts("train", 0, quick=True)
    words = Sentences(pipeline_order.WORDS)
    text = " ".join(words.tokens(asked.tokens[0][asked.padding[0]]))
    assert torch.equal(words.encode(text), asked.tokens[0][asked.padding[0]])


def test_padding_has_no_influence_on_the_states() -> None:
    model = pipeline_order.GRID.build(pipeline_order.ARM).eval()
    asked = pipeline_order.asked_texts("train", 0, quick=True)
    short = int(asked.padding.sum(1).argmin())
    n = int(asked.padding[short].sum())
    alone = asked._replace(
        tokens=asked.tokens[short : short + 1, :n], padding=asked.padding[short : short + 1, :n]
    )
    whole = pipeline_order.states_of(model, asked)[:, short, :n]
    assert torch.allclose(pipeline_order.states_of(model, alone)[:, 0], whole, atol=1e-5)


def test_each_training_is_stored_with_what_it_has_learned() -> None:
    rows = stored("68_pipeline_order.json", "pipeline_order")
    found = pipeline_order.found(rows)
    assert list(found) == list(SENTENCES)
    for seed in (0, 1, 2):
        named = "hidden words named"
        learned = rows[f"{named}, {pipeline_order.ARM}, seed {seed}"]
        assert learned > 10 * rows[f"{named}, random weights, {pipeline_order.ARM}, seed {seed}"]
    curves = [tuple(known.trained.right.tolist()) for known in found["subject"]]
    assert len(set(curves)) == 3, "three trainings give three curves"
