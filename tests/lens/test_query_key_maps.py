"""Maps of a small model: methods, alignment, placing, saving, and sentences for wrong calls."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.spatial import procrustes
from sklearn.manifold import trustworthiness

from attnlab import TinyTransformer
from attnlab.lens.query_key import embedding
from attnlab.lens.query_key.align import align, alignment
from attnlab.lens.query_key.collect import collect
from attnlab.lens.query_key.faithfulness import agreement
from attnlab.lens.query_key.maps import Maps, project, vectors
from attnlab.lens.query_key.normalise import distances
from attnlab.measure.memory import environment

METHODS = pytest.mark.parametrize("method", embedding.METHODS)


def model_of(seed=0, **options):
    torch.manual_seed(seed)
    options = {"dim": 12, "heads": 3, "layers": 2, "max_len": 64} | options
    return TinyTransformer(vocab=29, **options).eval()


def points_of(model, rows=5, n=11, seed=0):
    torch.manual_seed(seed)
    ids = torch.randint(0, 29, (rows, n))
    return collect(model, [ids], lambda row: [f"t{one}" for one in row.tolist()])


@pytest.fixture(scope="module")
def points():
    return points_of(model_of())


@METHODS
@pytest.mark.parametrize("dimensions", [2, 3])
def test_every_head_has_a_map(points, method, dimensions):
    maps = project(points, method, dimensions=dimensions, heads=[(0, 2), (1, 0)])
    assert list(maps) == [(0, 2), (1, 0)]
    one = maps[1, 0]
    assert (one.layer, one.head) == (1, 0)
    assert one.queries.shape == one.keys.shape == (55, dimensions)
    assert one.queries.dtype == np.float32
    assert 0.5 < one.faithfulness.trustworthiness <= 1
    assert np.isfinite(one.all).all()


@METHODS
def test_the_same_seed_gives_the_same_map(points, method):
    first, second = (project(points, method, heads=[(0, 0)])[0, 0].all for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = project(points, method, heads=[(0, 0)], seed=1)[0, 0].all
    assert np.array_equal(first, other) == (method == "pca")


def test_all_heads_by_default(points):
    maps = project(points, "pca")
    assert tuple(maps) == points.heads == tuple((i, j) for i in range(2) for j in range(3))
    assert "6 heads, pca in 2 dimensions" in repr(maps)


def normalised(points, which):
    change = project(points, "pca", heads=[which])[which].normalisation
    q, k = vectors(points[which[0]], which[1])
    return change.queries(q), change.keys(k)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_pca_is_that_of_the_normalised_vectors(points, metric):
    one = project(points, "pca", metric=metric, heads=[(0, 1)], scaling="norms")[0, 1]
    q, k = vectors(points[0], 1)
    both = np.concatenate([one.normalisation.queries(q), one.normalisation.keys(k)])
    if metric == "cosine":
        both = both / np.linalg.norm(both, axis=1, keepdims=True)
    _, _, directions = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)
    expected = (both - both.mean(axis=0)) @ directions[:2].T
    assert procrustes(one.all, expected)[2] < 1e-8
    ours = trustworthiness(both, one.all, n_neighbors=15)
    assert one.faithfulness.trustworthiness == pytest.approx(ours, abs=1e-3)


@METHODS
def test_neighbours_stay_neighbours(points, method):
    """Two clouds far apart in the full space are apart on every map."""
    draw = np.random.default_rng(0)
    cloud = np.repeat([0.0, 9.0], 30)[:, None] + draw.normal(size=(60, 5))
    start, _ = embedding.pca(cloud, 2)
    shown = start if method == "pca" else embedding.nonlinear(method, cloud, start, 7, 0)
    apart = distances(shown, shown, "euclidean")
    np.fill_diagonal(apart, np.inf)
    assert ((apart.argmin(axis=1) < 30) == (np.arange(60) < 30)).all()


def test_by_default_more_of_the_attention_is_kept(points):
    """In the full space the default keeps at least as much as any of its candidates."""
    shares = {}
    for scaling in ("attention", "correlation", "norms"):
        change = project(points, "pca", scaling=scaling, heads=[(1, 1)])[1, 1].normalisation
        q, k = vectors(points[1], 1)
        places = change.queries(q), change.keys(k)
        shares[scaling] = agreement(points[1], 1, places, "cosine")[1]
    assert shares["attention"] >= max(shares.values()) - 1e-12
    assert project(points, "pca").projection.scaling == "attention"


def test_umap_where_openmp_grants_a_single_thread():
    """Neighbours left unwritten are whatever was in memory; seen as rows far out of range."""
    program = """
import sys, types
import numpy as np
from numba.np.ufunc.parallel import _launch_threads
from attnlab.lens.query_key import embedding

