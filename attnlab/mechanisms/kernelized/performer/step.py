"""The next tokens, given the sums over all before them."""

from typing import Any, TypeVar

from attnlab.core.positions import Rotation, Turn
from attnlab.core.precision import no_autocast, upcast_together
from attnlab.core.recurrence import check_state
from attnlab.core.shapes import Keys, Outputs, Queries, Values
from attnlab.mechanisms.kernelized.performer.random_features import (
    FeatureMap,
    PerformerOptions,
    Projection,
)
from attnlab.mechanisms.kernelized.performer.sums import (
    State,
    TurnedState,
    advance,
    advance_turned,
    with_ones,
)

S = TypeVar("S", State, TurnedState)


def next_outputs(
    q: Queries, k: Keys, v: Values, projection: Projection, state: State | TurnedState | None, *,
    options: PerformerOptions, positions: Rotation | None,
) -> tuple[Outputs, State | TurnedState]:  # fmt: skip
    """The outputs of t further tokens, and the state of all so far (None at the beginning)."""
    with no_autocast(v.device):
        wide_q, wide_k, wide_v, rows = upcast_together(q, k, v, projection)
        phi = FeatureMap.of(options.kernel, rows)
        queries, keys = phi.queries(wide_q), phi.keys(wide_k)
        after: State | TurnedState
        if positions is None:
            values = with_ones(wide_v)
            past = _checked(state, State.empty(phi.rows, values))
            out, after = advance(queries, keys, values, past, options.chunk)
        else:
            start = _checked(state, TurnedState.empty(phi.rows.shape[-2], wide_v))
            turn = Turn.of(positions, wide_v[:, 0], start=start.length)
            assert turn is not None
            out, after = advance_turned(queries, keys, wide_v, turn, start, options.chunk)
    return out.to(v.dtype), after


def _checked(state: Any, start: S) -> S:
    """``state``, if it fits; at the beginning ``start``."""
    if state is None:
        return start
    check_state(state, start)
    found: S = state
    return found
