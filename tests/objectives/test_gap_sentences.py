"""Sentences that are taken out: which, and what stands in their place."""

from collections import Counter

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.gap_sentences import GapSentencesOptions, Ids, _chosen
from attnlab.objectives.rouge import principal, rouge_1, word_counts
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, STOP = 13, 0
# 1 2 3 . | 4 5 . | 1 4 6 . | 7 8 9 10 . | 1 2 4 .
TEXT = [1, 2, 3, 0, 4, 5, 0, 1, 4, 6, 0, 7, 8, 9, 10, 0, 1, 2, 4, 0]


def asked(text=TEXT, padding=None, **options):
    objective = attnlab.build("gap_sentences", vocab=VOCAB, **{"ends": (STOP,), **options})
    inputs = torch.tensor([text])
    with record() as notes:
        found = objective.prepare(Batch(inputs, inputs, padding), torch.Generator().manual_seed(0))
    return found, notes.last("hidden")[0]


def written(found) -> tuple[list[int], list[int]]:
    target = found.targets[0]
    return found.source[0][found.source_padding[0]].tolist(), target[target != UNSCORED].tolist()


def test_the_sentence_with_most_words_in_common_with_the_rest_is_missing() -> None:
    """1, 2, 4 and the stop of the last one stand elsewhere, too: four words; 1, 2 and the stop of
    the first, three, as many as of the third, which comes later."""
    ids = Ids.of(VOCAB)
    source, target = written(asked(rate=0.2)[0])
    assert target == [1, 2, 4, STOP, ids.end]
    assert source == [*TEXT[:16], ids.mask, ids.end]
    source, target = written(asked(rate=0.4)[0])
    assert target == [1, 2, 3, STOP, 1, 2, 4, STOP, ids.end]  # in the order of the text
    assert source == [ids.mask, *TEXT[4:16], ids.mask, ids.end]


def test_the_decoder_reads_what_it_has_written() -> None:
    found, _ = asked(rate=0.4)
    ids = Ids.of(VOCAB)
    assert found.inputs[0].tolist() == [ids.start, 1, 2, 3, STOP, 1, 2, 4, STOP]


def test_one_after_the_other_avoids_what_is_taken_already() -> None:
    """The first two sentences are the same: either is the best; both together leave out what made
    them good, and the third is better beside the first."""
    text = [1, 2, 3, 0, 1, 2, 3, 0, 4, 5, 0, 4, 6, 0, 7, 8, 0]
    alone, together = (
        asked(text, rate=0.4, sequential=sequential)[1].nonzero()[:, 0].tolist()
        for sequential in (False, True)
    )
    assert alone == [*range(8)]
    assert together == [0, 1, 2, 3, 8, 9, 10]


def test_no_sentence_is_taken_twice() -> None:
    """Sentences without a common word are all as good as each other."""
    hidden = asked([1, 2, 3, 4, 5, 6, 7, 8], ends=(), length=2, rate=0.75, sequential=True)[1]
    assert hidden.tolist() == [True] * 6 + [False] * 2


def test_words_that_count_once() -> None:
    """A sentence that repeats one word has three times that word in common, or one word."""
    text = [1, 1, 1, 0, 2, 3, 0, 1, 1, 1, 9, 0, 2, 3, 8, 7, 0]
    for unique, expected in ((False, [0, 1, 2, 3]), (True, [4, 5, 6])):
        assert asked(text, rate=0.25, unique=unique)[1].nonzero()[:, 0].tolist() == expected


def test_rouge_by_hand() -> None:
    one, other = Counter([1, 1, 2]), Counter([1, 2, 2, 3])
    assert rouge_1(one, other, False) == pytest.approx(2 * 2 / 7)
    assert rouge_1(one, other, True) == pytest.approx(2 * 2 / 5)
    assert rouge_1(Counter(), other, True) == 0


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("unique", [False, True])
def test_the_vectorised_choice_is_that_of_the_equation(sequential, unique) -> None:
    """In long random texts, word by word."""
    torch.manual_seed(0)
    tokens = torch.randint(1, 30, (11, 70))
    options = GapSentencesOptions(length=7, sequential=sequential, unique=unique)
    sentence = torch.arange(70).expand(11, -1) // 7
    counts = word_counts(tokens, torch.ones(11, 70, dtype=torch.bool), sentence)
    found = principal(
        counts, torch.full((11,), 4), sequential=options.sequential, unique=options.unique
    )
    for row in range(11):
        sentences = tokens[row].view(10, 7).tolist()
        assert {*found[row].nonzero()[:, 0].tolist()} == _chosen(sentences, 4, [], options)


def test_controls_take_the_first_or_any() -> None:
    assert asked(choose="lead", rate=0.4)[1].nonzero()[:, 0].tolist() == [*range(7)]
    objective = attnlab.build("gap_sentences", vocab=VOCAB, choose="random", length=2, rate=0.25)
    inputs = torch.arange(8).expand(400, -1)
    with record() as notes:
        objective.prepare(Batch(inputs, inputs), torch.Generator().manual_seed(0))
    gone = notes.last("hidden")[:, ::2]
    assert (gone.sum(-1) == 1).all()
    assert (gone.sum(0) - 100).abs().max() < 44  # five standard deviations of a binomial


def test_a_text_of_one_sentence_is_not_scored() -> None:
    found, hidden = asked([1, 2, 3, 4, 0])
    assert not hidden.any()
    assert (found.targets == UNSCORED).all()
    padding = torch.tensor([[True] * 4 + [False] * 16])
    assert not asked(padding=padding)[1].any()


def test_a_text_ends_without_an_end() -> None:
    found, _ = asked([1, 2, 0, 5, 6], rate=0.5)
    assert sorted(written(found)[1]) == sorted([1, 2, 0, VOCAB + 1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ends": (1,), "length": 4}, "give ends=.1,. or length=4"),
        ({"choose": "lead", "sequential": True}, "sequential=True says how principal"),
        ({"choose": "random", "unique": True}, "unique=True says how principal"),
        ({"rate": -0.1}, "rate should be a share"),
    ],
)
def test_options_that_do_not_go_together(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        attnlab.build("gap_sentences", vocab=VOCAB, **options)


def test_fit_trains_an_encoder_decoder_by_it() -> None:
    problem = task("copying", symbols=5, items=6)
    torch.manual_seed(0)
    options = model_options(problem, "gap_sentences")
    assert (options["kind"], options["vocab"]) == ("encoder_decoder", problem.vocab + 3)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    before = evaluate(model, problem, objective="pegasus").loss
    fit(model, problem, 30, batch_size=16, learning_rate=1e-2, objective="pegasus", progress=False)
    assert evaluate(model, problem, objective="pegasus").loss < 0.9 * before
