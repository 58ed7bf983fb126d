"""What the query-key space shows, checked and described: maps, their points, their sentences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab_widgets.space_bytes import (
    KEPT,
    Blocks,
    box_of,
    label_of,
    pack_attention,
    pack_by_position,
    pack_norms,
    pack_places,
    pack_tokens,
)

METHODS = {"pca": "PCA", "umap": "UMAP", "tsne": "t-SNE"}
FIGURES = (
    "trustworthiness",
    "continuity",
    "rank_correlation",
    "top_share",
    "chance",
    "other_sequences",
)
_WANTED = (
    "`maps` must be what attnlab.lens.query_key.project returns, a list of these, or a dict "
    "{training step: maps}"
)
MOST_TYPED = 512


def checked(maps: Any) -> tuple[list[str], list[Any], bool]:
    """Names of the maps, the maps, and whether they are the steps of a film."""
    film = isinstance(maps, Mapping)
    if film or isinstance(maps, list | tuple) and not hasattr(maps, "method"):
        several = list(maps.values()) if film else list(maps)
        if not several:
            raise ValueError(f"`maps` is empty; {_WANTED}")
    else:
        several = [maps]
    for one in several:
        if not all(hasattr(one, name) for name in ("points", "method", "dimensions", "heads")):
            raise TypeError(f"{_WANTED}; got {type(one).__name__}")
    names = [str(step) for step in maps] if film else [name_of(one) for one in several]
    for name, one in zip(names, several, strict=True):
        _fits(name if len(several) > 1 else "", one, several[0], film)
    return names, several, film


def name_of(maps: Any) -> str:
    return f"{METHODS.get(maps.method, maps.method)} {maps.dimensions}-D"


def _fits(name: str, maps: Any, first: Any, film: bool) -> None:
    """Its heads have finite coordinates for every token; further maps have the first one's."""
    which = f"{'training step ' if film else ''}{name}: " if name else ""
    if not len(maps.heads):
        raise ValueError(f"{which}`maps` holds no head; project at least one")
    if list(maps.heads) != list(first.heads):
        raise ValueError(
            f"{which}other heads are mapped than on the first map; project the same heads= each "
            "time"
        )
    for layer, head in maps.heads:
        mine, theirs = maps.points[layer], first.points[layer]
        for side in ("query_tokens", "key_tokens"):
            if not _same(getattr(mine, side), getattr(theirs, side)):
                raise ValueError(
                    f"{which}layer {layer} has other tokens than on the first map; "
                    + (
                        "collect every training step on the same batches"
                        if film
                        else "a list must hold maps of the same points"
                    )
                )
        one = maps[layer, head]
        wide = 3 if maps.dimensions == 3 else 2
        sides = ((one.queries, mine.query_tokens), (one.keys, mine.key_tokens))
        for coordinates, tokens in sides:
            _finite(f"{which}layer {layer}, head {head}", coordinates, len(tokens.texts), wide)


def _finite(where: str, coordinates: Any, count: int, wide: int) -> None:
    found = np.asarray(coordinates)
    if found.shape != (count, wide):
        raise ValueError(
            f"{where}: coordinates must be ({count}, {wide}), a row for each token, "
            f"got {found.shape}; was the map made of other points?"
        )
    broken = count - int(np.isfinite(found).all(1).sum())
    if broken:
        raise ValueError(
            f"{where}: {broken} of {count} points have coordinates that are NaN or infinite; "
            "project again without these queries and keys"
        )


def _same(mine: Any, theirs: Any) -> bool:
    if mine is theirs:
        return True
    return (
        tuple(mine.texts) == tuple(theirs.texts)
        and np.array_equal(mine.sequence, theirs.sequence)
        and np.array_equal(mine.position, theirs.position)
    )


def packed_space(
    names: Sequence[str],
    several: Sequence[Any],
    film: bool,
    kinds: Mapping[tuple[int, int], str] | None,
) -> tuple[dict[str, Any], bytes]:
    """A description that is plain JSON, and the blocks that it points into."""
    blocks = Blocks()
    sets: list[Any] = []
    points: list[Any] = []
    for maps in several:
        if not any(maps.points is one for one in points):
            points.append(maps.points)
    described = [_points(one, several[0].heads, sets, blocks) for one in points]
    heads = list(several[0].heads)
    boxes = [
        {at: box_of([c for maps in group for c in (maps[at].queries, maps[at].keys)]) for at in heads}
        for group in ([several] * len(several) if film else [[maps] for maps in several])
    ]
    space = {
        "film": film,
        "kept": KEPT,
        "points": described,
        "tokens": [pack_tokens(one, blocks) for one in sets],
        "statistics": sorted({name for one in described for x in one["layers"] for name in x["statistics"]}),
        "classes": any(one.labels is not None for one in sets),
        "kinds": _kinds(kinds, heads),
        "maps": [
            {
                "name": name,
                "points": next(i for i, one in enumerate(points) if one is maps.points),
                "method": maps.method,
                "metric": maps.metric,
                "dimensions": int(maps.dimensions),
                "seed": int(maps.seed),
                "heads": [_head(maps[at], at, box[at], blocks) for at in heads],
            }
            for name, maps, box in zip(names, several, boxes, strict=True)
        ],
    }
    return space, blocks.bytes()


