"""Several tasks as one: how often each is drawn, and how each becomes text."""

import math

import pytest
import torch

from attnlab.tasks import UNSCORED, task
from attnlab.tasks.mixture import Mixture, rates
from attnlab.tasks.sentences import Sentences

SORTING = task("sorting", items=4, symbols=6)
WORDS = task("number_words", digits=3)
VERBS = task("agreement", form="words", words=20, most=1)


def test_rates_are_those_of_the_examples_up_to_a_cap() -> None:
    assert rates([1, 3]) == (0.25, 0.75)
    assert rates([100, 300, 5], cap=100) == pytest.approx((100 / 205, 100 / 205, 5 / 205))
    assert rates([7, 900, 20], cap=7) == pytest.approx((1 / 3,) * 3)  # K is at most the smallest n
    assert rates([1, 16], temperature=2) == pytest.approx((1 / 5, 4 / 5))
    assert rates([1, 16], temperature=math.inf) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("ratio", "share"), [(0.0, None), (1.0, 1 / 2), (3.0, 3 / 4), (math.inf, 1.0)]
)
def test_r_rows_of_text_for_each_of_the_tasks(ratio, share) -> None:
    text = Sentences() if ratio else None
    problem = Mixture((SORTING, WORDS), sizes=(100, 300), text=text, ratio=ratio)
    assert sum(problem.rates.values()) == pytest.approx(1)
    assert problem.rates.get("sentences") == share
    assert problem.rates["sorting"] == pytest.approx((1 - (share or 0)) / 4)
    batch = problem.batch("train", 400, 1)
    of_text = (batch.targets[:, 0] != UNSCORED).float().mean()
    assert of_text == pytest.approx(share or 0, abs=0.125)  # five standard errors


def test_a_row_begins_with_the_name_of_its_task_and_the_answer_is_scored() -> None:
    problem = Mixture((SORTING, WORDS, VERBS))
    batch = problem.batch("train", 60, 0)
    assert batch.padding is not None
    seen = set()
    for inputs, targets, real in zip(batch.inputs, batch.targets, batch.padding, strict=True):
        read = problem.tokens(inputs[real])
        answer = [word for word in problem.tokens(targets) if word]
        seen.add(read[0])
        question = read[1 : read.index("|")]
        if read[0] == "sorting:":
            assert answer == sorted(question)
        elif read[0] == "agreement:":
            assert answer in (["singular"], ["plural"])
            assert "?" in question
        else:
            assert read[0] == "number_words:"
            assert (
                answer
                == task("number_words").tokens(WORDS.of([int("".join(question))]).targets[0])[
                    : len(answer)
                ]
            )
            assert "end" not in answer
        asked = (targets[:-1] != UNSCORED) & real[1:]
        assert torch.equal(inputs[1:][asked], targets[:-1][asked])
    assert seen == {"sorting:", "number_words:", "agreement:"}


def test_two_mixtures_may_share_their_words() -> None:
    every = Mixture((SORTING, WORDS, VERBS))
    one = Mixture((VERBS,), vocabulary=every.words)
    assert one.vocab == every.vocab
    assert every.tokens(one.batch("train", 1, 0).inputs[0])[0] == "agreement:"
    with pytest.raises(ValueError, match="vocabulary lacks words of the tasks"):
        Mixture((VERBS,), vocabulary=Mixture((SORTING,)).words)
    assert every.tokens(every.encode("sorting: b a |")) == ["sorting:", "b", "a", "|"]
    with pytest.raises(ValueError, match="have no word 'xyz'"):
        every.encode("xyz")


def test_equal_arguments_give_equal_rows_that_fit_the_stated_length() -> None:
    problem = Mixture((SORTING, WORDS, VERBS), text=Sentences(), ratio=1.0)
    one, other = (problem.batch("train", 50, 3) for _ in range(2))
    assert torch.equal(one.inputs, other.inputs)
    assert not torch.equal(one.inputs[:, :5], problem.batch("train", 50, 4).inputs[:, :5])
    assert one.inputs.shape[1] <= problem.length
    assert hash(problem) == hash(Mixture((SORTING, WORDS, VERBS), text=Sentences(), ratio=1.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mixture(()), "one task or more"),
        (lambda: Mixture((SORTING, SORTING)), "the name of a task is what tells it apart"),
        (lambda: Mixture((SORTING,), text=SORTING, ratio=1.0), "the name of a task is what tells"),
        (lambda: Mixture((SORTING,), sizes=(1, 2)), "1 tasks need as many sizes, got 2"),
        (lambda: Mixture((SORTING,), ratio=1.0), "give both, or leave both out"),
        (lambda: Mixture((SORTING,), text=Sentences()), "give both, or leave both out"),
        (lambda: Mixture((SORTING,), text=Sentences(), ratio=-1.0), "ratio should be 0 or more"),
        (lambda: rates([1, 0]), "each more than 0"),
        (lambda: rates([]), "each more than 0"),
        (lambda: rates([1], cap=0), "cap should be more than 0"),
        (lambda: rates([1], temperature=math.nan), "temperature should be more than 0"),
    ],
)
def test_mixtures_that_make_no_sense(make, words) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_task_without_words_cannot_be_written_as_text() -> None:
    with pytest.raises(TypeError, match=r"each needs tokens\(ids\)"):
        Mixture((task("set_maximum"),))
