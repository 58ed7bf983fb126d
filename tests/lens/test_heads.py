"""Head statistics, by hand."""

import math

import numpy as np
import pytest
import torch

from attnlab.lens.head_kinds import find_heads
from attnlab.lens.heads import head_statistics


def one_head(rows):
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def test_three_heads_by_hand():
    uniform = torch.full((3, 3), 1 / 3, dtype=torch.float64)
    previous = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    forward = torch.tensor([[0, 1, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5]], dtype=torch.float64)
    s = head_statistics(torch.stack([uniform, previous, forward])[None], ["[CLS]", "a", "."])
    sharp = (0 + math.log(2) + 1.5 * math.log(2)) / 3
    expected = {
        "entropy": [math.log(3), 0, sharp],
        "normalised_entropy": [1, 0, sharp / math.log(3)],
        "distance": [(1 + 2 / 3 + 1) / 3, 2 / 3, (1 + 0.5 + 0.75) / 3],
        "previous": [1 / 3, 1, (0 + 0.25) / 2],
        "next": [1 / 3, 0, (1 + 0.5) / 2],
        "same": [1 / 3, 1 / 3, (0 + 0.5 + 0.5) / 3],
        "first": [1 / 3, 2 / 3, 0.25 / 3],
        "delimiter": [2 / 3, 2 / 3, (0 + 0.5 + 0.75) / 3],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(s, name), values, atol=1e-15, err_msg=name)
    rows = s.rows()
    assert [row["head"] for row in rows] == [0, 1, 2]
    apart = ["delimiter_from_others", "delimiter_from_delimiters"]
    assert list(rows[0]) == ["head", *expected, *apart]
    assert rows[1]["previous"] == 1
    assert isinstance(rows[1]["previous"], float)


def test_rows_of_padding_and_empty_rows_do_not_count():
    w = torch.rand(2, 3, 5, 5, dtype=torch.float64)
    padding = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.bool)
    w = w * padding[:, None, None]
    w = w / w.sum(-1, keepdim=True)
    spoiled = w.clone()
    spoiled[1, :, [0, 4]] = 7.0
    ours = head_statistics(spoiled, padding=padding)
    emptied = w.clone()
    emptied[1, :, [0, 4]] = 0
    np.testing.assert_allclose(ours.entropy, head_statistics(emptied).entropy)
    np.testing.assert_allclose(ours.distance, head_statistics(emptied).distance)
    first = torch.cat([w[0, :, :, 0], w[1, :, 1:4, 1]], dim=1).mean(1)  # the first real token
    np.testing.assert_allclose(ours.first, first)
    following = torch.cat(
        [w[0, :, range(4), range(1, 5)], w[1, :, range(1, 3), range(2, 4)]], dim=1
    ).mean(1)
    np.testing.assert_allclose(ours.next, following)
    preceding = torch.cat(
        [w[0, :, range(1, 5), range(4)], w[1, :, range(2, 4), range(1, 3)]], dim=1
    ).mean(1)
    np.testing.assert_allclose(ours.previous, preceding)


def test_entropy_is_normalised_by_what_the_row_may_see():
    triangle = torch.ones(5, 5, dtype=torch.bool).tril()
    w = (triangle / triangle.sum(-1, keepdim=True)).double()[None, None]
    np.testing.assert_allclose(
        head_statistics(w, mask=triangle[None, None]).normalised_entropy, [1.0]
    )
    assert head_statistics(w).normalised_entropy < 1


def test_queries_are_the_last_positions():
    w = one_head([[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]])  # positions 3 and 4 of 5
    s = head_statistics(w)
    assert s.previous == 0.5
    assert s.same == 0
    assert s.distance == 1.5


def test_a_head_without_any_row_is_nan():
    assert math.isnan(head_statistics(one_head([[0.0, 0.0], [0.0, 0.0]])).entropy[0])


def test_tokens_per_row_of_the_batch_and_own_delimiters():
    w = torch.full((2, 1, 2, 2), 0.5, dtype=torch.float64)
    s = head_statistics(w, [["|", "a"], ["a", "b"]], delimiters=["|"])
    assert s.delimiter == 0.25
    assert head_statistics(w).delimiter is None
    assert "delimiter" not in head_statistics(w).rows()[0]


def test_delimiters_attend_to_delimiters_apart_from_the_rest():
    """The two rows of [SEP] attend to [SEP] alone; the words attend to it with a fifth each."""
    tokens = ["[SEP]", "a", "b", "c", "[SEP]"]
    w = torch.full((1, 2, 5, 5), 0.1)
    w[:, :, :, 1:4] = 0.8 / 3
    w[:, 0, [0, 4]] = torch.tensor([0.5, 0, 0, 0, 0.5])
    s = head_statistics(w, tokens)
    assert s.delimiter_from_delimiters == pytest.approx([1, 0.2])
    assert s.delimiter_from_others == pytest.approx([0.2, 0.2])
    assert s.delimiter == pytest.approx([(2 + 3 * 0.2) / 5, 0.2])
    some = find_heads({"layer": w}, tokens)
    assert [head.delimiter_from_delimiters for head in some] == pytest.approx([1, 0.2])
    assert [head.delimiter_from_others for head in some] == pytest.approx([0.2, 0.2])
    last = head_statistics(w[:, :, 3:], tokens)
    assert last.delimiter_from_delimiters == pytest.approx([1, 0.2]), "only the last row is [SEP]"
    assert last.delimiter_from_others == pytest.approx([0.2, 0.2])
    none = find_heads({"layer": w}, torch.arange(5)[None])
    assert all(math.isnan(head.delimiter_from_others) for head in none)


def test_half_precision_and_gradients_are_fine():
    w = torch.full((1, 1, 2, 2), 0.5, dtype=torch.bfloat16, requires_grad=True)
    assert head_statistics(w).entropy == pytest.approx(math.log(2))


def test_bad_input_is_reported():
    w = torch.full((2, 1, 3, 3), 1 / 3)
    with pytest.raises(ValueError, match="tokens should be 3 keys' tokens, or 2 lists"):
        head_statistics(w, ["a", "b"])
    with pytest.raises(TypeError, match="split it first"):
        head_statistics(w, "abc")
    with pytest.raises(TypeError, match="a sequence or a frozenset, got 'abc'"):
        head_statistics(w, ["a", "b", "c"], delimiters="abc")
    with pytest.raises(ValueError, match="b h n m"):
        head_statistics(w[0])
    with pytest.raises(ValueError, match="n is 2, expected 3"):
        head_statistics(w, padding=torch.ones(2, 2, dtype=torch.bool))


@pytest.mark.parametrize("tokens", [[1, 2, 3], ["a", 2, "c"], [["a", "b", "c"], "abc"]])
def test_tokens_that_are_no_texts(tokens) -> None:
    with pytest.raises(TypeError, match="tokens should be texts"):
        head_statistics(torch.full((2, 5, 3, 3), 1 / 3), tokens)