class UMAP:  # which makes Numba set the number of threads, and is given neighbours
    def __init__(self, *, precomputed_knn, **options):
        which, apart, _ = precomputed_knn
        assert (which == nearest).all()
        assert np.allclose(apart, np.take_along_axis(distances, nearest, 1), atol=1e-3)

    def fit_transform(self, vectors):
        return vectors[:, :2]

_launch_threads()
sys.modules["umap"] = types.SimpleNamespace(UMAP=UMAP)
x = np.random.default_rng(0).normal(size=(601, 7)).astype(np.float32)
distances = np.linalg.norm(x[:, None] - x, axis=-1)
nearest = distances.argsort(1)[:, :15]
start, _ = embedding.pca(x, 2)
for seed in range(3):
    places = embedding.umap(x, start, 15, seed)
    assert np.allclose(embedding.by_neighbours(x, places)(x), places)
near = embedding.tsne(x, start, 0)[[1, 300, 600]] - embedding.tsne(x, start, 0)[[1, 300, 600]]
assert not near.any()
"""
    limited = {**environment(), "OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", program], env=limited, check=True)


# Alignment


def turned(places, seed=0):
    draw = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(draw.normal(size=(places.shape[1],) * 2))
    return places @ turn + 5


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_alignment_undoes_any_turn(k, seed):
    places = np.random.default_rng(seed).normal(size=(23, k))
    np.testing.assert_allclose(align(turned(places, seed), places), places, atol=1e-12)


def test_alignment_is_the_nearest():
    draw = np.random.default_rng(0)
    places, reference = draw.normal(size=(2, 23, 2))
    found = align(places, reference)
    best = ((found - reference) ** 2).sum()
    for angle in np.linspace(0, 2 * np.pi, 200):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for mirrored in (turn, turn * [1, -1]):
            other = (places - places.mean(axis=0)) @ mirrored + reference.mean(axis=0)
            assert ((other - reference) ** 2).sum() >= best - 1e-9
    np.testing.assert_allclose(
        distances(found, found, "euclidean")[0],
        distances(places, places, "euclidean")[0],
        atol=1e-7,
    )


def test_a_chain_of_maps_does_not_shrink(points):
    """Every head is turned towards the one before, and keeps the size that it has alone."""
    chained = project(points, "pca")[1, 2].all
    alone = project(points, "pca", heads=[(1, 2)])[1, 2].all
    sizes = [np.linalg.norm(places - places.mean(axis=0)) for places in (chained, alone)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-4)


def test_a_start_is_centred_and_resized():
    places = np.random.default_rng(0).normal(size=(997, 2)) + 50
    start = embedding._started(places, 10.0, seed=0)
    np.testing.assert_allclose(start.mean(axis=0), 0, atol=0.05)
    assert np.abs(start).max() == pytest.approx(10, rel=0.05)
    assert not np.array_equal(start, embedding._started(places, 10.0, seed=1))


def test_alignment_applies_to_other_points():
    places = np.random.default_rng(0).normal(size=(23, 2))
    moved = turned(places)
    turn = alignment(moved[:11], places[:11])
    np.testing.assert_allclose(turn(moved[11:]), places[11:], atol=1e-12)


def test_a_map_in_one_point_is_moved():
    reference = np.random.default_rng(0).normal(size=(5, 2))
    found = align(np.ones((5, 2)), reference)
    np.testing.assert_allclose(found, np.tile(reference.mean(axis=0), (5, 1)))
    with pytest.raises(ValueError, match="same points and dimensions"):
        align(np.ones((5, 2)), np.ones((4, 2)))


def gap(one, other):
    return float(((one.all - other.all) ** 2).mean())


@METHODS
def test_maps_are_turned_towards_the_reference(points, method):
    first = project(points, method, heads=[(0, 0)])
    later = points_of(model_of(seed=1))
    free = project(later, method, heads=[(0, 0)])
    turned_ = project(later, method, heads=[(0, 0)], reference=first)
    expected = align(turned_[0, 0].all.astype(float), first[0, 0].all.astype(float))
    np.testing.assert_allclose(turned_[0, 0].all, expected, atol=1e-3)
    assert gap(turned_[0, 0], first[0, 0]) <= gap(free[0, 0], first[0, 0])


def test_without_a_reference_each_is_turned_towards_the_one_before(points):
    maps = project(points, "pca")
    pairs = list(maps.values())
    for before, one in itertools.pairwise(pairs):
        np.testing.assert_allclose(align(one.all, before.all), one.all, atol=1e-5)


@pytest.mark.parametrize("method", ["umap", "tsne"])
def test_where_a_map_starts(points, method, monkeypatch):
    """From its own PCA turned towards the reference, or from the reference's places."""
    first = project(points, method, heads=[(0, 0)])
    later = points_of(model_of(seed=1))
    flat = project(later, "pca", heads=[(0, 0)], reference=first)
    starts = []

    def noted(method, vectors, start, *others):
        starts.append(start)
        return start

    monkeypatch.setattr(embedding, "nonlinear", noted)
    for start in ("pca", "reference"):
        project(later, method, heads=[(0, 0)], reference=first, start=start)
    np.testing.assert_allclose(starts[0], flat[0, 0].all, atol=1e-4)
    np.testing.assert_array_equal(starts[1], first[0, 0].all)


