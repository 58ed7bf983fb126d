import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.number_words import END, START, NumberWords, words

BY_HAND = {
    0: "zero",
    7: "seven",
    13: "thirteen",
    20: "twenty",
    45: "forty five",
    100: "one hundred",
    407: "four hundred and seven",
    990: "nine hundred and ninety",
    1000: "one thousand",
    1001: "one thousand and one",
    2300: "two thousand three hundred",
    6013: "six thousand and thirteen",
    7373: "seven thousand three hundred and seventy three",
}


@pytest.mark.parametrize(("number", "name"), BY_HAND.items())
def test_names_by_hand(number, name):
    assert words(number) == name.split()


def test_every_number_has_its_own_name():
    assert len({tuple(words(number)) for number in range(10_000)}) == 10_000


def test_a_row_by_hand():
    task = NumberWords()
    batch = task.of([407, 7])
    assert batch.source.tolist() == [[4, 0, 7, 0], [7, 0, 0, 0]]
    assert batch.source_padding.tolist() == [[True, True, True, False], [True, False, False, False]]
    read = [task.tokens(row) for row in batch.inputs]
    answered = [task.tokens(row) for row in batch.targets]
    said = ["four", "hundred", "and", "seven"]
    assert read == [["start", *said, *["end"] * 3], ["start", "seven", *["end"] * 6]]
    assert answered == [[*said, "end", *[""] * 3], ["seven", "end", *[""] * 6]]
    assert batch.padding.tolist() == [[True] * 5 + [False] * 3, [True] * 2 + [False] * 6]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_batches_hold_the_names_of_their_digits(split):
    task = NumberWords(digits=3)
    batch = task.batch(split, 211, seed=0)
    known, counts = set(task.numbers(split)), set()
    for source, real, inputs, targets in zip(
        batch.source, batch.source_padding, batch.inputs, batch.targets, strict=True
    ):
        digits = source[real].tolist()
        number = int("".join(map(str, digits)))
        assert len(digits) == len(str(number))
        assert number in known
        assert task.sentence(inputs) == task.sentence(targets) == " ".join(words(number))
        assert targets[targets != UNSCORED][-1] == END
        assert inputs[0] == START
        counts.add(len(digits))
    assert counts == {1, 2, 3}


def test_the_splits_hold_every_number_once():
    task = NumberWords()
    train, validation = task.numbers("train"), task.numbers("validation")
    assert sorted(train + validation) == list(range(10_000))
    assert 1000 < len(validation) < 1500


def test_the_longest_name_fills_the_row():
    for digits in (3, 4):
        task = NumberWords(digits=digits)
        longest = max(len(words(number)) for number in range(10**digits))
        assert task.length == longest + 1


def test_an_example_is_said_in_words():
    found = NumberWords().example()
    digits = "".join(found.source)
    said = " ".join(words(int(digits)))
    assert found.description == f"{digits} is to be written in words: {said}."


def test_a_sentence_ends_at_the_first_end():
    task = NumberWords()
    row = task.of([20]).inputs[0]
    assert task.sentence(torch.cat([row, row])) == "twenty"
    assert task.sentence([START, *task.of([13]).targets[0, :1].tolist()]) == "thirteen"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: NumberWords(digits=2), "digits should be at least 3, got 2"),
        (lambda: NumberWords(digits=5), "digits should be 3 or 4, got 5"),
        (lambda: NumberWords().of([]), "one or more from 0 to 9999"),
        (lambda: NumberWords(digits=3).of([1000]), "one or more from 0 to 999"),
        (lambda: NumberWords().numbers("test"), "no split 'test'"),
        (lambda: words(10_000), "at most 9,999"),
        (lambda: words(-1), "at least 0"),
    ],
)
def test_what_has_no_name_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
