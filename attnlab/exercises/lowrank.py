"""Checks of lesson 21: keys summed over the length, and how many directions carry a share."""

import itertools
import numbers

import torch
from torch import Tensor

from attnlab.exercises.attempt import Given, Suspect, ask, demand, made, mannerly
from attnlab.exercises.verdict import Function, Mistake, diagnosed, kind_of

# ---- keys over the length


def _projected(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e @ k.masked_fill(~real[:, None], 0)


def _per_real(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return _projected(e, k, real) / real.sum()


_PROJECT_MISTAKEN: tuple[Suspect, ...] = (
    (
        "Padding is in the sums: E mixes all positions, so a padded key must be zero before it.",
        lambda e, k, real: e @ k,
    ),
    (
        "The mask is upside down: True marks a real token, and it is the others that become zero.",
        lambda e, k, real: _projected(e, k, ~real),
    ),
    (
        "It divides by the number of real tokens: E says itself how much each position counts.",
        _per_real,
    ),
    (
        "It divides by the number of positions: E says itself how much each position counts.",
        lambda e, k, real: _projected(e, k, real) / len(real),
    ),
    (
        "The zeros come too late: after E, every place holds a sum of many positions, and none of "
        "them is padding any more. Zero the keys before.",
        lambda e, k, real: (e @ k).masked_fill(~real[: len(e), None], 0),
    ),
    (
        "A softmax over the positions makes another matrix of E: it multiplies as it is.",
        lambda e, k, real: e.masked_fill(~real, -torch.inf).softmax(dim=-1) @ k,
    ),
    (
        "Padded keys became −∞: that is for scores. A key that is to add nothing to a sum is zero.",
        lambda e, k, real: e @ k.masked_fill(~real[:, None], -torch.inf),
    ),
    (
        "It keeps only the columns of E in front: real tokens need not stand in front.",
        lambda e, k, real: e[:, : int(real.sum())] @ k[: int(real.sum())],
    ),
)


@diagnosed
def check_projected_keys(function: Function) -> str:
    """Are the keys summed over the length, without padding? `project(e, k, real)`.

    `e` is (places, m), `k` (m, d), `real` (m,) bool with True for a real token. It returns
    (places, d). Called with 3 places, m = 7, d = 5, padding in the middle, at the end, and without.
    """
    for marks in ("1011011", "1111100", "1111111"):
        demand(
            function,
            _keys(marks),
            _projected,
            shape="places d",
            suspects=_PROJECT_MISTAKEN,
        )
    mannerly(function, _keys("1011011"))
    return "Three places, each a sum over the real positions only."


def _keys(marks: str) -> Given:
    e, k = made((3, 7), (7, 5), seed=5)
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


_RANK_MISTAKEN: tuple[Suspect, ...] = (
    (
        "It sums the singular values themselves: energy is the sum of their squares.",
        lambda values, share: _first(values, share),
    ),
    (
        "One too few: that is the index of the last direction needed, counted from zero. How many "
        "directions is it?",
        lambda values, share: _rank(values, share) - 1,
    ),
    (
        "One too many.",
        lambda values, share: _rank(values, share) + 1,
    ),
    (
        "Where the share is met exactly, that is enough: at least the share, not more than it.",
        lambda values, share: _first(values.square(), share, above=True),
    ),
    (
        "It starts with the smallest singular values: the largest come first.",
        lambda values, share: _first(values.flip(0).square(), share),
    ),
    (
        "It counts the singular values above a part of the largest: what counts is the share that "
        "the first ones carry together.",
        lambda values, share: int((values > share * values[0]).sum()),
    ),
    (
        "It takes that share of the number of directions: some carry more than others.",
        lambda values, share: round(share * len(values)),
    ),
)


@diagnosed
def check_rank(function: Function) -> str:
    """Is it the number of directions that carry a share of the energy? `rank(values, share)`.

    `values` (r,) are singular values, largest first. It returns a whole number: the least count of
    leading ones whose squares sum to at least `share` of all squares.
    """
    wrong = [name for name, given in _cases() if _whole(function, given) != _rank(*given.values())]
    if wrong:
        raise Mistake(_explained(function, wrong[0]))
    return "Squares, summed from the largest, until they reach the share."


def _cases() -> list[tuple[str, Given]]:
    return [
        (name, {"values": torch.tensor(values, dtype=torch.float64), "share": share})
        for name, (values, share) in _SPECTRA.items()
    ]


def _whole(function: Function, given: Given) -> int:
    answer = ask(function, given)
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    value = answer.value
    if value is None:
        raise Mistake(f"{answer.call} gave None: is the `return` missing?")
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or float(value) % 1:
        raise Mistake(f"{answer.call} gave {kind_of(value)}; a whole number is asked for.")
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
        f"squares sum up to {energies}, and {share:g} of the last is asked for."
    )
