"""Checks of lesson 21: keys summed over the length, and how many directions carry a share."""

import itertools
import numbers

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    LARGEST_COUNT,
    Arguments,
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, type_name

# ---- keys over the length


def _projected(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e @ k.masked_fill(~real[:, None], 0)


def _per_token(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return _projected(e, k, real) / real.sum()


_PROJECT_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Padding is in the sums: E mixes all positions, so a padded key must be set to zero "
        "before.",
        lambda e, k, real: e @ k,
    ),
    (
        "The mask is inverted: True marks a real token; the others must become zero.",
        lambda e, k, real: _projected(e, k, ~real),
    ),
    (
        "It divides by the number of real tokens: the weights are in E already.",
        _per_token,
    ),
    (
        "It divides by the number of positions: the weights are in E already.",
        lambda e, k, real: _projected(e, k, real) / len(real),
    ),
    (
        "The zeros are set too late: after E, every row is a sum of many positions, and no row is "
        "padding. Set the keys to zero before the product.",
        lambda e, k, real: (e @ k).masked_fill(~real[: len(e), None], 0),
    ),
    (
        "A softmax is applied to E; use E as it is.",
        lambda e, k, real: e.masked_fill(~real, -torch.inf).softmax(dim=-1) @ k,
    ),
    (
        "Padded keys became −∞: that is right for scores. To add nothing to a sum, a key must "
        "be zero.",
        lambda e, k, real: e @ k.masked_fill(~real[:, None], -torch.inf),
    ),
    (
        "It keeps only the first columns of E; real tokens need not come first.",
        lambda e, k, real: e[:, : int(real.sum())] @ k[: int(real.sum())],
    ),
)


@returns_verdict
def check_projected_keys(function: Function) -> str:
    """Are the keys summed over the length, without padding? `project(e, k, real)`.

    `e` is (places, m), `k` (m, d), `real` (m,) bool with True for a real token. It returns
    (places, d). Called with 3 places, m = 7, d = 5, padding in the middle, at the end, and without.
    """
    for marks in ("1011011", "1111100", "1111111"):
        require(
            function,
            _keys(marks),
            _projected,
            shape="places d",
            known_mistakes=_PROJECT_MISTAKEN,
        )
    check_arguments_and_dtype(function, _keys("1011011"))
    return "Three places, each a sum over the real positions only."


def _keys(marks: str) -> Arguments:
    e, k = random_tensors((3, 7), (7, 5), seed=5)
    return {"e": e, "k": k, "real": torch.tensor([mark == "1" for mark in marks])}


# ---- the rank for a share

_SPECTRA = {
    "a falling spectrum": ([8.0, 4.0, 2.0, 1.0, 1.0, 0.5, 0.25], 0.9),
    "a flat spectrum": ([3.0] * 10, 0.75),
    "a share that is met exactly": ([3.0, 2.0, 1.0, 1.0, 1.0], 0.8125),
    "a large first value": ([10.0, 1.0, 1.0], 0.9),
}


def _rank(values: Tensor, share: float) -> int:
    return _first(values.square(), share)


def _first(parts: Tensor, share: float, *, above: bool = False) -> int:
    """How many leading parts it takes to reach (or to pass) the share of their sum."""
    kept = parts.cumsum(0) / parts.sum()
    enough = kept > share + 1e-12 if above else kept >= share - 1e-12
    return int(enough.int().argmax()) + 1


_RANK_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "It sums the singular values themselves; energy is the sum of their squares.",
        lambda values, share: _first(values, share),
    ),
    (
        "One too few: that is the index of the last direction needed, counted from zero. Give "
        "their number.",
        lambda values, share: _rank(values, share) - 1,
    ),
    (
        "One too many.",
        lambda values, share: _rank(values, share) + 1,
    ),
    (
        "Where the sum equals the share exactly, that is enough: ≥, not >.",
        lambda values, share: _first(values.square(), share, above=True),
    ),
    (
        "It starts with the smallest singular values; start with the largest.",
        lambda values, share: _first(values.flip(0).square(), share),
    ),
    (
        "It counts the singular values above a part of the largest: compare the sum of the "
        "first ones with the share.",
        lambda values, share: int((values > share * values[0]).sum()),
    ),
    (
        "It takes that share of the number of directions; directions differ in energy.",
        lambda values, share: round(share * len(values)),
    ),
)


@returns_verdict
def check_rank(function: Function) -> str:
    """Is it the number of directions that carry a share of the energy? `rank(values, share)`.

    `values` (r,) are singular values, largest first. It returns a whole number: the least count of
    leading ones whose squares sum to at least `share` of all squares.
    """
    wrong = [name for name, given in _cases() if _whole(function, given) != _rank(*given.values())]
    if wrong:
        raise Mistake(_explained(function, wrong[0]))
    return "Squares, summed from the largest, until they reach the share."


def _cases() -> list[tuple[str, Arguments]]:
    return [
        (name, {"values": torch.tensor(values, dtype=torch.float64), "share": share})
        for name, (values, share) in _SPECTRA.items()
    ]


def _whole(function: Function, given: Arguments) -> int:
    answer = run(function, given)
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    value = answer.value
    if value is None:
        raise Mistake(f"{answer.call} gave None: is the `return` missing?")
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, int | float) and abs(value) > LARGEST_COUNT:
        raise Mistake(f"{answer.call} gave a number that is far too large.")
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or float(value) % 1:
        raise Mistake(f"{answer.call} gave {type_name(value)}; it should give a whole number.")
    return int(float(value))


def _explained(function: Function, wrong: str) -> str:
    """The known mistake that gives the same counts in every case, or the count that differs."""
    given = [case for _, case in _cases()]
    counts = [_whole(function, case) for case in given]
    for sentence, mistaken in _RANK_MISTAKEN:
        if counts == [mistaken(*case.values()) for case in given]:
            return sentence
    place = list(_SPECTRA).index(wrong)
    values, share = _SPECTRA[wrong]
    energies = ", ".join(f"{x:g}" for x in itertools.accumulate(x * x for x in values))
    return (
        f"For {wrong} it gave {counts[place]}, where {_rank(*given[place].values())} is right: the "
        f"sums of squares are {energies}; find the first that is at least {share:g} of the last."
    )
