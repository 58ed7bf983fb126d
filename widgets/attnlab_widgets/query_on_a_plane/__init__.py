"""How does a query share its attention among keys?

    QueryOnAPlane()                                  # drag the query, watch scores, weights, output
    QueryOnAPlane(keys, values, query=[1.8, 0.6])    # your own, (m, 2) each
    QueryOnAPlane(preset="a long key wins")

A query and its keys are arrows in the plane (d = 2). The score of a key is scale · q·k, the weights
are the softmax of the scores, the output is the weighted mean of the values. Everything is computed
on the page, so a saved file stays alive.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import traitlets

from attnlab.core.arguments import check_list, check_number
from attnlab.core.integers import check_integer
from attnlab.core.softmax import masked_softmax
from attnlab.core.suggest import check_choice, choose
from attnlab.figures.drawing import Drawing
from attnlab_widgets.base import STATIC, BaseWidget, Checked, Choice, as_trait_error
from attnlab_widgets.query_on_a_plane.picture import picture
from attnlab_widgets.query_on_a_plane.points import LETTERS, different_names, point, points
from attnlab_widgets.query_on_a_plane.words import announcement

SCALE = math.sqrt(0.5)  # 1/√d in the plane
SHOWN = ("scores", "projections", "winners")
MOST_KEYS, LARGEST_SCALE = 8, 100.0
PRESETS: dict[str, dict[str, Any]] = {
    "four keys": {
        "keys": [[1.6, 1.3], [2.2, -0.7], [-1.2, 1.9], [-1.7, -1.2]],
        "values": [[1.8, 1.6], [2, -1.4], [-1.6, 1.8], [-2, -1.5]],
        "query": [1.2, 0.9],
        "try": "Drag the query ● in a circle around the origin, then straight outwards. "
        "Click a key ◆ to mask it.",
    },
    "two equal keys": {
        "keys": [[1.8, 0.9], [1.8, 0.9], [-1.4, 1.4]],
        "values": [[2, 1.5], [1.6, -1.7], [-2, 0.4]],
        "query": [1.4, 0.4],
        "try": "Find a query that tells a from b: there is none. Then drag key b a little away.",
    },
    "a long key wins": {
        "keys": [[1.1, 0.35], [1.7, 2.1], [-1.2, 0.9]],
        "values": [[2, -1], [0.6, 1.9], [-1.9, -0.6]],
        "query": [1.6, 0],
        "try": "The query points nearly at a, but b gets more. Drag key b nearer to the origin, "
        "along its own line, until a wins.",
    },
    "a zero query": {
        "keys": [[1.6, 1.3], [2.2, -0.7], [-1.2, 1.9], [-1.7, -1.2]],
        "values": [[1.8, 1.6], [2, -1.4], [-1.6, 1.8], [-2, -1.5]],
        "query": [0, 0],
        "try": "A zero query gets the mean of the values. Drag it a short way, then a long way.",
    },
    "a large scale chooses": {
        "keys": [[1.6, 1.3], [2.2, -0.7], [-1.2, 1.9], [-1.7, -1.2]],
        "values": [[1.8, 1.6], [2, -1.4], [-1.6, 1.8], [-2, -1.5]],
        "query": [1.5, 0.7],
        "scale": 16.0,
        "shows": "winners",
        "try": "Drag the query across a border: the output jumps from value to value. Then make "
        "the scale small.",
    },
}
_START = "four keys"


class QueryOnAPlane(BaseWidget):
    """Keys, their values and one query in the plane.

    ``keys``    (m, 2), at most 8 of them, coordinates from -100 to 100
    ``values``  (m, 2), one for each key; the keys themselves unless given
    ``query``   two coordinates; halfway to the first key unless given
    ``scale``   what q·k is multiplied by, above 0 and at most 100; 1/√2 unless given. Its inverse
                is the temperature of the softmax
    ``masked``  the keys (0 … m − 1) that may not be attended to
    ``names``   m different names; a, b, c … unless given
    ``preset``  the name of one of ``PRESETS``, in place of keys and all that belongs to them
    ``shows``   what lies behind the arrows: "scores" (lines on which every key has the same score),
                "projections" (of the keys on the query) or "winners" (which key gets most, for a
                query anywhere)

    ``key_vectors``, ``value_vectors``, ``query``, ``scale``, ``masked`` and ``shows`` can be read
    and set; the number of keys stays.
    """

    _esm = STATIC / "query_on_a_plane.js"

    key_vectors: Any = Checked().tag(sync=True)
    value_vectors: Any = Checked().tag(sync=True)
    query: Any = Checked().tag(sync=True)
    scale = traitlets.Float(SCALE).tag(sync=True)
    masked: Any = Checked().tag(sync=True)
    names: Any = Checked().tag(sync=True)
    shows = Choice(SHOWN, "scores").tag(sync=True)
    _presets: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        keys: Any = None,
        values: Any = None,
        *,
        query: Any = None,
        scale: float | None = None,
        masked: Sequence[int] = (),
        names: Sequence[str] | None = None,
        preset: str | None = None,
        shows: str | None = None,
        theme: str = "auto",
    ) -> None:
        given = {"values": values, "names": names}
        if keys is None and (alone := [name for name, one in given.items() if one is not None]):
            raise ValueError(f"`{alone[0]}` belongs to `keys`: give the keys, too")
        if preset is not None and keys is not None:
            raise ValueError("`preset` brings its own keys: give `preset` or `keys`, not both")
        own = keys is not None
        name = _START if preset is None else preset
        state = _own(keys, values, names) if own else _state(choose("preset", name, PRESETS))
        state |= {} if query is None else {"query": point("query", query)}
        state |= {} if scale is None else {"scale": _scale(scale)}
        if shows is not None:
            check_choice("view for `shows`", shows, SHOWN)
            state["shows"] = shows
        state["masked"] = _masked(masked, len(state["names"]))
        presets = [{**_state(one), "name": title, "try": one["try"]}
                   for title, one in PRESETS.items()]  # fmt: skip
        mine = {**state, "name": "as given", "try": PRESETS[_START]["try"]}
        super().__init__(_presets=[mine, *presets] if own else presets, theme=theme, **state)

    # What follows from the state

    def scores(self) -> torch.Tensor:
        """(m,) scale · q·k, also of masked keys; float64."""
        keys, query = (torch.tensor(x, dtype=torch.float64) for x in (self.key_vectors, self.query))
        return self.scale * (keys @ query)

    def weights(self) -> torch.Tensor:
        """(m,) the softmax of the scores; 0 for masked keys."""
        allowed = torch.tensor([j not in self.masked for j in range(len(self.names))])
        found: torch.Tensor = masked_softmax(self.scores()[None], allowed[None])
        return found[0]

    def output(self) -> torch.Tensor:
        """(2,) the weighted mean of the values; zeros where every key is masked."""
        return self.weights() @ torch.tensor(self.value_vectors, dtype=torch.float64)

    def description(self) -> str:
        """What is seen, in a sentence or two."""
        return announcement(
            self.names,
            self.key_vectors,
            self.query,
            self.scores().tolist(),
            self.weights().tolist(),
            self.masked,
        )

    def still(self) -> Drawing:
        """The arrows, the bars, and the values with their mean."""
        return picture(self)

    def __repr__(self) -> str:
        return f"QueryOnAPlane: {self.description()}"

    # What may be set

    @traitlets.validate("key_vectors", "value_vectors")
    def _a_point_for_each_name(self, proposal: Any) -> list[list[float]]:
        name = proposal["trait"].name
        found = as_trait_error(points, name, proposal["value"], MOST_KEYS)
        if len(found) != len(self.names):
            raise traitlets.TraitError(
                f"`{name}` should hold {len(self.names)} points, as many as there are keys, got "
                f"{len(found)}; make another QueryOnAPlane for another number of keys"
            )
        return found

    @traitlets.validate("query")
    def _a_query(self, proposal: Any) -> list[float]:
        return as_trait_error(point, "query", proposal["value"])

    @traitlets.validate("scale")
    def _a_scale(self, proposal: Any) -> float:
        return as_trait_error(_scale, proposal["value"])

    @traitlets.validate("masked")
    def _masked_keys(self, proposal: Any) -> list[int]:
        return as_trait_error(_masked, proposal["value"], len(self.names))

    @traitlets.validate("names")
    def _different_names(self, proposal: Any) -> list[str]:
        return as_trait_error(different_names, proposal["value"], len(self.key_vectors), "key")


def _state(preset: dict[str, Any]) -> dict[str, Any]:
    return {
        "key_vectors": preset["keys"],
        "value_vectors": preset["values"],
        "query": preset["query"],
        "scale": preset.get("scale", SCALE),
        "masked": [],
        "names": [*LETTERS[: len(preset["keys"])]],
        "shows": preset.get("shows", "scores"),
    }


def _own(keys: Any, values: Any, names: Any) -> dict[str, Any]:
    found = points("keys", keys, MOST_KEYS)
    others = found if values is None else points("values", values, MOST_KEYS)
    if len(others) != len(found):
        raise ValueError(
            f"`values` should hold one for each of {len(found)} keys, got {len(others)}"
        )
    return {
        "key_vectors": found,
        "value_vectors": others,
        "query": [x / 2 for x in found[0]],
        "scale": SCALE,
        "names": different_names(
            [*LETTERS[: len(found)]] if names is None else names, len(found), "key"
        ),
        "shows": "scores",
    }


def _scale(scale: Any) -> float:
    found = check_number("scale", scale)
    if not 0 < found <= LARGEST_SCALE:
        raise ValueError(f"`scale` should be above 0 and at most {LARGEST_SCALE:g}, got {found:g}")
    return found


def _masked(masked: Any, count: int) -> list[int]:
    found = sorted({check_integer("a masked key", key) for key in check_list("masked", masked)})
    if found and not 0 <= found[0] <= found[-1] < count:
        raise ValueError(f"`masked` holds keys 0 … {count - 1}, got {found}")
    return found
