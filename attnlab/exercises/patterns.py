"""Checks of lesson 11: a window as a mask, and how many layers until everything is connected."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises.attempt import LARGEST_COUNT, Arguments, changed_in_place, run
from attnlab.exercises.exercise import Exercise, drawn
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

# ---- the window


def _apart(n: int) -> Tensor:
    """i − j."""
    return torch.arange(n)[:, None] - torch.arange(n)


def _window(n: int, window: int) -> Tensor:
    return _apart(n).abs() <= window // 2


def _additive(low: float) -> Callable[[int, int], Tensor]:
    return lambda n, window: torch.zeros(n, n).masked_fill(~_window(n, window), low)


def _require_bool(function: Function, given: Arguments) -> None:
    dtype = str(getattr(run(function, given).value, "dtype", "")).removeprefix("torch.")
    if dtype != "bool":
        raise Mistake(
            f"The places are right, but the tensor is of torch.{dtype}: "
            "a mask should be torch.bool, so that it is not multiplied or added by accident."
        )


check_window_mask = Exercise(
    """Is it a sliding window? `window_mask(n, window) -> (n, n)`, True = may attend.

    `window` is Longformer's w, the total: w/2 on each side, and the position itself. Called with
    (n, window) = (13, 6), (7, 2) and (5, 12).
    """,
    right=_window,
    cases=drawn(n=[13, 7, 5], window=[6, 2, 12]),
    axes="n n",
    mistakes={
        (lambda n, window: _apart(n).abs() <= window): (
            "It sees `window` positions on each side: twice too many. The paper's window is the "
            "total, half of it to each side."
        ),
        (lambda n, window: _apart(n).abs() < window // 2): (
            "The last position on each side is missing: a distance of exactly window / 2 still "
            "counts (≤, not <)."
        ),
        (lambda n, window: (-(window // 2) < _apart(n)) & (_apart(n) <= window // 2)): (
            "It is not symmetric: one side has one position less than the other. With the position "
            "itself, a window has window + 1 keys."
        ),
        (lambda n, window: (-(window // 2) <= _apart(n)) & (_apart(n) < window // 2)): (
            "It is not symmetric: one side has one position less than the other. With the position "
            "itself, a window has window + 1 keys."
        ),
        (lambda n, window: _window(n, window) & (_apart(n) >= 0)): (
            "It is causal: a position sees what comes before it and nothing after. This window "
            "looks both ways."
        ),
        (lambda n, window: _window(n, window) & (_apart(n) <= 0)): (
            "It looks at what comes after a position, and not before. Were rows and columns "
            "exchanged in a causal mask? This window looks both ways."
        ),
        (lambda n, window: _apart(n) <= window // 2): (
            "Every later key is seen: without `.abs()` the distance i − j is negative there, and a "
            "negative number is ≤ window / 2."
        ),
        (lambda n, window: -_apart(n) <= window // 2): (
            "Every earlier key is seen: j − i is negative there, and a negative number is ≤ window "
            "/ 2. Use `.abs()`."
        ),
        (lambda n, window: _apart(n).abs() <= window // 2 + 1): (
            "One position too many on each side: window / 2 of them, not counting the position "
            "itself."
        ),
        (lambda n, window: _apart(n).abs() < window): (
            "It sees `window` − 1 positions on each side. The paper's window is the total, half of "
            "it to each side."
        ),
        (lambda n, window: (_apart(n) >= 0) & (_apart(n) <= window)): (
            "All of the window lies in the past. Here half of it lies on each side."
        ),
        (lambda n, window: _window(n, window) & (_apart(n) != 0)): (
            "A position does not see itself: distance 0 is inside the window."
        ),
        (lambda n, window: ~_window(n, window)): (
            "It is inverted: True means that the query MAY see the key."
        ),
        (lambda n, window: torch.minimum(_apart(n) % n, -_apart(n) % n) <= window // 2): (
            "It wraps around: the first position sees the last. It should not."
        ),
        (lambda n, window: torch.arange(n)[:, None] // window == torch.arange(n) // window): (
            "These are blocks: positions on either side of a boundary do not see each other. A "
            "window moves with its position."
        ),
        _additive(-math.inf): (
            "That is a mask to be added to the scores. It should be of type bool: True where the "
            "query may attend to the key."
        ),
        _additive(-10000.0): (
            "That is a mask to be added to the scores, and −10000 forbids only while the scores "
            "are small. It should be of type bool."
        ),
    },
    praise="window + 1 keys for each position inside, fewer at the two ends.",
    then=_require_bool,
)


# ---- layers until connected


def _layers(mask: Tensor, *, residual: bool = True, seen: str = "all") -> int:
    step = (mask | torch.eye(len(mask), dtype=torch.bool) if residual else mask).float()
    known, layers = torch.eye(len(mask)), 0
    wanted = {
        "all": torch.ones(len(mask), len(mask)),
        "first": torch.zeros(len(mask), len(mask)).index_fill(0, torch.tensor(0), 1),
        "last": torch.zeros(len(mask), len(mask)).index_fill(0, torch.tensor(len(mask) - 1), 1),
        "past": torch.ones(len(mask), len(mask)).tril(),
    }[seen].bool()
    while not (known.bool() | ~wanted).all():
        known, layers = (step @ known > 0).float(), layers + 1
    return layers


def _doublings(mask: Tensor) -> int:
    return math.ceil(math.log2(_layers(mask)))


def _connected() -> dict[str, Tensor]:
    """Masks that connect every input with every output after some layers, by their names."""
    hub = torch.eye(7, dtype=torch.bool)
    hub[0] = hub[:, 0] = True
    detour = torch.ones(5, 5, dtype=torch.bool).tril()
    detour[0, 4] = True
    return {
        "a window of 1 on each side of 12 positions": _apart(12).abs() <= 1,
        "a hub and 6 positions that see it and themselves": hub,
        "5 positions that see all but themselves": ~torch.eye(5, dtype=torch.bool),
        "5 positions that see the past, the first also the last": detour,
        "5 positions that see what is ahead, the last also the first": detour.flip(0, 1),
    }


def _depths(function: Function) -> list[float]:
    return [_number(function, mask) for mask in _connected().values()]


def _number(function: Function, mask: Tensor) -> float:
    answer = run(function, {"mask": mask})
    value = answer.value
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    if value is None or value is Ellipsis:
        raise Mistake(f"{answer.call} gave None: is the `return` missing?")
    if answer.changed:
        raise Mistake(f"`mask` is still needed: {changed_in_place(answer)}")
    if isinstance(value, Tensor | np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        value = value.item() if math.prod(value.shape) == 1 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Mistake(f"{answer.call} gave {type_name(value)}; it should give a number of layers.")
    if abs(value) > LARGEST_COUNT:
        raise Mistake(f"{answer.call} gave a number that is far too large.")
    return float(value)


def _other_depth(found: list[float], wanted: list[float]) -> str:
    label, got, right = next(
        one for one in zip(_connected(), found, wanted, strict=True) if one[1] != one[2]
    )
    return f"For {label}: {got:g} layers, where {right:g} are right."


check_layers_until_connected = ObservedExercise(
    """Layers until every output depends on every input? `layers_until_connected(mask) -> int`.

    `mask` (n, n) is one layer, True = may attend; all layers are alike, with a residual connection
    around each. Called with five masks that connect everything after some number of layers.
    """,
    right=_layers,
    observe=_depths,
    mistakes={
        (lambda mask: _layers(mask, residual=False)): (
            "The residual connection is missing: around each layer it keeps what a position knew, "
            "even if no position sees itself."
        ),
        (lambda mask: _layers(mask) - 1): (
            "One layer too few: before the first layer each position depends only on itself, and "
            "that is layer 0."
        ),
        (lambda mask: _layers(mask) + 1): (
            "One layer too many: was the loop run once more after all was connected, or did "
            "counting begin at 1?"
        ),
        _doublings: (
            "That counts squarings: squaring the matrix gives two layers, then four. Multiply by "
            "ONE layer each time."
        ),
        (lambda mask: 2 ** _doublings(mask)): (
            "It counts 2, 4, 8 …: squaring the matrix skips layers. Multiply by ONE layer each "
            "time."
        ),
        (lambda mask: _layers(mask, seen="first")): (
            "Only the first output is checked: all outputs must depend on every input."
        ),
        (lambda mask: _layers(mask, seen="last")): (
            "Only the last output is checked: all outputs must depend on every input."
        ),
        (lambda mask: _layers(mask, seen="past")): (
            "Only the past is checked: every output must depend on every input, also later ones."
        ),
        (lambda mask: 0): "It stops before the first layer: was `.any()` used instead of `.all()`?",
        (lambda mask: int(mask.sum(1).max())): (
            "That is the number of keys that a position sees, not the number of layers."
        ),
        (lambda mask: 1): (
            "After one layer only some pairs are connected; count until the last pair is connected."
        ),
    },
    explain=_other_depth,
    praise=(
        "A window needs many layers, a hub two, and the residual connection keeps what was known."
    ),
)
