"""The graph as the page gets it: places, kinds, edges, and a sentence for each node."""

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.core.markup import legible
from attnlab.structures.computation import KINDS, Computation
from attnlab_widgets.error_graph import words

GIVEN = "given"
LOOKS = ("correct", "local", "restored", "propagated", GIVEN)
"""The kinds in the order of their colours and shapes."""
LONGEST, ASKED = 18, 100
"""Characters of a name and of a question that are shown."""


def told(
    made: Computation, stated: Mapping[str, Any], kinds: Sequence[str], asked: str
) -> dict[str, Any]:
    """All that the page draws and says; a node is named by its number."""
    names = list(made.steps)
    number = {name: at for at, name in enumerate(names)}
    shown = [_short(name) for name in names]
    said = {**made.values, **stated}
    nodes = [
        {
            "name": shown[at],
            "kind": LOOKS.index(kinds[at]),
            "stated": _text(said[name]),
            "right": _text(step.value),
            "parents": list(dict.fromkeys(number[parent] for parent in step.parents)),
            "wrong": said[name] != step.value,
        }
        for at, (name, step) in enumerate(made.steps.items())
    ]
    for at, step in enumerate(made.steps.values()):
        given = [said[parent] for parent in step.parents]
        follows = None if None in given or not given else step.rule(*given)
        nodes[at]["follows"] = _text(follows)
        nodes[at]["said"] = words.of_node(nodes, at, LOOKS[nodes[at]["kind"]])
    counts = {kind: kinds.count(kind) for kind in KINDS}
    broke = next((at for at, kind in enumerate(kinds) if kind == "local"), None)
    return {
        "nodes": nodes, "places": places(made), "broke": broke, "columns": made.depth + 1,
        "said": words.of_all(counts, made.depth, _short(asked, ASKED)),
    }  # fmt: skip


def places(made: Computation) -> list[list[float]]:
    """[x, y] of each node from 0 to 1: x is its depth, y near the mean of its parents."""
    layers: dict[int, list[str]] = {}
    for name, step in made.steps.items():
        layers.setdefault(step.depth, []).append(name)
    gap = 1 / max(1, max(map(len, layers.values())) - 1)
    y: dict[str, float] = {}
    for depth in sorted(layers):
        wanted = {name: _mean([y[each] for each in made.steps[name].parents], at / max(
            1, len(layers[depth]) - 1)) for at, name in enumerate(layers[depth])}  # fmt: skip
        order = sorted(layers[depth], key=lambda name: wanted[name])
        found = [wanted[name] for name in order]
        for at in range(1, len(found)):
            found[at] = max(found[at], found[at - 1] + gap)
        over = max(0.0, found[-1] - 1)
        found = [each - over for each in found]
        for at in reversed(range(len(found) - 1)):
            found[at] = min(found[at], found[at + 1] - gap)
        y.update(zip(order, found, strict=True))
    deepest = max(1, made.depth)
    return [
        [round(step.depth / deepest, 4), round(min(1.0, max(0.0, y[name])), 4)]
        for name, step in made.steps.items()
    ]


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _text(value: Any) -> str:
    return "?" if value is None else str(value)


def _short(text: str, longest: int = LONGEST) -> str:
    line = " ".join(legible(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
