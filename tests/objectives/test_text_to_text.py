"""Questions that are answered and texts that are restored, in one batch."""

import math

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.spans import Ids, SpanOptions
from attnlab.tasks import Batch, task
from attnlab.tasks.mixture import Mixture
from attnlab.tasks.sentences import Sentences
from attnlab.train import evaluate, fit, model_options

VOCAB = 11
IDS = Ids.of(VOCAB, SpanOptions())


def prepared(inputs, targets, padding=None, **options):
    objective = attnlab.build("text_to_text", vocab=VOCAB, **options)
    batch = Batch(torch.tensor(inputs), torch.tensor(targets), padding)
    with record() as notes:
        asked = objective.prepare(batch, torch.Generator().manual_seed(0))
    return asked, notes


def rows(asked) -> list[tuple[list[int], list[int]]]:
    return [
        (asked.source[i][asked.source_padding[i]].tolist(), [x for x in own if x != UNSCORED])
        for i, own in enumerate(asked.targets.tolist())
    ]


def test_a_question_is_read_and_its_answer_written() -> None:
    u = UNSCORED
    asked, notes = prepared([[7, 3, 1, 9, 1], [7, 5, 9, 5, 0]], [[u, u, u, 1, 3], [u, u, 5, u, u]])
    assert rows(asked) == [
        ([7, 3, 1, 9, IDS.end], [1, 3, IDS.end]),
        ([7, 5, 9, IDS.end], [5, IDS.end]),
    ]
    assert asked.inputs[0].tolist() == [IDS.start, 1, 3]
    assert notes.last("answered").all()
    assert not notes.last("hidden").any()


def test_a_text_has_spans_cut_out_and_a_question_beside_it_has_none() -> None:
    u, text = UNSCORED, [1, 2, 3, 4, 5, 6, 7, 8]
    asked, notes = prepared(
        [text[:-1], [9, 4, 9, 4, 0, 0, 0]], [text[1:], [u, u, 4, u, u, u, u]], rate=0.4, span=3
    )
    assert notes.last("answered").tolist() == [False, True]
    assert notes.last("hidden").sum(-1).tolist() == [3, 0]
    (source, target), answered = rows(asked)
    cut = [x for x in target if x < VOCAB]
    assert sorted([x for x in source if x < VOCAB] + cut) == text
    assert source[-1] == target[-1] == IDS.end
    assert answered == ([9, 4, 9, IDS.end], [4, IDS.end])


def test_a_row_of_which_nothing_is_scored_is_read_and_not_answered() -> None:
    asked, _ = prepared(
        [[1, 2, 3], [0, 0, 0]], [[UNSCORED] * 3] * 2, torch.tensor([[True] * 3, [False] * 3])
    )
    assert rows(asked) == [([1, 2, 3], []), ([], [])]


def test_two_answers_in_a_row_are_refused() -> None:
    u = UNSCORED
    for targets in ([[u, 1, u, 2]], [[1, u, u, 2]]):
        with pytest.raises(ValueError, match="scored places that are apart"):
            prepared([[1, 2, 3, 4]], targets)


def test_targets_that_are_no_tokens_of_the_text_are_refused() -> None:
    for wrong in (VOCAB, -3):
        with pytest.raises(ValueError, match=f"a target of the task is {wrong}"):
            prepared([[1, 2]], [[UNSCORED, wrong]])


def test_a_batch_of_a_mixture_has_both() -> None:
    problem = Mixture(
        (task("sorting", items=4, symbols=6), task("number_words", digits=3)),
        text=Sentences(),
        ratio=1.0,
    )
    objective = attnlab.build("text_to_text", vocab=problem.vocab)
    with record() as notes:
        asked = objective.prepare(problem.batch("train", 200, 0), torch.Generator().manual_seed(0))
    answered = notes.last("answered")
    assert answered.float().mean() == pytest.approx(0.5, abs=0.18)  # five standard errors
    words = [
        [problem.words[x] for x in row.tolist() if 0 <= x < problem.vocab] for row in asked.source
    ]
    assert all(
        (own[0] in ("sorting:", "number_words:")) == bool(a)
        for own, a in zip(words, answered, strict=True)
    )


def test_fit_trains_one_model_on_several_tasks() -> None:
    problem = Mixture((task("sorting", items=3, symbols=10), task("copying", items=3, symbols=10)))
    torch.manual_seed(0)
    options = model_options(problem, "text_to_text")
    assert (options["kind"], options["vocab"]) == ("encoder_decoder", problem.vocab + 102)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    before = evaluate(model, problem, objective="ext5").loss
    assert before == pytest.approx(math.log(options["vocab"]), abs=0.6)
    fit(model, problem, 40, batch_size=16, learning_rate=1e-2, objective="ext5", progress=False)
    assert evaluate(model, problem, objective="ext5").loss < 0.7 * before
