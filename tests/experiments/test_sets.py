"""The experiment `sets`, small: what its models may know, its measures, and stored rows."""

import pytest
import torch

from attnlab.experiments import sets, stored
from attnlab.experiments.sets import CLUSTER_TESTS, CLUSTERERS, POOLS, SEEDS
from attnlab.tasks.gaussian_mixtures import Mixture
from attnlab.tasks.set_maximum import SetMaximum


@pytest.mark.parametrize("pool", POOLS)
def test_pools_depend_on_the_real_members_and_not_on_their_order(pool: str) -> None:
    torch.manual_seed(0)
    model, x = sets.Pooled(pool), torch.rand(3, 7, 1)
    torch.testing.assert_close(model(x.flip(1)), model(x))
    padding = torch.arange(7) < torch.tensor([[4], [7], [1]])
    found = model(x.masked_fill(~padding[..., None], 0), padding)
    for row, count in enumerate((4, 7, 1)):
        torch.testing.assert_close(found[row], model(x[row : row + 1, :count])[0])
    changed = x.clone()
    changed[:, 2] += 1
    assert (model(changed) != model(x)).all()


@pytest.mark.parametrize("arm", CLUSTERERS)
def test_a_clusterer_writes_a_mixture_whatever_the_order(arm: str) -> None:
    torch.manual_seed(0)
    model, points = sets.Clusterer(arm), torch.randn(3, 11, 2)
    mixture, turned = model(points), model(points.flip(1))
    assert mixture.means.shape == mixture.widths.shape == (3, sets.CLUSTERS, 2)
    torch.testing.assert_close(mixture.weights.sum(1), torch.ones(3))
    assert (mixture.widths > 0).all()
    for one, other in zip(mixture, turned, strict=True):
        torch.testing.assert_close(one, other)


def test_arms_of_the_clusterer_are_what_they_are_called() -> None:
    inducing = [sets.Clusterer(f"{n} inducing point").encode[0].inducing for n in (1, 16)]
    assert [len(points) for points in inducing] == [1, 16]
    assert "Heads" not in repr(sets.Clusterer("mean"))


def test_equal_latents_remain_equal_and_others_do_not() -> None:
    for arm, equal in (("l = 8, alike", True), ("l = 8", False)):
        latents = sets.train_reader(arm, 0, steps=3).perceiver.latents
        assert torch.allclose(latents, latents[:1], atol=1e-5) == equal
    before = sets.train_reader("l = 8, alike", 0, steps=0).perceiver.latents
    after = sets.train_reader("l = 8, alike", 0, steps=3).perceiver.latents
    assert (before != after).any()


def test_only_positions_make_the_order_of_pixels_matter() -> None:
    pixels = torch.rand(2, 64, 1)
    for arm, same in (("l = 8, no positions", True), ("l = 8", False)):
        model = sets.train_reader(arm, 0, steps=0)
        assert torch.allclose(model(pixels.flip(1)), model(pixels), atol=1e-5) == same


def test_the_error_is_in_hundredths(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = sets.Pooled("mean"), SetMaximum(fewest=3, most=3)
    monkeypatch.setattr(model, "forward", lambda x, padding: x.amax((1, 2)) + 0.03)
    assert sets.error(model, task) == pytest.approx(3)


def test_maximum_likelihood_fits_the_points_better_than_the_truth() -> None:
    points, true = sets.unseen_sets(64, count=5)
    found = sets.maximum_likelihood(points)
    assert (found.log_likelihood(points).mean(1) > true.log_likelihood(points).mean(1)).all()
    assert isinstance(found, Mixture)


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    found = stored("32_sets.json", "sets")
    for seed in SEEDS:
        for n in CLUSTER_TESTS:
            scores = [found[f"clusters; {arm}; {n} points; seed {seed}"] for arm in CLUSTERERS]
            assert max(scores) < found[f"clusters; true; {n} points"]
            assert min(scores) == scores[0]  # the mean
        blind = found[f"digits; l = 8, no positions; seed {seed}"]
        assert blind < found[f"digits; l = 8; seed {seed}"] / 1.5
