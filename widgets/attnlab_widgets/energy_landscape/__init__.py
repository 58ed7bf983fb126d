"""Where does a modern Hopfield network lead a query, and how does its energy fall?

    EnergyLandscape()                                        # drag the query, or a stored pattern
    EnergyLandscape(patterns, query=[0.8, 0.3], beta=2.0)    # your own, (m, 2)
    EnergyLandscape(preset="two alike")

Stored patterns and a query in the plane (d = 2), the energy of every state as a landscape, and the
states to which updates lead the query. Everything is computed on the page, so a saved file stays
alive.
"""

from collections.abc import Sequence
from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_number
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.mechanisms.memory import hopfield
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error
from attnlab_widgets.energy_landscape.picture import picture
from attnlab_widgets.energy_landscape.words import announcement
from attnlab_widgets.query_on_a_plane.points import LETTERS, different_names, point, points

MOST_PATTERNS, MOST_STEPS, LARGEST_BETA = 8, 12, 100.0
_FOUR = [[1.6, 1.2], [-1.5, 1.4], [-1.2, -1.5], [1.7, -1.1]]
PRESETS: dict[str, dict[str, Any]] = {
    "four patterns": {
        "patterns": _FOUR,
        "query": [0.5, 0.4],
        "beta": 2.0,
        "try": "Drag the query ● from pattern to pattern, and find the border at which the path "
        "turns. Then make β small.",
    },
    "a small β": {
        "patterns": _FOUR,
        "query": [1.2, 0.9],
        "beta": 0.25,
        "try": "One wide valley: every query is led to the mean of all patterns. Raise β until "
        "each pattern has a valley of its own.",
    },
    "two alike": {
        "patterns": [[1.7, 0.5], [1.6, -0.4], [-1.7, 0.2]],
        "query": [0.9, 0.2],
        "beta": 1.5,
        "try": "a and b share a valley. Which β tells them apart? Or drag one of them away.",
    },
    "a long pattern": {
        "patterns": [[0.9, 0.3], [-0.8, 0.5], [1.2, -2.7]],
        "query": [0.9, 0.1],
        "beta": 2.0,
        "try": "The query is near a, and is led to c, which is longer: dot products decide, not "
        "distances. Drag c towards the origin.",
    },
}
_START = "four patterns"


