"""From vectors of width d to places in two or three dimensions: PCA, UMAP or t-SNE.

The methods are those of scikit-learn and umap-learn. With the cosine metric rows are brought to
length 1 first; Euclidean distance between them then orders pairs as cosine distance does (its
square is twice the cosine distance).

UMAP and t-SNE start from given places (those of PCA, as a rule) and a little noise, rather than
from random places: maps of one set of vectors then look alike on different machines.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch

from attnlab.lens.query_key.normalise import unit

METHODS = ("pca", "umap", "tsne")
EPOCHS = 200
PERPLEXITY = 30
_PLACED_BY = 5  # neighbours that place a new point

Placing = Callable[[np.ndarray], np.ndarray]
"""(N, d) -> (N, k): where new vectors are placed on a map."""


def prepared(vectors: np.ndarray, metric: str) -> np.ndarray:
    """float32, and of length 1 for the cosine metric."""
    return np.ascontiguousarray(unit(vectors) if metric == "cosine" else vectors, dtype=np.float32)


def pca(vectors: np.ndarray, dimensions: int) -> tuple[np.ndarray, Placing]:
    """Places (P, k) of vectors (P, d), and the projection itself. Vectors that span fewer than k
    directions get zeros in the rest."""
    from sklearn.decomposition import PCA

    kept = min(dimensions, *vectors.shape)
    fitted = PCA(kept, svd_solver="full" if len(vectors) < 3 else "covariance_eigh")
    with np.errstate(invalid="ignore"):  # the share of variance, where there is none
        fitted.fit(vectors)

    def place(new: np.ndarray) -> np.ndarray:
        return np.pad(fitted.transform(new), ((0, 0), (0, dimensions - kept)))

    return place(vectors), place


def umap(vectors: np.ndarray, start: np.ndarray, neighbours: int, seed: int) -> np.ndarray:
    """Places (P, k) by UMAP (McInnes, Healy and Melville, arXiv:1802.03426) with min_dist 0.1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap-learn remarks on its own dependencies, and on seeds
        from umap import UMAP

        apart, which = _nearest(vectors, neighbours)
        fitted = UMAP(
            n_components=start.shape[1],
            n_neighbors=neighbours,
            precomputed_knn=(which, apart, None),
            force_approximation_algorithm=True,  # else these neighbours are computed once more
            init=_started(start, 10.0, seed),
            n_epochs=EPOCHS,
            min_dist=0.1,
            random_state=seed,
            n_jobs=1,
        )
        return np.asarray(fitted.fit_transform(vectors), dtype=np.float64)


def _one_thread() -> AbstractContextManager[object]:
    """One OpenMP thread for scikit-learn's search of neighbours.

    Numba sets the number of OpenMP's threads for the whole process. Where OMP_THREAD_LIMIT grants
    fewer, the search would leave the rows of the others unwritten.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="openmp")
    return limits


def _nearest(vectors: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances to the nearest vectors and their rows (P, count), the vector itself first."""
    from sklearn.neighbors import NearestNeighbors

    with _one_thread():
        found = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(vectors)
        apart, which = found.kneighbors(vectors)
    return apart.astype(np.float32), which.astype(np.int32)


def tsne(vectors: np.ndarray, start: np.ndarray, seed: int) -> np.ndarray:
    """Places (P, k) by t-SNE (van der Maaten and Hinton, JMLR 2008), perplexity 30 (less for fewer
    than 91 points)."""
    from sklearn.manifold import TSNE

    fitted = TSNE(
        n_components=start.shape[1],
        perplexity=min(PERPLEXITY, (len(vectors) - 1) / 3),
        init=_started(start, 1e-4, seed),
        random_state=seed,
        n_jobs=1,
    )
    with _one_thread():
        return np.asarray(fitted.fit_transform(vectors), dtype=np.float64)


def nonlinear(
    method: str, vectors: np.ndarray, start: np.ndarray, neighbours: int, seed: int
) -> np.ndarray:
    """Places (P, k) by the method "umap" or "tsne".

    umap-learn can change the number of threads of the whole process, PyTorch's included,
    which makes small models many times slower on a busy machine; PyTorch's is put back.
    """
    threads = torch.get_num_threads()
    try:
        if method == "umap":
            return umap(vectors, start, neighbours, seed)
        return tsne(vectors, start, seed)
    finally:
        torch.set_num_threads(threads)


def by_neighbours(vectors: np.ndarray, places: np.ndarray) -> Placing:
    """New vectors at the mean of the places of their five nearest vectors, weighted by nearness.

    A vector that is on the map already is placed where it is.
    """
    from sklearn.neighbors import KNeighborsRegressor

    count = min(_PLACED_BY, len(vectors))
    fitted = KNeighborsRegressor(count, weights="distance", algorithm="brute").fit(vectors, places)

    def place(new: np.ndarray) -> np.ndarray:
        with _one_thread():
            return np.asarray(fitted.predict(new))

    return place


def _started(start: np.ndarray, size: float, seed: int) -> np.ndarray:
    """The start, centred, as large as the method wants it, and a hundredth of noise."""
    start = start - start.mean(axis=0)
    largest = np.abs(start).max()
    noise = np.random.default_rng(seed).normal(scale=0.01, size=start.shape)
    return ((start / (largest if largest > 0 else 1) + noise) * size).astype(np.float32)
