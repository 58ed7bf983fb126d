"""Mixtures of Gaussians: what points are drawn from, and the likelihood of a mixture."""

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from attnlab.tasks.gaussian_mixtures import GaussianMixtures, Mixture


def test_the_log_likelihood_is_that_of_torch() -> None:
    torch.manual_seed(0)
    weights, means = torch.rand(3, 5).softmax(-1), torch.randn(3, 5, 2)
    widths, points = torch.rand(3, 5, 2) + 0.1, torch.randn(3, 7, 2)
    found = Mixture(weights, means, widths).log_likelihood(points)
    for row in range(3):
        normal = MultivariateNormal(means[row], torch.diag_embed(widths[row].square()))
        theirs = MixtureSameFamily(Categorical(weights[row]), normal)
        torch.testing.assert_close(found[row], theirs.log_prob(points[row]))


def test_points_come_from_their_mixture() -> None:
    task = GaussianMixtures(clusters=3, fewest=3, points=4001)
    points, mixture = task.mixtures("train", 5, seed=7)
    assert torch.equal(points, task.batch("train", 5, seed=7).inputs)
    torch.testing.assert_close(mixture.weights.sum(1), torch.ones(5))
    assert (mixture.means.abs() <= 4).all()
    assert (mixture.widths == 0.3).all()
    mean = (mixture.weights[..., None] * mixture.means).sum(1)
    torch.testing.assert_close(points.mean(1), mean, rtol=0, atol=0.15)
    apart = (points[:, :, None] - mixture.means[:, None]).norm(dim=-1).min(-1).values
    assert (apart < 0.3 * 4).float().mean() > 0.99
    shifted = mixture._replace(means=mixture.means + 0.3)
    assert (mixture.log_likelihood(points).mean(1) > shifted.log_likelihood(points).mean(1)).all()


def test_one_cluster_has_the_entropy_of_a_gaussian() -> None:
    points, mixture = GaussianMixtures(clusters=1, points=20_011).mixtures("train", 1, seed=0)
    found = mixture.log_likelihood(points).mean().item()
    assert found == pytest.approx(-1 - math.log(2 * math.pi * 0.3**2), abs=0.03)


def test_the_class_is_how_many_clusters_there_are() -> None:
    task = GaussianMixtures(clusters=5, fewest=2, points=3)
    classes = task.batch("validation", 1009, seed=2).targets
    _, mixture = task.mixtures("validation", 1009, seed=2)
    assert torch.equal((mixture.weights > 0).sum(1) - 2, classes)
    assert (classes.bincount() > 200).all()
    points, _ = task.mixtures("validation", 1009, seed=2)
    assert mixture.log_likelihood(points).isfinite().all()


def test_fewer_clusters_than_the_fewest_are_refused() -> None:
    with pytest.raises(ValueError, match="clusters=2 should be at least fewest=3"):
        GaussianMixtures(clusters=2, fewest=3)
