"""What a map keeps: against scikit-learn, SciPy and counting by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.manifold import trustworthiness

from attnlab.lens.query_key.faithfulness import (
    TOP,
    agreement,
    faithfulness,
    from_other_sequences,
    kept_neighbours,
    pooled_correlation,
    rank_correlations,
    spread,
)
from attnlab.lens.query_key.normalise import distances
from attnlab.lens.query_key.points import LayerPoints, Mask, Tokens


def tokens(lengths):
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    return Tokens(tuple(map(str, position)), sequence, position)


def points(lengths=(11, 17, 13), heads=2, width=5, causal=True, seed=0):
    draw = np.random.default_rng(seed)
    table = tokens(lengths)
    n = len(table)
    queries, keys = draw.normal(size=(2, heads, n, width)).astype(np.float32)
    masks = [Mask.of(np.tril(np.ones((m, m), dtype=bool))) if causal else None for m in lengths]
    return LayerPoints(
        name="layer",
        queries=queries,
        keys=keys,
        value_norms=np.ones((heads, n), dtype=np.float32),
        scale=np.full(heads, width**-0.5),
        strongest=np.zeros((heads, n, 8), dtype=np.int32),
        weights=np.zeros((heads, n, 8), dtype=np.float16),
        masks=tuple(masks),
        by_position=np.zeros((heads, 11, 11), dtype=np.float32),
        statistics={},
        outside=None,
        query_tokens=table,
        key_tokens=table,
    )


def test_neighbours_against_scikit_learn():
    draw = np.random.default_rng(0)
    full = draw.normal(size=(83, 7))
    shown = full[:, :2] + 0.1 * draw.normal(size=(83, 2))
    rows = np.arange(83)
    in_full, on_map = (distances(x, x, "euclidean") for x in (full, shown))
    for k in (1, 5, 15):
        ours = kept_neighbours(in_full, on_map, rows, k)
        assert ours == pytest.approx(trustworthiness(full, shown, n_neighbors=k), abs=1e-12)
        ours = kept_neighbours(on_map, in_full, rows, k)
        assert ours == pytest.approx(trustworthiness(shown, full, n_neighbors=k), abs=1e-12)
    assert kept_neighbours(in_full, in_full, rows, 5) == 1


def test_a_random_map_keeps_half():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(2, 401, 3))
    apart = [distances(each, each, "euclidean") for each in (x, y)]
    assert kept_neighbours(*apart, np.arange(401), 5) == pytest.approx(0.5, abs=0.03)


def test_some_rows_speak_for_all():
    draw = np.random.default_rng(0)
    full = draw.normal(size=(997, 5))
    shown = full[:, :2]
    rows = spread(997, 200)
    some = [distances(x[rows], x, "euclidean") for x in (full, shown)]
    exact = trustworthiness(full, shown, n_neighbors=5)
    assert kept_neighbours(*some, rows, 5) == pytest.approx(exact, abs=0.02)
    assert len(rows) == 200
    assert rows[0] == 0
    assert rows[-1] == 996


def test_too_few_points_for_neighbours():
    apart = np.zeros((3, 3))
    assert np.isnan(kept_neighbours(apart, apart, np.arange(3), 5))


def test_rank_correlations_against_scipy():
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 7, size=(2, 19, 23)).astype(float)  # with ties
    allowed = draw.random((19, 23)) < 0.6
    found = rank_correlations(x, y, allowed)
    for row in range(19):
        one = spearmanr(x[row, allowed[row]], y[row, allowed[row]]).statistic
        assert found[row] == pytest.approx(one)


def test_rows_without_a_rank_correlation():
    x = np.array([[1.0, 2, 3], [1, 1, 1], [1, 2, 3]])
    y = np.array([[3.0, 2, 1], [1, 2, 3], [1, 2, 3]])
    allowed = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]], dtype=bool)
    np.testing.assert_allclose(rank_correlations(x, y, allowed), [-1, np.nan, np.nan])


def places(layer, head=0):
    return layer.queries[head], layer.keys[head]


@pytest.mark.parametrize("causal", [True, False])
def test_agreement_by_counting(causal):
    layer = points(causal=causal)
    q, k = places(layer)
    correlations, hits, chances = [], [], []
    for sequence in range(3):
        own = np.flatnonzero(layer.query_tokens.sequence == sequence)
        for i in own:
            seen = [j for j in own if j <= i or not causal]
            scores = np.array([q[i] @ k[j] for j in seen])
            apart = np.array([np.linalg.norm(q[i] - k[j]) for j in seen])
            if len(seen) > 2:
                correlations.append(spearmanr(scores, apart).statistic)
            if len(seen) > TOP:
                strong, near = np.argsort(-scores)[:TOP], np.argsort(apart)[:TOP]
                hits.append(len(set(strong) & set(near)) / TOP)
                chances.append(TOP / len(seen))
    expected = [np.mean(each) for each in (correlations, hits, chances)]
    np.testing.assert_allclose(agreement(layer, 0, (q, k)), expected, atol=1e-6)


def test_a_map_whose_nearest_are_the_strongest():
    """Unit vectors in two dimensions that are their own map."""
    layer = points(width=2, causal=False)
    for vectors in (layer.queries, layer.keys):
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    correlation, share, chance = agreement(layer, 1, places(layer, 1))
    assert (correlation, share) == (pytest.approx(-1), 1)
    assert chance == pytest.approx(np.average([TOP / 11, TOP / 17, TOP / 13], weights=[11, 17, 13]))


def test_a_random_map_shares_what_chance_gives():
    layer = points(lengths=(61, 67), causal=False)
    draw = np.random.default_rng(1)
    shown = draw.normal(size=(2, 128, 2))
    correlation, share, chance = agreement(layer, 0, tuple(shown))
    assert correlation == pytest.approx(0, abs=0.05)
    assert share == pytest.approx(chance, abs=0.03)


def test_nearest_from_other_sequences():
    layer = points(lengths=(7, 7, 7))
    apart = np.repeat(np.arange(3.0), 7)[:, None] * 10 + np.zeros((21, 2))
    assert from_other_sequences(layer, (apart, apart)) == 0
    assert from_other_sequences(layer, (apart, np.roll(apart, 7, axis=0))) == 1
    layer = points(lengths=(3, 3))  # TOP is 5 of 6 keys, at most 3 of which are its own
    here = np.zeros((6, 2))
    assert from_other_sequences(layer, (here, here)) == pytest.approx(0.5, abs=0.1)


def test_pooled_is_spearmans_over_all_pairs():
    layer = points()
    q, k = places(layer)
    pairs = [
        (1 - q[i] @ k[j] / np.linalg.norm(q[i]) / np.linalg.norm(k[j]), q[i] @ k[j])
        for i in range(41)
        for j in range(41)
        if layer.query_tokens.sequence[i] == layer.query_tokens.sequence[j] and j <= i
    ]
    expected = spearmanr(*zip(*pairs, strict=True)).statistic
    assert pooled_correlation(layer, 0, (q, k)) == pytest.approx(expected, abs=1e-6)


def test_the_whole_and_its_sentence():
    layer = points(width=2, causal=False)
    found = faithfulness(layer, 0, places(layer), places(layer), 5, "euclidean")
    assert found.trustworthiness == found.continuity == 1
    assert found.full_correlation == pytest.approx(found.rank_correlation)
    sentence = found.sentence()
    assert f"trustworthiness {found.trustworthiness:.2f}" in sentence
    assert f"by chance {found.chance:.0%}".replace("%", " %") in sentence
    assert "−" in sentence or found.rank_correlation >= 0


def test_the_full_space_is_that_of_the_vectors_and_not_of_the_map():
    layer = points(causal=False)
    full = places(layer)
    flat = full[0][:, :2], full[1][:, :2]
    found = faithfulness(layer, 0, full, flat, 5, "cosine")
    assert found.full_correlation == pytest.approx(agreement(layer, 0, full, "cosine")[0])
    assert found.rank_correlation == pytest.approx(agreement(layer, 0, flat)[0])
    assert found.full_correlation != pytest.approx(found.rank_correlation, abs=0.05)


def test_one_token():
    layer = points(lengths=(1,))
    found = faithfulness(layer, 0, places(layer), places(layer))
    assert np.isnan([found.trustworthiness, found.rank_correlation, found.top_share]).all()
    assert "undefined" in found.sentence()
