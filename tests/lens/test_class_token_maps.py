"""Maps of a class token: what is kept of them, their overlap with ink, and nearest neighbours."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.lens.class_token_maps import (
    class_token_maps,
    jaccard,
    kept,
    nearest_classes,
    overlap,
)


def weights(b: int = 2, h: int = 3, n: int = 16) -> torch.Tensor:
    return torch.randn(b, h, n, n, generator=torch.Generator().manual_seed(1)).mul(3).softmax(-1)


def test_a_map_is_the_row_of_the_class_token_without_itself():
    w = weights()
    maps = class_token_maps(w, (3, 5))
    assert maps.shape == (2, 3, 3, 5)
    torch.testing.assert_close(maps.sum((-1, -2)), torch.ones(2, 3))
    expected = w[1, 2, 0, 1 + 5 + 3] / (1 - w[1, 2, 0, 0])  # second row, fourth column
    torch.testing.assert_close(maps[1, 2, 1, 3], expected)


def test_the_largest_weights_are_kept_until_the_share_is_reached():
    one = torch.tensor([[0.05, 0.3, 0.1], [0.05, 0.1, 0.4]])
    assert kept(one, 0.6).tolist() == [[False, True, False], [False, False, True]]
    assert kept(one, 0.7).tolist() == kept(one, 0.6).tolist()  # reached exactly: no third
    assert kept(one, 0.75).tolist() == [[False, True, True], [False, False, True]]
    assert not kept(one, 0).any()
    assert kept(one, 1).all()
    assert kept(torch.tensor([[0.0, 2.0]]), 1).tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("numbers", "count"), [([5, 4, 2, 1, 1], 1), ([5, 5, 5, 5, 2], 2), ([5, 4, 4, 3, 1], 2)]
)
def test_a_share_is_reached_whatever_a_sum_is_rounded_to(numbers: list[int], count: int) -> None:
    maps = torch.tensor([numbers], dtype=torch.float64) / sum(numbers)
    share = sum(numbers[:count]) / sum(numbers)
    assert kept(maps, share).sum() == count


@given(st.lists(st.integers(0, 50), min_size=6, max_size=6), st.integers(1, 99))
def test_no_smaller_set_holds_the_share(numbers, percent):
    values = torch.tensor(numbers, dtype=torch.float64)
    if not values.sum():
        return
    mask = kept(values.view(2, 3), percent / 100).flatten()
    enough = percent * sum(numbers)
    assert 100 * values[mask].sum() >= enough
    assert 100 * (values[mask].sum() - values[mask].min()) < enough  # one less is too few
    assert not mask.all() or values[mask].min() >= 0
    if not mask.all():
        assert values[mask].min() >= values[~mask].max()


def test_it_is_what_dino_s_code_keeps():
    """Sorted upwards, what lies above a sum of 1 − share (``visualize_attention.py``)."""
    maps = class_token_maps(weights().double(), (3, 5))
    value, order = maps.flatten(2).sort(-1)
    above = value.cumsum(-1) > 1 - 0.6
    expected = torch.zeros_like(above).scatter(-1, order, above).view_as(maps)
    assert torch.equal(kept(maps), expected)


def test_overlap_of_own_ink_and_of_the_ink_of_others():
    ink = torch.zeros(3, 2, 3, dtype=torch.bool)
    ink[0, 0], ink[1, 1] = True, True  # the third image has none, and is left out
    maps = torch.rand(3, 2, 2, 3) / 1000
    maps[0, 0, 0], maps[1, 0, 1] = 1.0, 1.0  # the first head looks at the ink
    maps[0, 1, 1], maps[1, 1, 0] = 1.0, 1.0  # the second at what has none
    found = overlap(maps, ink, 0.9)
    assert found.own.tolist() == [1, 0]
    assert found.control.tolist() == [0, 1]
    assert jaccard(ink[0], ink[0] | ink[1]).item() == 0.5
    assert math.isnan(jaccard(ink[2], ink[2]).item())


def test_neighbours_vote_by_their_cosine():
    known = torch.tensor([[1.0, 0.0], [0.9, 0.45], [0.9, 0.5], [0.0, 1.0]])
    labels = torch.tensor([2, 0, 0, 1])
    asked = torch.tensor([[5.0, 0.0], [0.0, 0.1]])
    assert nearest_classes(known, labels, asked, 1).tolist() == [2, 1]
    assert nearest_classes(known, labels, asked, 3).tolist() == [2, 1]  # one at 1 beats two at 0.9
    assert nearest_classes(known, labels, asked, 3, temperature=10.0).tolist() == [0, 0]
    assert nearest_classes(known, labels, asked, 4, temperature=1e-9).tolist() == [2, 1]


def test_how_long_vectors_are_changes_no_vote() -> None:
    draw = torch.Generator().manual_seed(0)
    known, asked = torch.randn(13, 3, generator=draw), torch.randn(7, 3, generator=draw)
    labels = torch.arange(13) % 5
    found = nearest_classes(known, labels, asked, 5)
    longer = known * torch.linspace(0.1, 9, 13)[:, None]
    assert torch.equal(nearest_classes(longer, labels, asked, 5), found)
    for length in (0.01, 30):
        assert torch.equal(nearest_classes(known, labels, asked * length, 5), found)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: class_token_maps(weights(), (4, 4)), "4 × 4 patches, 17 tokens in all, got 16"),
        (lambda: class_token_maps(torch.eye(16).expand(1, 1, 16, 16), (3, 5)), "no weight on any"),
        (lambda: kept(torch.tensor([[-1.0, 2.0]])), "finite weights of at least 0"),
        (lambda: kept(torch.ones(2, 3), 1.5), "share should be a share from 0 to 1, got 1.5"),
        (lambda: overlap(torch.rand(2, 1, 2, 2), torch.zeros(2, 2, 2).bool()), "got 0"),
        (lambda: nearest_classes(torch.ones(3, 2), torch.arange(3), torch.ones(1, 2)), "at most"),
        (lambda: nearest_classes(*_three(), 2, temperature=0.0), "temperature should be above 0"),
        (lambda: nearest_classes(torch.ones(3, 2), -torch.ones(3).long(), torch.ones(1, 2), 2),
         "labels should be classes"),
    ],
)  # fmt: skip
def test_what_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def _three() -> tuple[torch.Tensor, ...]:
    return torch.ones(3, 2), torch.arange(3), torch.ones(1, 2)
