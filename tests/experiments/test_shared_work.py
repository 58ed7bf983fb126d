"""The experiment `shared_work`, small: shares, maps of what attends, and stored rows."""

import pytest
import torch

from attnlab.experiments.shared_work import (
    ARMS,
    ATTEND,
    LENGTH,
    NEAR,
    build,
    even_share,
    maps,
    near_share,
    train,
)


def test_near_shares_of_maps_that_are_known() -> None:
    eye = torch.eye(LENGTH)
    last_near = eye.roll(NEAR - 1, 0)
    first_far = eye.roll(NEAR, 0)
    assert near_share(torch.stack((eye, last_near, first_far))[None]).tolist() == [1, 1, 0]
    assert round(even_share()) == 15


@pytest.mark.parametrize("arm", ATTEND)
def test_maps_are_those_of_the_heads_that_attend(arm: str) -> None:
    found = maps(build(arm, 0).eval())
    heads = 2 if arm == "lite_transformer" else 4
    assert [tuple(each.shape[1:]) for each in found] == [(heads, LENGTH, LENGTH)] * 2
    for each in found:
        torch.testing.assert_close(each.sum(-1), torch.ones(each.shape[:-1]))
        assert not each.triu(1).any()


def test_what_convolves_has_no_map() -> None:
    assert [arm for arm in ARMS if not maps(build(arm, 0).eval())] == [
        arm for arm in ARMS if arm not in ATTEND
    ]


def test_the_same_seed_gives_the_same_model() -> None:
    found = []
    for elsewhere in (3, 4):  # a seed that must not matter
        torch.manual_seed(elsewhere)
        found.append(train("lite_transformer", 2, steps=3))
    for mine, theirs in zip(*(model.parameters() for model in found), strict=True):
        assert torch.equal(mine, theirs)