def _points(
    points: Any, heads: Sequence[tuple[int, int]], sets: list[Any], blocks: Blocks
) -> dict[str, Any]:
    layers = []
    for at, layer in enumerate(points):
        mapped = [head for number, head in heads if number == at]
        if not mapped:
            layers.append({"name": layer.name, "statistics": {}, "heads": {}})
            continue
        _own_sequences_only(at, layer)
        layers.append(
            {
                "name": layer.name,
                "q": _set(layer.query_tokens, sets),
                "k": _set(layer.key_tokens, sets),
                "outside": layer.outside,
                "statistics": {
                    name: [_number(x) for x in values]
                    for name, values in layer.statistics.items()
                    if values is not None
                },
                "heads": {
                    str(head): {
                        "attention": pack_attention(layer, head, blocks),
                        "norms": pack_norms(layer, head, blocks),
                        "by_position": pack_by_position(layer.by_position[head], blocks),
                    }
                    for head in mapped
                },
            }
        )
    return {"layers": layers, "sampled": points.sampled}


def _own_sequences_only(at: int, layer: Any) -> None:
    rows = np.asarray(layer.strongest)
    own = layer.query_tokens.sequence[None, :, None]
    if ((rows >= 0) & (layer.key_tokens.sequence[rows] != own)).any():
        raise ValueError(
            f"layer {at}: `strongest` pairs a query with a key of another sequence, which it never "
            "attended to; collect the points again"
        )


def _set(tokens: Any, sets: list[Any]) -> int:
    for at, one in enumerate(sets):
        if _same(one, tokens):
            return at
    sets.append(tokens)
    return len(sets) - 1


def _number(value: Any) -> float | None:
    return float(f"{float(value):.4g}") if np.isfinite(value) else None


def _kinds(kinds: Any, heads: Sequence[tuple[int, int]]) -> dict[str, str]:
    if kinds is None:
        return {}
    if not isinstance(kinds, Mapping):
        raise TypeError(
            "`kinds` must map (layer, head) to a kind, such as {(1, 3): 'induction'}, "
            f"got {type(kinds).__name__}"
        )
    for at in kinds:
        if at not in heads:
            raise ValueError(f"`kinds` names the head {at}, which is on no map")
    return {f"{layer},{head}": str(kind) for (layer, head), kind in kinds.items()}


def _head(
    one: Any, at: tuple[int, int], box: tuple[np.ndarray, float], blocks: Blocks
) -> dict[str, Any]:
    figures = {name: _number(getattr(one.faithfulness, name)) for name in FIGURES}
    return {
        "is": list(at),
        "at": pack_places(one.queries, one.keys, box, blocks),
        "scaling": _number(one.scaling),
        "faithfulness": figures,
        "said": said_of(figures),
    }


def said_of(figures: Mapping[str, float | None]) -> str:
    """One sentence on how far a map can be trusted."""
    share, chance = figures["top_share"], figures["chance"]
    if share is None or chance is None:
        return "How faithful this map is could not be measured."
    above = (share - chance) / (1 - chance) if chance < 1 else 0
    verdict = "well" if above >= 0.6 else "in part" if above >= 0.25 else "poorly"
    return (
        f"This map shows attention {verdict}: of the keys that a query attends to most, "
        f"{100 * share:.0f} % are among its nearest keys here ({100 * chance:.0f} % by chance)."
    )


def placed_in(typed: Any, maps: Any) -> dict[str, Any]:
    """The tokens of a typed text in the boxes of ``maps``, for the page."""
    if not hasattr(typed, "points") or not hasattr(typed, "heads"):
        raise TypeError(
            "`place` must return maps of the typed text, such as Maps.place returns, "
            f"got {type(typed).__name__}"
        )
    layer = typed.points[typed.heads[0][0]]
    texts = layer.query_tokens.texts
    if len(texts) > MOST_TYPED:
        raise ValueError(f"the text has {len(texts):,} tokens, more than {MOST_TYPED}; shorten it")
    heads = {}
    for at in maps.heads:
        if at not in typed.heads:
            continue
        one, points = typed[at], typed.points[at[0]]
        _finite(f"layer {at[0]}, head {at[1]}", one.queries, len(texts), int(maps.dimensions))
        middle, half = box_of([maps[at].queries, maps[at].keys])
        strongest = np.asarray(points.strongest[at[1]])[:, :KEPT]
        weights = np.asarray(points.weights[at[1]], np.float32)[:, :KEPT]
        heads[f"{at[0]},{at[1]}"] = {
            "queries": np.round((one.queries - middle) / half, 4).tolist(),
            "keys": np.round((one.keys - middle) / half, 4).tolist(),
            "strongest": [
                [[int(j), round(float(w), 3)] for j, w in zip(*row, strict=True) if j >= 0]
                for row in zip(strongest, weights, strict=True)
            ],
        }
    return {"tokens": [label_of(text) for text in texts], "heads": heads}