class EnergyLandscape(BaseWidget):
    """The energy of a modern Hopfield network in the plane, and the path of a query.

    ``patterns``  (m, 2), at most 8 of them, coordinates from -100 to 100
    ``query``     two coordinates; halfway to the first pattern unless given
    ``beta``      the inverse temperature β, above 0 and at most 100; 2 unless given
    ``steps``     the number of updates, 1 to 12
    ``names``     m different names; a, b, c … unless given
    ``preset``    the name of one of ``PRESETS``, in place of patterns and query

    All but the preset can be read and set; the number of patterns stays.
    """

    _esm = STATIC / "energy_landscape.js"

    patterns: Any = Checked().tag(sync=True)
    query: Any = Checked().tag(sync=True)
    beta = traitlets.Float(2.0).tag(sync=True)
    steps = traitlets.Int(6).tag(sync=True)
    names: Any = Checked().tag(sync=True)
    _presets: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        patterns: Any = None,
        *,
        query: Any = None,
        beta: float | None = None,
        steps: int = 6,
        names: Sequence[str] | None = None,
        preset: str | None = None,
        theme: str = "auto",
    ) -> None:
        if preset is not None and patterns is not None:
            raise ValueError(
                "`preset` brings its own patterns: give `preset` or `patterns`, not both"
            )
        if names is not None and patterns is None:
            raise ValueError("`names` belongs to `patterns`: give the patterns, too")
        own = patterns is not None
        name = _START if preset is None else preset
        state = _own(patterns, names) if own else _state(choose("preset", name, PRESETS))
        state |= {} if query is None else {"query": point("query", query)}
        state |= {} if beta is None else {"beta": _beta(beta)}
        presets = [{**_state(one), "name": title, "try": one["try"]}
                   for title, one in PRESETS.items()]  # fmt: skip
        mine = {**state, "name": "as given", "try": PRESETS[_START]["try"]}
        super().__init__(
            _presets=[mine, *presets] if own else presets,
            steps=_steps(steps), theme=theme, **state,
        )  # fmt: skip

    # What follows from the state

    def path(self) -> Tensor:
        """(steps + 1, 2) the query and the states after each update; float64."""
        states = hopfield.retrieved(self._query, self._stored, beta=self.beta, steps=self.steps)
        return torch.cat((self._query, states[:, 0]))

    def energies(self) -> Tensor:
        """(steps + 1,) the energy of each state of the path."""
        found: Tensor = hopfield.energy(self.path(), self._stored, beta=self.beta)
        return found

    def weights(self) -> Tensor:
        """(m,) softmax(β X ξ) at the last state ξ of the path."""
        return (self.beta * self.path()[-1] @ self._stored.mT).softmax(0)

    def energy_at(self, states: Tensor) -> Tensor:
        """The energy of any states (n, 2), (n,)."""
        found: Tensor = hopfield.energy(states.double(), self._stored, beta=self.beta)
        return found

    def description(self) -> str:
        """Where the query is led, in a sentence or two."""
        return announcement(
            self.names, self.path().tolist(), self.energies().tolist(), self.weights().tolist()
        )

    def still(self) -> Drawing:
        """The landscape with the path, and the energy after each step."""
        return picture(self)

    def __repr__(self) -> str:
        return f"EnergyLandscape: {self.description()}"

    @property
    def _stored(self) -> Tensor:
        return torch.tensor(self.patterns, dtype=torch.float64)

    @property
    def _query(self) -> Tensor:
        return torch.tensor([self.query], dtype=torch.float64)

    # What may be set

    @traitlets.validate("patterns")
    def _a_point_for_each_name(self, proposal: Any) -> list[list[float]]:
        found = as_trait_error(points, "patterns", proposal["value"], MOST_PATTERNS)
        if len(found) != len(self.names):
            raise traitlets.TraitError(
                f"`patterns` should hold {len(self.names)} points, as before, got {len(found)}; "
                "make another EnergyLandscape for another number of patterns"
            )
        return found

    @traitlets.validate("query")
    def _a_query(self, proposal: Any) -> list[float]:
        return as_trait_error(point, "query", proposal["value"])

    @traitlets.validate("beta")
    def _a_beta(self, proposal: Any) -> float:
        return as_trait_error(_beta, proposal["value"])

    @traitlets.validate("steps")
    def _some_steps(self, proposal: Any) -> int:
        return as_trait_error(_steps, proposal["value"])

    @traitlets.validate("names")
    def _different_names(self, proposal: Any) -> list[str]:
        return as_trait_error(different_names, proposal["value"], len(self.patterns), "pattern")


def _state(preset: dict[str, Any]) -> dict[str, Any]:
    return {
        "patterns": preset["patterns"],
        "query": preset["query"],
        "beta": preset["beta"],
        "names": [*LETTERS[: len(preset["patterns"])]],
    }


def _own(patterns: Any, names: Any) -> dict[str, Any]:
    found = points("patterns", patterns, MOST_PATTERNS)
    letters = [*LETTERS[: len(found)]]
    return {
        "patterns": found,
        "query": [x / 2 for x in found[0]],
        "beta": 2.0,
        "names": different_names(letters if names is None else names, len(found), "pattern"),
    }


def _beta(beta: Any) -> float:
    found = check_number("beta", beta)
    if not 0 < found <= LARGEST_BETA:
        raise ValueError(f"`beta` should be above 0 and at most {LARGEST_BETA:g}, got {found:g}")
    return found


def _steps(steps: Any) -> int:
    found = check_integer("steps", steps)
    if not 1 <= found <= MOST_STEPS:
        raise ValueError(f"`steps` should be 1 to {MOST_STEPS}, got {found}")
    return found
