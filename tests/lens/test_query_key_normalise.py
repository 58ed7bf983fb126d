"""Identity Z1: scaling and translation leave attention as it is, and the centroids meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import spearmanr

from attnlab.lens.query_key.normalise import (
    CANDIDATES,
    distances,
    normalisation,
    weighted_correlation,
)

SCALINGS = ("correlation", "norms", "none")


def head(seed=0, queries=31, keys=37, width=7, ratio=3.0):
    """A head with long keys, whose clouds lie apart."""
    draw = np.random.default_rng(seed)
    q = draw.normal(size=(queries, width)) + 2
    return q, ratio * draw.normal(size=(keys, width)) - 1


def attention(q, k):
    return softmax(q @ k.T / np.sqrt(q.shape[1]), axis=1)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_attention_stays_and_the_centroids_meet(scaling, metric):
    q, k = head()
    change = normalisation(q, k, scaling, metric)
    moved_q, moved_k = change.queries(q), change.keys(k)
    np.testing.assert_allclose(attention(moved_q, moved_k), attention(q, k), atol=1e-12)
    np.testing.assert_allclose(moved_q.mean(axis=0), moved_k.mean(axis=0), atol=1e-12)


@given(seed=st.integers(0, 10_000), ratio=st.floats(0.05, 20), scaling=st.sampled_from(SCALINGS))
def test_attention_stays_for_any_head_in_single_precision(seed, ratio, scaling):
    q, k = (x.astype(np.float32) for x in head(seed, 11, 13, 5, ratio))
    change = normalisation(q, k, scaling)
    moved = attention(change.queries(q).astype(float), change.keys(k).astype(float))
    exact = attention(q.astype(float), k.astype(float))
    assert np.abs(moved - exact).max() < 1e-4  # scores of some hundreds in float32


def test_translating_the_queries_would_change_attention():
    """The trap that the formulation "shift queries and keys" invites."""
    q, k = head()
    change = normalisation(q, k, "none")
    assert np.abs(attention(q - change.shift, k) - attention(q, k)).max() > 0.1


def test_the_other_order_does_not_bring_the_centroids_together():
    q, k = head()
    shift = q.mean(axis=0) - k.mean(axis=0)
    gap = (2.0 * q).mean(axis=0) - ((k + shift) / 2.0).mean(axis=0)
    assert np.linalg.norm(gap) > 1


def test_equal_norms():
    q, k = head(ratio=4.0)
    c = normalisation(q, k, "norms").factor
    long, short = np.linalg.norm(k / c, axis=1).mean(), np.linalg.norm(c * q, axis=1).mean()
    assert long == pytest.approx(short)
    assert c > 1  # the keys are the longer


def test_the_search_takes_the_candidate_with_the_most_negative_correlation():
    q, k = head(seed=3, ratio=0.3)
    found = []
    for c in CANDIDATES:
        moved = k / c + (c * q).mean(axis=0) - (k / c).mean(axis=0)
        found.append(weighted_correlation(q @ k.T, distances(c * q, moved)))
    assert normalisation(q, k, "correlation").factor == CANDIDATES[int(np.argmin(found))]
    assert len(set(found)) == len(CANDIDATES)  # scaling first makes a difference


def test_the_default_takes_the_factor_that_keeps_most():
    q, k = head(ratio=4.0)
    for best in (0.2, 1.25, 5.0):
        spread = best * np.linalg.norm(q, axis=1).mean()

        def kept(q_, k_, spread=spread):
            return -abs(np.linalg.norm(q_, axis=1).mean() - spread)

        assert normalisation(q, k, "attention", kept=kept).factor == best
    equal = normalisation(q, k, "norms").factor
    assert normalisation(q, k, "attention", kept=lambda q_, k_: 0.5).factor == equal
    assert normalisation(q, k, "attention", kept=lambda q_, k_: np.nan).factor == equal
    with pytest.raises(ValueError, match="needs `kept`"):
        normalisation(q, k, "attention")


def test_a_small_factor_compares_queries_with_centred_keys():
    q, k = head()
    moved_k = k / 1e-6 + 1e-6 * q.mean(axis=0) - (k / 1e-6).mean(axis=0)
    expected = distances(q, k - k.mean(axis=0))
    np.testing.assert_allclose(distances(1e-6 * q, moved_k), expected, atol=1e-6)


def test_weighted_correlation_by_hand():
    """Of 600 pairs the nearest three (0.5 %), with the fourth as limit: weights (D - d)²."""
    y = np.linspace(1.0, 5.0, 600)
    y[:4] = [0.1, 0.3, 0.4, 0.6]
    x = np.zeros(600)
    x[:4] = [2.0, 1.0, 4.0, 7.0]
    w = np.array([0.5**2, 0.3**2, 0.2**2])
    w /= w.sum()
    mean_x, mean_y = w @ x[:3], w @ y[:3]
    covariance = w @ ((x[:3] - mean_x) * (y[:3] - mean_y))
    spread = np.sqrt((w @ (x[:3] - mean_x) ** 2) * (w @ (y[:3] - mean_y) ** 2))
    assert weighted_correlation(x, y) == pytest.approx(covariance / spread)
    assert -0.9 < covariance / spread < 0.9


def test_weighted_correlation_where_nothing_differs():
    assert weighted_correlation(np.ones(400), np.linspace(0, 1, 400)) == np.inf
    assert weighted_correlation(np.linspace(0, 1, 400), np.ones(400)) == np.inf
    assert weighted_correlation(np.ones(2), np.ones(2)) == np.inf


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_head_of_zeros(scaling):
    q = k = np.zeros((11, 3))
    change = normalisation(q, k, scaling)
    assert change.factor == 1
    assert not change.keys(k).any()


def test_distances():
    x, y = head(queries=5, keys=3)
    by_hand = [[1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in y] for a in x]
    np.testing.assert_allclose(distances(x, y), by_hand)
    by_hand = [[np.linalg.norm(a - b) for b in y] for a in x]
    np.testing.assert_allclose(distances(x, y, "euclidean"), by_hand)
    np.testing.assert_allclose(distances(0 * x, y), 1)


def test_with_equal_norms_the_nearer_has_the_larger_product():
    """Why distance can stand for attention at all."""
    q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in head())
    assert spearmanr(distances(q, k).ravel(), (q @ k.T).ravel()).statistic == pytest.approx(-1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"scaling": "norm"}, "did you mean 'norms'"), ({"metric": "dot"}, "no metric 'dot'")],
)
def test_unknown_options(options, words):
    with pytest.raises(ValueError, match=words):
        normalisation(*head(), **{"scaling": "norms", **options})
