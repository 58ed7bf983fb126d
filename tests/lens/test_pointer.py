"""A pointer: planted attention is found, and held against even weights and another page."""

import pytest
import torch

from attnlab.lens.pointer import centre, covered, share
from attnlab.tasks.receipts import CHARACTER, Receipts

TASK = Receipts(patch=4)
PLACES = TASK.places("validation", 7, seed=1)
THERE = covered(PLACES, TASK.grid, 4, (CHARACTER[1], CHARACTER[0]))


def test_covered_patches_by_hand():
    places = torch.tensor([[[5.5, 9.0], [17.5, 3.0], [float("nan")] * 2]])
    found = covered(places, (6, 12), 4, (11, 6)).view(3, 6, 12)
    assert found[0].nonzero().tolist() == [[r, c] for r in (0, 1, 2) for c in (1, 2)]
    assert found[1].nonzero().tolist() == [[r, c] for r in (3, 4, 5) for c in (0, 1)]
    assert not found[2].any()


def test_a_planted_pointer_is_found_and_an_even_head_is_not():
    m = THERE.shape[-1]
    pointer = THERE / THERE.sum(-1, keepdim=True).clamp(min=1)
    pointer = torch.where(THERE.any(-1, keepdim=True), pointer, 1 / m)
    even = torch.full_like(pointer, 1 / m)
    beside = pointer.roll(1, 1)  # the patches of the character before
    found = share(torch.stack([pointer, even, beside], 1), THERE)
    wanted = THERE.sum(-1)[THERE.any(-1)].float().mean() / m
    torch.testing.assert_close(found[0], torch.tensor(1.0))
    torch.testing.assert_close(found[1], wanted)
    assert found[2] < 0.5
    assert share(pointer[:, None], THERE.roll(1, 0))[0] < 0.9


def test_the_centre_moves_along_the_line():
    weights = THERE / THERE.sum(-1, keepdim=True).clamp(min=1)
    at = centre(weights[:, None], TASK.grid)[:, 0]
    first, second = (at[:, place] for place in (1, 2))  # the first two characters of the price
    assert (second[:, 1] > first[:, 1]).all()
    torch.testing.assert_close(second[:, 0], first[:, 0])


def test_the_centre_is_that_of_the_shares():
    weights = torch.rand(2, 3, 5, 72)
    torch.testing.assert_close(centre(0.3 * weights, TASK.grid), centre(weights, TASK.grid))


def test_what_is_no_place_is_refused():
    weights = torch.full((2, 3, 5, 72), 1 / 72)
    with pytest.raises(ValueError, match="no token covers a patch"):
        share(weights, torch.zeros(2, 5, 72, dtype=torch.bool))
    with pytest.raises(ValueError, match="6 × 11 = 66 patches, got 72"):
        centre(weights, (6, 11))
    with pytest.raises(ValueError, match="a row and a column for each token"):
        covered(torch.zeros(2, 5, 3), (6, 12), 4, (11, 6))
