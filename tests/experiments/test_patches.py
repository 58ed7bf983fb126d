"""The experiment `patches`, small: what is changed in the weights, and what is stored."""

import pytest
import torch

from attnlab import pretrained
from attnlab.experiments import patches
from attnlab.experiments.patches import CHANGES, right, statistics, train, unseen
from attnlab.pretrained.recipes import RECIPES


def test_the_recipe_is_that_of_the_shipped_model() -> None:
    recipe = RECIPES["digits"]
    assert recipe.model == {**patches.MODEL, **patches.PLACES}
    assert recipe.training == {"steps": patches.STEPS, **patches.TRAINING}
    assert recipe.task("") == patches.problem()


def test_each_change_by_hand() -> None:
    w = torch.rand(3, 2, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    for change in CHANGES.values():
        changed = change(w)
        assert changed.shape == w.shape
        torch.testing.assert_close(changed.sum(-1), torch.ones(3, 2, 5))
    assert torch.equal(CHANGES["as trained"](w), w)
    one = CHANGES["one row for all"](w)
    torch.testing.assert_close(one[1, 0, 0], one[1, 0, 4])
    torch.testing.assert_close(one[2, 1, 3], w[2, 1].mean(0))
    alone = CHANGES["places alone"](w)
    torch.testing.assert_close(alone[0], alone[2])
    torch.testing.assert_close(alone[1, 1, 3], w[:, 1, 3].mean(0))


def test_the_changed_weights_are_those_of_the_model() -> None:
    """As trained gives the model's own answers; what was changed is put back."""
    model, _ = pretrained.load("digits")
    images, digits = unseen()
    with torch.no_grad():
        own = 100 * (model(images).argmax(-1) == digits).double().mean().item()
    assert right(model) == pytest.approx(own)
    assert right(model, "uniform") < own - 10
    assert right(model) == pytest.approx(own)
    with pytest.raises(ValueError, match="there is no change"):
        right(model, "unifrom")


@pytest.mark.parametrize("patch", [1, 2])
def test_statistics_are_of_the_models_own_grid(patch: int) -> None:
    found = statistics(train(0, patch=patch, steps=1))
    side = 8 // patch
    assert [one.by_offset.shape for one in found] == [(4, 2 * side - 1, 2 * side - 1)] * 3
    assert found[0].uniform.same[0] == pytest.approx(1 / side**2)


def test_equal_seeds_give_equal_models() -> None:
    models = []
    for seed in (1, 1, 2):
        torch.rand(3)  # the caller's own random numbers have no influence
        models.append(train(seed, patch=4, steps=2))
    one, same, other = models
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )
