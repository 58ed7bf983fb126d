"""Maps of the queries and keys of every head, each with the numbers that say how far to trust it.

points = collect(model, batches, texts)
maps = project(points, "umap")
maps[2, 0].faithfulness.sentence()
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from attnlab.core.files import checked_place, in_place_of
from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.lens.query_key import embedding
from attnlab.lens.query_key.align import alignment
from attnlab.lens.query_key.faithfulness import Faithfulness, faithfulness, kept_attention
from attnlab.lens.query_key.normalise import METRICS, SCALINGS, Normalisation, normalisation
from attnlab.lens.query_key.points import LayerPoints, Points

Head = tuple[int, int]


@dataclass(frozen=True, eq=False)
class HeadMap:
    """One head's map: ``queries`` (N, 2 or 3) and ``keys`` (M, 2 or 3), both float32.

    ``faithfulness`` is None for tokens that were placed on a map made without them.
    """

    layer: int
    head: int
    queries: np.ndarray
    keys: np.ndarray
    normalisation: Normalisation
    faithfulness: Faithfulness | None
    place: embedding.Placing | None = field(default=None, repr=False)

    @property
    def all(self) -> np.ndarray:
        """(N + M, k): the queries, then the keys."""
        return np.concatenate([self.queries, self.keys])


@dataclass(frozen=True)
class Projection:
    """How maps are made; ``project`` says what each option means."""

    method: str = "umap"
    dimensions: int = 2
    metric: str = "cosine"
    scaling: str = "attention"
    neighbours: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, embedding.METHODS)
        check_choice("metric", self.metric, METRICS)
        check_choice("scaling", self.scaling, SCALINGS)
        if check_integer("`dimensions`", self.dimensions) not in (2, 3):
            raise ValueError(f"`dimensions` should be 2 or 3, got {self.dimensions}")
        check_integer("`neighbours`", self.neighbours, at_least=2)
        check_integer("`seed`", self.seed, at_least=0)

    def check(self, layer: LayerPoints) -> None:
        """Whether a layer has enough points."""
        count = len(layer.query_tokens) + len(layer.key_tokens)
        if self.method == "umap" and count <= self.neighbours:
            raise ValueError(
                f"UMAP looks at {self.neighbours} neighbours of each point, and layer "
                f"{layer.name!r} has {count} points; collect more tokens, take "
                'method="pca", or lower `neighbours`'
            )
        if self.method == "tsne" and count < 5:
            raise ValueError(
                f"t-SNE needs at least 5 points, and layer {layer.name!r} has {count}; collect "
                'more tokens, or take method="pca"'
            )


@dataclass(frozen=True, eq=False)
class Maps(Mapping[Head, HeadMap]):
    """The maps of several heads: ``maps[layer, head]``."""

    points: Points
    heads: Mapping[Head, HeadMap]
    projection: Projection

    @property
    def method(self) -> str:
        return self.projection.method

    @property
    def metric(self) -> str:
        return self.projection.metric

    @property
    def dimensions(self) -> int:
        return self.projection.dimensions

    @property
    def seed(self) -> int:
        return self.projection.seed

    def __getitem__(self, which: Head) -> HeadMap:
        if which not in self.heads:
            raise KeyError(
                f"there is no map of head {which}; there are {len(self)}, the first "
                f"of {next(iter(self.heads))}"
            )
        return self.heads[which]

    def __iter__(self) -> Iterator[Head]:
        return iter(self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    def place(self, points: Points) -> "Maps":
        """Place the tokens of other sequences, collected from the same model, on these maps.

        PCA projects them as it projected the others; on a map of UMAP or t-SNE each is placed
        between the five mapped vectors that are nearest to it.
        """
        if not isinstance(points, Points):
            raise TypeError(f"`points` are what `collect` returns, got {type(points).__name__}")
        _same_heads(self.points, points)
        placed = {which: _placed(known, points[which[0]]) for which, known in self.heads.items()}
        return replace(self, points=points, heads=placed)

    def save(self, path: str | Path) -> Path:
        """Write the places (not the vectors) to a ``.safetensors`` file, as a reference."""
        from safetensors.numpy import save_file

        target = checked_place(path)
        if target.suffix != ".safetensors":
            raise ValueError(f"`path` should end in .safetensors, got {str(path)!r}")
        arrays = {f"{layer}.{head}": one.all for (layer, head), one in self.heads.items()}
        with in_place_of(target) as beside:
            save_file(arrays, beside, metadata={"tokens": json.dumps(_tokens_of(self.points))})
        return target

    def __repr__(self) -> str:
        return (
            f"<Maps: {len(self)} heads, {self.method} in {self.dimensions} dimensions, "
            f"{self.metric} distance, seed {self.seed}>"
        )


def project(
    points: Points,
    method: str = Projection.method,
    *,
    dimensions: int = Projection.dimensions,
    metric: str = Projection.metric,
    scaling: str = Projection.scaling,
    neighbours: int = Projection.neighbours,
    seed: int = Projection.seed,
    heads: Sequence[Head] | None = None,
    reference: Maps | str | Path | None = None,
    start: str = "pca",
    progress: Callable[[int, int], None] | None = None,
) -> Maps:
    """Map queries and keys of every head together into two or three dimensions.

    ``method``      "pca", "umap" or "tsne"
    ``metric``      "cosine" or "euclidean": the distance in the full space
    ``scaling``     how the factor between queries and keys is chosen: "attention", "correlation",
                    "norms" or "none" (see ``normalise``)
    ``neighbours``  of UMAP, and those that trustworthiness and continuity look at
    ``seed``        draws what UMAP and t-SNE leave to chance; PCA leaves nothing to it
    ``heads``       pairs (layer, head); all if not given
    ``reference``   maps of the same tokens (another training step, seed or machine), or the file
                    that ``Maps.save`` wrote, towards which each head's map is turned. Without one
                    each is turned towards the map of the head before it
    ``start``       "pca", or "reference": UMAP and t-SNE start from the reference's places, so that
                    the points of a film move as little as they need to
    ``progress``    called with (maps done, maps in all)
    """
    how = Projection(method, dimensions, metric, scaling, neighbours, seed)
    if not isinstance(points, Points):
        raise TypeError(f"`points` are what `collect` returns, got {type(points).__name__}")
    check_choice("start", start, ("pca", "reference"))
    if start == "reference" and (reference is None or method == "pca"):
        raise ValueError('start="reference" needs a `reference`, and a method other than "pca"')
    wanted = _chosen(points, heads)
    for at in {layer for layer, _ in wanted}:
        how.check(points[at])
    known = {} if reference is None else _places_of(reference, points, dimensions)
    found: dict[Head, HeadMap] = {}
    towards: np.ndarray | None = None
    for done, which in enumerate(wanted):
        layer = points[which[0]]
        towards = known.get(which, towards)
        if towards is not None and len(towards) != len(layer.query_tokens) + len(layer.key_tokens):
            towards = None
        one = _map(layer, which, how, towards, from_towards=start == "reference")
        found[which], towards = one, one.all
        if progress is not None:
            progress(done + 1, len(wanted))
    return Maps(points, found, how)


def vectors(layer: LayerPoints, head: int) -> tuple[np.ndarray, np.ndarray]:
    """The queries (N, d) and keys (M, d) of one head in float32, before any change."""
    return layer.queries[head].astype(np.float32), layer.keys[head].astype(np.float32)


def _map(
    layer: LayerPoints,
    which: Head,
    how: Projection,
    towards: np.ndarray | None,
    from_towards: bool,
) -> HeadMap:
    q, k = vectors(layer, which[1])
    kept = kept_attention(layer, which[1], how.metric) if how.scaling == "attention" else None
    change = normalisation(q, k, how.scaling, how.metric, kept)
    q, k = change.queries(q), change.keys(k)
    both = embedding.prepared(np.concatenate([q, k]), how.metric)
    places, place = embedding.pca(both, how.dimensions)
    if how.method != "pca" and np.ptp(places, axis=0).any():
        start = places if towards is None else alignment(places, towards)(places)
        if from_towards and towards is not None:
            start = towards
        places = embedding.nonlinear(how.method, both, start, how.neighbours, how.seed)
        place = embedding.by_neighbours(both, places)
    if towards is not None:
        turn = alignment(places, towards)
        places, place = turn(places), _then(place, turn)
    places = np.asarray(places, dtype=np.float32)
    mapped = places[: len(q)], places[len(q) :]
    trust = faithfulness(layer, which[1], (q, k), mapped, how.neighbours, how.metric)
    prepare = partial(embedding.prepared, metric=how.metric)
    return HeadMap(*which, *mapped, change, trust, _then(prepare, place))


def _then(first: embedding.Placing, second: embedding.Placing) -> embedding.Placing:
    return lambda new: second(first(new))


def _placed(known: HeadMap, layer: LayerPoints) -> HeadMap:
    assert known.place is not None
    q, k = vectors(layer, known.head)
    change = known.normalisation
    queries, keys = (
        np.asarray(known.place(x), dtype=np.float32) for x in (change.queries(q), change.keys(k))
    )
    return replace(known, queries=queries, keys=keys, faithfulness=None, place=None)


def _chosen(points: Points, heads: Sequence[Head] | None) -> list[Head]:
    if heads is None:
        return list(points.heads)
    if any(not isinstance(pair, Sequence) for pair in heads):
        raise TypeError(f"`heads` should be pairs in a list, [(layer, head), …], got {heads!r}")
    chosen = [tuple(pair) for pair in heads]
    for pair in chosen:
        if pair not in points.heads:
            raise ValueError(
                f"`heads` holds {pair}, and the heads are (layer, head) from (0, 0) to "
                f"{points.heads[-1]}"
            )
    if not chosen:
        raise ValueError("`heads` is empty; leave it out to map all")
    return [(int(layer), int(head)) for layer, head in chosen]


def _tokens_of(points: Points) -> list[list[object]]:
    """What two sets of points must share for their maps to be compared point by point."""
    return [
        [layer.name, layer.heads, list(layer.query_tokens.texts), list(layer.key_tokens.texts)]
        for layer in points
    ]


def _same_heads(known: Points, new: Points) -> None:
    layers = [[(x.name, x.heads, x.queries.shape[-1]) for x in points] for points in (known, new)]
    if layers[0] != layers[1]:
        raise ValueError(
            "these points are of another model than the maps: its first layers (name, heads, "
            f"width) are {layers[1][:3]}, and those of the maps {layers[0][:3]}"
        )


def _places_of(reference: Maps | str | Path, points: Points, k: int) -> dict[Head, np.ndarray]:
    if isinstance(reference, Maps):
        tokens, places = _tokens_of(reference.points), {w: m.all for w, m in reference.items()}
    elif isinstance(reference, str | Path):
        tokens, places = _saved(reference)
    else:
        raise TypeError(
            f"`reference` should be Maps or the path of saved ones, got {type(reference).__name__}"
        )
    if tokens != _tokens_of(points):
        raise ValueError(
            "`reference` is a map of other tokens or of another model; maps are aligned token by "
            "token, so collect the same sequences for both"
        )
    if any(one.shape[1] != k for one in places.values()):
        raise ValueError(f"`reference` has another number of dimensions than {k}")
    return places


def _saved(path: str | Path) -> tuple[list[list[object]], dict[Head, np.ndarray]]:
    """The tokens and places that ``Maps.save`` wrote."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}; Maps.save writes one")
    try:
        with safe_open(path, framework="numpy") as file:
            tokens = json.loads((file.metadata() or {}).get("tokens", "null"))
            names = list(file.keys())
            return tokens, {_head(name): file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a file that Maps.save wrote, or is damaged ({error})"
        ) from error


def _head(name: str) -> Head:
    layer, head = name.split(".")
    return int(layer), int(head)
