import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from attnlab.tasks import UNSCORED, task
from attnlab.tasks.sequences import (
    display_names,
    draw_contents,
    enough_contents,
    in_split,
    letters,
    shifted,
    token_numbers,
    without_repeats,
)

LISTS = arrays(np.int64, some.tuples(some.integers(1, 7), some.integers(1, 11)), elements={
    "min_value": 0, "max_value": 2**40,
})  # fmt: skip


@given(LISTS)
def test_a_row_belongs_to_exactly_one_split_whatever_stands_beside_it(rows):
    train, validation = in_split(rows, "train"), in_split(rows, "validation")
    assert (train ^ validation).all()
    alone = [in_split(row[None], "train")[0] for row in rows]
    assert (train == alone).all()


def test_one_content_in_eight_is_validation():
    grid = np.stack(np.meshgrid(*[np.arange(11)] * 4), axis=-1).reshape(-1, 4)
    assert 0.11 < in_split(grid, "validation").mean() < 0.14


def test_drawn_contents_are_of_the_split_and_as_many_as_asked():
    def sample(generator, rows):
        return generator.integers(5, size=(rows, 7))

    for split in ("train", "validation"):
        contents = draw_contents(split, 503, np.random.default_rng(0), sample)
        assert contents.shape == (503, 7)
        assert in_split(contents, split).all()


def test_drawing_goes_on_until_there_are_enough():
    def mostly_the_other_split(generator, rows):
        contents = generator.integers(5, size=(rows, 7))
        contents[:-1] = contents[:1]  # one content nearly everywhere
        return contents

    contents = draw_contents("validation", 13, np.random.default_rng(0), mostly_the_other_split)
    assert contents.shape == (13, 7)
    assert in_split(contents, "validation").all()


def test_shifting_asks_for_the_next_token_where_it_is_scored():
    sequence = np.array([[5, 6, 7, 8], [1, 2, 3, 4]])
    inputs, targets = shifted(sequence, np.array([True, False, True, True]))
    assert inputs.tolist() == [[5, 6, 7], [1, 2, 3]]
    assert targets.tolist() == [[-100, 7, 8], [-100, 3, 4]]


def test_symbols_without_repeats_differ_and_reach_every_symbol():
    drawn = without_repeats(np.random.default_rng(0), 211, symbols=7, width=5)
    assert drawn.shape == (211, 5)
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    assert set(drawn[:, 0].tolist()) == set(range(7))


def test_names_for_display():
    assert letters(3) == ["a", "b", "c"]
    assert letters(27, "k")[26] == "k26"
    assert display_names(torch.tensor([1, -100, 0]), ["x", "y"]) == ["y", "", "x"]


def test_too_few_contents_are_refused():
    enough_contents([10, 10, 10], "enough")
    enough_contents(itertools.repeat(2), "endless, but a thousand is soon reached")
    with pytest.raises(ValueError, match="With items=2 there are only 999 different sequences"):
        enough_contents([27, 37], "items=2")


def test_numbers_outside_the_vocabulary_are_refused() -> None:
    assert display_names([0, UNSCORED, 1], ["a", "b"]) == ["a", "", "b"]
    for wrong in (2, -1):
        with pytest.raises(ValueError, match=f"Tokens are numbers from 0 to 1, got {wrong}"):
            display_names([0, wrong], ["a", "b"])


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor, iter])
def test_a_row_of_tokens_may_come_in_many_forms(make):
    assert token_numbers(make([3, 1, 2])) == [3, 1, 2]
    assert token_numbers(list(torch.tensor([3, 1, 2]))) == [3, 1, 2]
    assert token_numbers([]) == []


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([1.5], "a token should be a whole number, got 1.5"),
        (torch.tensor([1.0]), "a token should be a whole number, got 1.0"),
        ([True], "a token should be a whole number, got True"),
        (torch.tensor([torch.nan]), "a token should be a whole number, got nan"),
        ([[1, 2], [3]], r"a token should be a whole number, got \[1, 2\]"),
        (torch.zeros(2, 3, dtype=torch.long), r"one row \(n,\), got shape \(2, 3\)"),
        (torch.tensor(3), r"one row \(n,\), got shape \(\)"),
        ("ab", "a list of whole numbers, got a str"),
        (None, "a list of whole numbers, got a NoneType"),
        (3, "a list of whole numbers, got a int"),
    ],
)
def test_what_is_no_row_of_tokens(ids, sentence):
    with pytest.raises(TypeError, match=sentence):
        token_numbers(ids)
    with pytest.raises(TypeError, match=sentence):
        task("documentation", length=23).decode(ids)
    with pytest.raises(TypeError, match=sentence):
        task("copying").tokens(ids)
