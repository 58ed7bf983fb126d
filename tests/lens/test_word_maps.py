"""Maps of words from maps of pieces."""

import pytest
import torch

from attnlab.lens.word_maps import word_map, word_spans


def test_attention_to_a_word_is_a_sum_and_from_it_a_mean():
    # pieces: [CLS] un happy cats
    weights = torch.tensor(
        [[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.1, 0.4], [0.2, 0.1, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]],
        dtype=torch.float64,
    )
    found = word_map(weights[None], [None, 0, 0, 1])
    wanted = [[0.1, 0.5, 0.4], [0.1, 0.5, 0.4], [1.0, 0.0, 0.0]]
    torch.testing.assert_close(found[0], torch.tensor(wanted, dtype=torch.float64))


def test_rows_remain_distributions_and_whole_words_change_nothing():
    made = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 3, 6, 6, generator=made).softmax(-1)
    torch.testing.assert_close(word_map(weights, [0, 0, 1, 2, 2, 2]).sum(-1), torch.ones(2, 3, 3))
    torch.testing.assert_close(word_map(weights, range(6)), weights)


def test_queries_and_keys_may_be_of_two_texts():
    weights = torch.full((1, 2, 4), 0.25)
    assert word_map(weights, [0, 1], [0, 0, 0, 1]).tolist() == [[[0.75, 0.25]] * 2]


def test_neighbours_with_one_number_are_a_word_and_none_is_one_for_itself():
    assert word_spans([None, None, 0, 0, 1, None, 0]) == [
        range(0, 1), range(1, 2), range(2, 4), range(4, 5), range(5, 6), range(6, 7)
    ]  # fmt: skip
    assert word_spans([]) == []


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ([0, 1], ValueError, "words should have one number for each of the 3 pieces, got 2"),
        ("abc", TypeError, "words should be a sequence, got .abc."),
        ([0, 1.5, 2], TypeError, r"words\[1\] should be a whole number or None, got 1.5"),
        ([0, True, 2], TypeError, r"words\[1\] should be a whole number or None, got True"),
        (torch.arange(3), TypeError, "words should be a sequence"),
    ],
)
def test_bad_words(words, error, said):
    with pytest.raises(error, match=said):
        word_map(torch.rand(1, 3, 3), words)