def test_a_saved_reference(points, tmp_path):
    first = project(points, "pca", heads=[(0, 0), (1, 2)])
    path = first.save(tmp_path / "maps.safetensors")
    later = points_of(model_of(seed=1))
    expected = project(later, "pca", reference=first, heads=[(1, 2)])[1, 2].all
    found = project(later, "pca", reference=path, heads=[(1, 2)])[1, 2].all
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"end in \.safetensors"):
        first.save(tmp_path / "maps.npz")


# Placing


@METHODS
def test_placing_the_mapped_tokens_gives_their_places(points, method):
    maps = project(points, method, heads=[(0, 0), (1, 1)])
    placed = maps.place(points)
    assert isinstance(placed, Maps)
    for which in maps:
        _, of, counts = np.unique(
            np.concatenate(vectors(points[which[0]], which[1])),
            axis=0,
            return_inverse=True,
            return_counts=True,
        )
        alone = counts[of] == 1  # equal vectors share the mean of their places
        assert alone.sum() > 90
        size = np.ptp(maps[which].all)
        assert np.abs(placed[which].all - maps[which].all)[alone].max() < 1e-4 * size
        assert placed[which].faithfulness is None


def test_placing_other_tokens(points):
    model = model_of()
    maps = project(points, "umap", heads=[(0, 0)])
    other = points_of(model, rows=1, n=7, seed=9)
    placed = maps.place(other)[0, 0]
    assert placed.queries.shape == (7, 2)
    q, k = normalised(points, (0, 0))
    new = maps[0, 0].normalisation.queries(vectors(other[0], 0)[0])
    nearest = distances(new, np.concatenate([q, k])).argsort(axis=1)[:, :5]
    low, high = (side(maps[0, 0].all[nearest], axis=1) for side in (np.min, np.max))
    assert ((placed.queries >= low - 1e-4) & (placed.queries <= high + 1e-4)).all()


def test_placing_another_models_tokens(points):
    maps = project(points, "pca")
    with pytest.raises(ValueError, match="another model"):
        maps.place(points_of(model_of(heads=2)))
    with pytest.raises(ValueError, match=r"another model .*\('0\.decoder"):
        maps.place(points_of(torch.nn.Sequential(model_of())))
    with pytest.raises(TypeError, match="what `collect` returns, got int"):
        maps.place(3)


# Wrong calls


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "mds"}, "no method 'mds'"),
        ({"metric": "manhattan"}, "no metric"),
        ({"scaling": "yes"}, "no scaling"),
        ({"dimensions": 4}, "should be 2 or 3"),
        ({"dimensions": 2.0}, "whole number"),
        ({"neighbours": 1}, "at least 2"),
        ({"neighbours": 110}, "collect more tokens"),
        ({"seed": -1}, "at least 0"),
        ({"start": "random"}, "no start"),
        ({"start": "reference"}, "needs a `reference`"),
        ({"heads": [(2, 0)]}, r"from \(0, 0\) to \(1, 2\)"),
        ({"heads": []}, "is empty"),
        ({"heads": (0, 1)}, r"pairs in a list, .* got \(0, 1\)"),
        ({"reference": 3}, "should be Maps"),
    ],
)
def test_wrong_options(points, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        project(points, **options)


def test_wrong_references(points):
    with pytest.raises(ValueError, match="other tokens"):
        project(points, "pca", reference=project(points_of(model_of(), seed=4), "pca"))
    with pytest.raises(ValueError, match="dimensions than 3"):
        project(points, "pca", dimensions=3, reference=project(points, "pca"))
    with pytest.raises(TypeError, match="what `collect` returns"):
        project([1, 2])
    with pytest.raises(KeyError, match="no map of head"):
        project(points, "pca", heads=[(0, 0)])[1, 0]


def test_few_points():
    points = points_of(model_of(), rows=1, n=1)
    maps = project(points, "pca")
    assert maps[0, 0].all.shape == (2, 2)
    assert np.isfinite(maps[0, 0].all).all()
    for method in ("umap", "tsne"):
        with pytest.raises(ValueError, match='method="pca"'):
            project(points, method)


@METHODS
def test_a_head_of_zeros(method):
    model = model_of()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.zero_()
    maps = project(points_of(model), method, heads=[(0, 0)])
    assert not maps[0, 0].all.any()
    found = maps[0, 0].faithfulness
    assert np.isnan([found.rank_correlation, found.top_share, found.chance]).all()


def test_progress(points):
    told = []
    project(points, "pca", progress=lambda done, of: told.append((done, of)))
    assert told == [(i, 6) for i in range(1, 7)]
