"""Weights that share their numbers, against Lloyd's algorithm of scikit-learn."""

import numpy as np
import pytest
import torch
from torch import nn

import attnlab
from attnlab.compression.kmeans_weights import KMeansOptions, KMeansWeights, clustered, values_of


def test_centres_are_those_of_lloyds_algorithm() -> None:
    from sklearn.cluster import KMeans

    torch.manual_seed(0)
    W = torch.randn(40, 25, dtype=torch.float64)
    options = KMeansOptions(bits=3, rounds=300)
    centres, codes = clustered(W, options)
    start = np.linspace(W.min().item(), W.max().item(), 7)[:, None]
    theirs = KMeans(7, init=start, n_init=1, max_iter=300, tol=0).fit(W.numpy().reshape(-1, 1))
    np.testing.assert_allclose(centres, theirs.cluster_centers_[:, 0], atol=1e-9)
    assert (codes.flatten().numpy() - 1 == theirs.labels_).all()


def test_more_rounds_never_raise_the_error_and_it_is_below_that_of_equal_steps() -> None:
    torch.manual_seed(0)
    W = torch.randn(40, 25)
    errors = []
    for rounds in (0, 1, 3, 10, 30):
        found = values_of(*clustered(W, KMeansOptions(bits=4, rounds=rounds)))
        errors.append((found - W).square().sum().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]


def test_zeros_of_a_mask_stay_and_take_no_centre() -> None:
    torch.manual_seed(0)
    pruned = attnlab.build("magnitude_pruning", kept=0.3)(nn.Linear(20, 10))
    made = KMeansWeights(KMeansOptions(bits=2))(pruned)
    assert torch.equal(made.weight == 0, pruned.weight == 0)
    assert made.weight.unique().numel() <= 1 + 3


def test_the_gradient_of_a_centre_is_the_sum_of_its_weights() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(7, 5)
    made, x = KMeansWeights(KMeansOptions(bits=2))(layer), torch.randn(3, 7)
    made(x).square().sum().backward()
    plain = nn.Linear(7, 5)
    plain.load_state_dict({"weight": made.weight.detach(), "bias": made.bias.detach()})
    plain(x).square().sum().backward()
    codes = made.codes
    sums = torch.stack([plain.weight.grad[codes == k + 1].sum() for k in range(3)])
    torch.testing.assert_close(made.centres.grad, sums)


def test_a_matrix_of_zeros_and_one_of_equal_weights() -> None:
    layer = nn.Linear(4, 3)
    for value in (0.0, 0.5):
        nn.init.constant_(layer.weight, value)
        assert torch.equal(KMeansWeights()(layer).weight, layer.weight)


def test_bad_calls_are_sentences() -> None:
    layer = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="bits should be from 2 to 8, or 32"):
        KMeansOptions(bits=1)
    layer.weight.data[0, 0] = torch.inf
    with pytest.raises(ValueError, match="are infinite"):
        KMeansWeights()(layer)
