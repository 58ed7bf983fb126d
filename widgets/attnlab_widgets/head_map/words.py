"""What is said of the heads; ``words.js`` says the same."""

import math
from collections import Counter

from attnlab_widgets.head_map.study import Place, Study


def called(place: Place) -> str:
    return f"head {place[1]} of layer {place[0]}"


def fits(stress: float) -> str:
    """How well the plane shows the distances."""
    return "well" if stress < 0.1 else "roughly" if stress < 0.2 else "poorly"


def announcement(study: Study, at: int, query: int) -> str:
    """All heads, the chosen one, its query, and how far the plane can be trusted."""
    parts = [_all(study), _one(study, at), _query(study, at, query), _plane(study)]
    return " ".join(filter(None, parts))


def _all(study: Study) -> str:
    counts = Counter(study.kinds)
    order = sorted(counts, key=lambda kind: (-counts[kind], study.looks().index(kind)))
    listed = ", ".join(f"{counts[kind]} “{study.told_kind(kind)}”" for kind in order)
    layers = len({layer for layer, _ in study.heads})
    heads = len(study.heads)
    return f"{heads} head{'s' * (heads != 1)} of {layers} layer{'s' * (layers != 1)}: {listed}."


def _one(study: Study, at: int) -> str:
    said = f"{called(study.heads[at]).capitalize()}, “{study.told_kind(study.kinds[at])}”"
    if study.importance is not None:
        ahead = int((study.importance > study.importance[at]).sum())
        said += f", number {ahead + 1} by importance"
    order = study.nearest(at)
    if not order:
        return f"{said}, is the only one."
    near, far = order[0], order[-1]
    own = study.divergence[at]
    return (
        f"{said}, attends most like {called(study.heads[near])} (divergence {own[near]:.2f} of at "
        f"most {math.log(2):.2f} nats) and least like {called(study.heads[far])} ({own[far]:.2f})."
    )


def _query(study: Study, at: int, query: int) -> str:
    name = f"“{study.tokens[query]}” ({query})"
    key = study.strongest(at, query)
    if key is None:
        return f"{name} attends to nothing."
    weight = study.weights[at, query, key]
    return f"{name} attends most to “{study.tokens[key]}” ({key}), {weight:.2f}."


def _plane(study: Study) -> str:
    if len(study.heads) < 3:
        return ""
    stress = study.plane.stress
    return f"Stress {stress:.2f}: the plane shows the distances {fits(stress)}."
