"""What the query-key space shows, checked and described: maps, their points, their sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.core.arguments import check_list
from attnlab.lens.head_kinds.kinds import Heads
from attnlab.lens.query_key.maps import HeadMap, Maps
from attnlab.lens.query_key.points import LayerPoints, Points, Tokens
from attnlab_widgets.query_key_space.bytes import (
    KEPT,
    WEIGHT_STEPS,
    Blocks,
    box_of,
    kept,
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
    "full_correlation",
    "top_share",
    "chance",
    "other_sequences",
)
_WANTED = (
    "`maps` should be what attnlab.lens.query_key.maps.project returns, a list of these, or a dict "
    "{training step: maps}"
)
TRAINING = "Training step"
MOST_TYPED = 512
Head = tuple[int, int]
Box = tuple[np.ndarray, float]


def checked(maps: Any) -> tuple[list[str], list[Maps], bool]:
    """Names of the maps, the maps, and whether they are the steps of a film."""
    film = isinstance(maps, Mapping) and not isinstance(maps, Maps)
    several = _several(maps)
    if not several:
        raise ValueError(f"`maps` is empty; {_WANTED}")
    for one in several:
        if not isinstance(one, Maps):
            raise TypeError(f"{_WANTED}, got {type(one).__name__}")
    names = [str(step) for step in maps] if film else [name_of(one) for one in several]
    for name, one in zip(names, several, strict=True):
        where = f"{film_of(names).lower() + ' ' if film else ''}{name}: " if names[1:] else ""
        _fits(where, one, several[0], film)
    return names, several, film


def film_of(names: Sequence[str]) -> str:
    """What the slider of a film is called: numbers are training steps, other names are maps."""
    return TRAINING if all(name.isdecimal() for name in names) else "Map"


def _several(maps: Any) -> list[Any]:
    if isinstance(maps, Maps):
        return [maps]
    return list(maps.values()) if isinstance(maps, Mapping) else check_list("maps", maps)


def name_of(maps: Maps) -> str:
    return f"{METHODS.get(maps.method, maps.method)} {maps.dimensions}-D"


def _fits(where: str, maps: Maps, first: Maps, film: bool) -> None:
    """Its heads have finite coordinates for every token; further maps have the first one's."""
    if not len(maps):
        raise ValueError(f"{where}`maps` holds no head; project at least one")
    if list(maps) != list(first):
        raise ValueError(
            f"{where}other heads are mapped than on the first map; project the same heads= each "
            "time"
        )
    advice = (
        "collect every training step on the same batches"
        if film
        else "a list should hold maps of the same points"
    )
    for layer, head in maps:
        mine, theirs = maps.points[layer], first.points[layer]
        for side in ("query_tokens", "key_tokens"):
            if not _same(getattr(mine, side), getattr(theirs, side)):
                raise ValueError(
                    f"{where}layer {layer} has other tokens than on the first map; {advice}"
                )
        one = maps[layer, head]
        sides = ((one.queries, mine.query_tokens), (one.keys, mine.key_tokens))
        for coordinates, tokens in sides:
            named = f"{where}layer {layer}, head {head}"
            _finite(named, coordinates, len(tokens), maps.dimensions)


def _finite(where: str, coordinates: Any, count: int, wide: int) -> None:
    found = np.asarray(coordinates)
    if found.shape != (count, wide):
        raise ValueError(
            f"{where}: coordinates should be ({count}, {wide}), a row for each token, "
            f"got {found.shape}; was the map made of other points?"
        )
    broken = count - int(np.isfinite(found).all(1).sum())
    if broken:
        raise ValueError(
            f"{where}: {broken} of {count} points have coordinates that are NaN or infinite; "
            "project again without these queries and keys"
        )


def _same(mine: Tokens, theirs: Tokens) -> bool:
    return mine is theirs or (
        tuple(mine.texts) == tuple(theirs.texts)
        and np.array_equal(mine.sequence, theirs.sequence)
        and np.array_equal(mine.position, theirs.position)
    )


def packed_space(
    names: Sequence[str],
    several: Sequence[Maps],
    film: bool,
    kinds: Heads | Mapping[Head, str] | None,
) -> tuple[dict[str, Any], bytes]:
    """A description that is plain JSON, and the blocks that it points into."""
    blocks = Blocks()
    sets: list[Tokens] = []
    heads = list(several[0])
    points = [one for at, one in enumerate(m.points for m in several) if _first(several, one) == at]
    described = [_points(one, heads, sets, kinds, blocks) for one in points]
    named = {name for one in described for layer in one["layers"] for name in layer["statistics"]}
    # The steps of a film share the box of a head, so that what moves is the points.
    boxes = [_boxes(several if film else [one], heads) for one in several]
    space = {
        "film": film_of(names) if film else "",
        "kept": KEPT,
        "points": described,
        "tokens": [pack_tokens(one, blocks) for one in sets],
        "statistics": sorted(named),
        "classes": any(one.labels is not None for one in sets),
        "kinds": _kinds(kinds, heads),
        "maps": [
            {
                "name": name,
                "points": next(at for at, one in enumerate(points) if one is maps.points),
                "dimensions": maps.dimensions,
                "heads": [_head(maps[at], at, box[at], blocks) for at in heads],
            }
            for name, maps, box in zip(names, several, boxes, strict=True)
        ],
    }
    return space, blocks.bytes()


