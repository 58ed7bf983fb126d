"""Pairs of a question and a text in one sequence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.text_pairs import TextPairs

PAIRS = TextPairs.of([3, 1, 2], [2, 4, 1], length=7)


def test_of_counts_of_tokens() -> None:
    assert PAIRS.padding.int().tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
    ]
    assert PAIRS.in_text.int().tolist() == [
        [0, 0, 0, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
    ]
    assert TextPairs.of([3, 1], [2, 1]).padding.shape == (2, 5)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.lists(st.booleans(), max_size=7))
def test_example_and_masks_are_what_they_are_called(one: list[bool], two: list[bool]) -> None:
    """Against loops over all tokens and pairs of tokens."""
    n = max(len(one), len(two))
    rows = [row + [False] * (n - len(row)) for row in (one, two)]
    pairs = TextPairs.example(torch.tensor(rows))
    for r, row in enumerate(rows):
        real = [i for i in range(n) if row[i]]
        text = set(real[(len(real) + 1) // 2 :])
        assert {i for i in range(n) if pairs.in_text[r, i]} == text
        for i in range(n):
            for j in range(n):
                both = row[i] and row[j]
                assert pairs.together[r, 0, i, j] == both
                assert pairs.apart[r, 0, i, j] == (both and (i in text) == (j in text))


def test_parts_are_the_tokens_of_each() -> None:
    tokens = torch.arange(1, 22).view(3, 7)
    asked, its_padding = PAIRS.part(tokens, text=False)
    assert asked.tolist() == [[1, 2, 3], [8, 0, 0], [15, 16, 0]]
    assert its_padding.sum(1).tolist() == [3, 1, 2]
    text, its_padding = PAIRS.part(tokens, text=True)
    assert text.tolist() == [[4, 5, 0, 0], [9, 10, 11, 12], [17, 0, 0, 0]]
    assert its_padding.sum(1).tolist() == [2, 4, 1]


def test_pooled_is_the_first_token() -> None:
    x = torch.randn(2, 3, 5)
    padding = torch.tensor([[False, True, True], [False, False, False]])
    found = TextPairs.example(padding).pooled(x)
    assert torch.equal(found, torch.stack([x[0, 1], torch.zeros(5)]))


def test_a_slice_has_the_rows_of_the_whole() -> None:
    part = PAIRS[1:]
    assert torch.equal(part.padding, PAIRS.padding[1:])
    assert torch.equal(part.in_text, PAIRS.in_text[1:])
    assert repr(part) == "<TextPairs: 2 pairs of a question and a text, 7 tokens>"


@pytest.mark.parametrize(
    ("questions", "texts", "length", "sentence"),
    [
        ([], [], None, "at least one question, and a text for each, got 0 questions and 0 texts"),
        ([1, 2], [3], None, "got 2 questions and 1 texts"),
        ([1], [0], None, "the length of a text should be at least 1, got 0"),
        ([0], [1], None, "the length of a question should be at least 1, got 0"),
        ([2, 1], [2, 4], 4, "longest pair has 5 tokens, which is more than length=4"),
    ],
)
def test_what_is_no_pair_is_refused(questions, texts, length, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        TextPairs.of(questions, texts, length)