def _first(several: Sequence[Maps], points: Points) -> int:
    """The first of the maps that shows these points."""
    return next(at for at, one in enumerate(several) if one.points is points)


def _boxes(several: Sequence[Maps], heads: Sequence[Head]) -> dict[Head, Box]:
    return {at: box_of([c for maps in several for c in _both(maps[at])]) for at in heads}


def _both(one: HeadMap) -> tuple[np.ndarray, np.ndarray]:
    return one.queries, one.keys


def _points(
    points: Points, heads: Sequence[Head], sets: list[Tokens], kinds: Any, blocks: Blocks
) -> dict[str, Any]:
    layers: list[dict[str, Any]] = []
    for at, layer in enumerate(points):
        mapped = [head for number, head in heads if number == at]
        if not mapped:
            layers.append({"statistics": {}})
            continue
        _own_sequences_only(at, layer)
        layers.append(
            {
                "q": _set(layer.query_tokens, sets),
                "k": _set(layer.key_tokens, sets),
                "outside": layer.outside,
                "statistics": {
                    name: [_number(x) for x in values]
                    for name, values in _statistics(at, layer, kinds).items()
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


def _statistics(at: int, layer: LayerPoints, kinds: Any) -> dict[str, Any]:
    """The statistics that were collected, and those of the finder of heads."""
    more = kinds.statistics(at) if isinstance(kinds, Heads) and at <= kinds[-1].layer else {}
    every = {**layer.statistics, **more}
    return {name: values for name, values in every.items() if values is not None}


def _own_sequences_only(at: int, layer: LayerPoints) -> None:
    rows = np.asarray(layer.strongest)
    own = layer.query_tokens.sequence[None, :, None]
    if ((rows >= 0) & (layer.key_tokens.sequence[rows] != own)).any():
        raise ValueError(
            f"layer {at}: `strongest` pairs a query with a key of another sequence, which it never "
            "attended to; collect the points again"
        )


def _set(tokens: Tokens, sets: list[Tokens]) -> int:
    for at, one in enumerate(sets):
        if _same(one, tokens):
            return at
    sets.append(tokens)
    return len(sets) - 1


def _number(value: Any) -> float | None:
    return float(f"{float(value):.4g}") if np.isfinite(value) else None


def _kinds(kinds: Any, heads: Sequence[Head]) -> dict[str, str]:
    """The kind of each mapped head: {"layer,head": kind}."""
    if kinds is None:
        return {}
    if isinstance(kinds, Heads):
        named = {(one.layer, one.head): one.kind for one in kinds}
        return {f"{layer},{head}": named.get((layer, head), "") for layer, head in heads}
    if not isinstance(kinds, Mapping):
        raise TypeError(
            "`kinds` should be what attnlab.lens.head_kinds returns, or map (layer, head) to a "
            f"kind, such as {{(1, 3): 'induction'}}, got {type(kinds).__name__}"
        )
    for at in kinds:
        if at not in heads:
            raise ValueError(f"`kinds` names the head {at}, which is on no map")
    return {f"{layer},{head}": str(kind) for (layer, head), kind in kinds.items()}


def _head(one: HeadMap, at: Head, box: Box, blocks: Blocks) -> dict[str, Any]:
    known = one.faithfulness
    figures = {name: _number(getattr(known, name, math.nan)) for name in FIGURES}
    return {
        "is": list(at),
        "at": pack_places(one.queries, one.keys, box, blocks),
        "scaling": _number(one.normalisation.factor),
        "faithfulness": figures,
        "said": summary_of(figures),
    }


def summary_of(figures: Mapping[str, float | None]) -> str:
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


def placed_in(typed: Any, maps: Maps) -> dict[str, Any]:
    """The tokens of a typed text in the boxes of ``maps``, for the page."""
    if not isinstance(typed, Maps):
        raise TypeError(
            "`place` should return the maps of the typed text, as Maps.place does, "
            f"got {type(typed).__name__}"
        )
    texts = typed.points[next(iter(typed))[0]].query_tokens.texts
    if len(texts) > MOST_TYPED:
        raise ValueError(f"the text has {len(texts):,} tokens, more than {MOST_TYPED}; shorten it")
    heads = {}
    for layer, head in (at for at in maps if at in typed):
        one, points = typed[layer, head], typed.points[layer]
        _finite(f"layer {layer}, head {head}", one.queries, len(texts), maps.dimensions)
        middle, half = box_of(_both(maps[layer, head]))
        rows, steps = kept(points, head)
        weights = (steps / WEIGHT_STEPS) ** 2
        heads[f"{layer},{head}"] = {
            "queries": np.round((one.queries - middle) / half, 4).tolist(),
            "keys": np.round((one.keys - middle) / half, 4).tolist(),
            "strongest": [
                [[int(j), round(float(w), 3)] for j, w in zip(*row, strict=True) if w > 0]
                for row in zip(rows, weights, strict=True)
            ],
        }
    return {"tokens": [label_of(text) for text in texts], "heads": heads}
