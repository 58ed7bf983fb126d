"""Checks of lesson 72: a chance, a Pareto front, and who is beaten by whom on every seed."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import run
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

Points = Mapping[str, tuple[float, float]]
Seeds = Mapping[str, Sequence[float]]

# ---- a chance

check_seed_chance = NumberExercise(
    "Is it how often all three seeds of one of two equal mechanisms are above all of the other?",
    right=2 / math.comb(6, 3),
    mistakes={
        1 / math.comb(6, 3): (
            "That is for one of them, named before; either of the two may come out on top."
        ),
        1 / 8: (
            "Three seeds are not three coins: each of the three must be above all three of the "
            "other, not above one."
        ),
        1 / 64: "The six comparisons are not independent; count the orders of six results.",
        10.0: "In per cent that is right; write it as a share.",
    },
)


# ---- a front


def _front(points: Points) -> list[str]:
    """The names of those that nothing beats: no other costs at most as much and scores at least as
    much, with one of both strict."""
    return sorted(
        (
            name
            for name, (cost, score) in points.items()
            if not any(
                c <= cost and s >= score and (c < cost or s > score) for c, s in points.values()
            )
        ),
        key=lambda name: points[name][0],
    )


def _strict(points: Points) -> list[str]:
    every = points.values()
    return [n for n, (c, s) in points.items() if not any(a < c and b > s for a, b in every)]


def _by_cost_only(points: Points) -> list[str]:
    every = points.values()
    return [n for n, (c, s) in points.items() if not any(a < c and b >= s for a, b in every)]


def _by_score_only(points: Points) -> list[str]:
    every = points.values()
    return [n for n, (c, s) in points.items() if not any(a <= c and b > s for a, b in every)]


def _upside_down(points: Points) -> list[str]:
    return _front({name: (cost, -score) for name, (cost, score) in points.items()})


def _against_cost(points: Points) -> list[str]:
    return _front({name: (-cost, score) for name, (cost, score) in points.items()})


_FRONT_CASES: tuple[Points, ...] = (
    {
        **{"a": (3.0, 50.0), "b": (1.0, 20.0), "c": (3.0, 40.0), "d": (5.0, 50.0)},
        **{"e": (4.0, 45.0), "f": (7.0, 90.0), "g": (2.0, 20.0), "h": (6.0, 10.0)},
    },
    {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (2.0, 2.0)},
)


def _names(value: object, call: str) -> set[str]:
    if not isinstance(value, list | tuple | set | dict) or not all(
        isinstance(name, str) for name in value
    ):
        raise Mistake(f"{call} should give a list of names; it gave {type_name(value)}.")
    return set(value)


def _fronts(function: Function) -> list[set[str]]:
    found = []
    for points in _FRONT_CASES:
        answer = run(function, {"points": dict(points)})
        if answer.raised:
            raise Mistake(f"front(points) {answer.raised}. {answer.hint}".rstrip())
        found.append(_names(answer.value, "front(points)"))
    return found


def _other_front(found: list[set[str]], wanted: list[set[str]]) -> str:
    place = next(i for i, names in enumerate(found) if names != wanted[i])
    points = _FRONT_CASES[place]
    return f"Of {dict(points)} it gave {sorted(found[place])}; it should be {_front(points)}."


check_front = ObservedExercise(
    """Is it the Pareto front? `front(points)` → the names, of `{name: (cost, score)}`.

    Low costs and high scores are good. Two that are equal in both are both kept. The order of the
    names does not count.
    """,
    right=_front,
    observe=_fronts,
    mistakes={
        _strict: "One that is beaten in one of the two and equal in the other is kept: equal and "
        "better together is beaten, too.",
        _by_cost_only: "Of two with equal costs the worse one is kept.",
        _by_score_only: "Of two with equal scores the dearer one is kept.",
        _upside_down: "Low scores are taken for good ones.",
        _against_cost: "High costs are taken for good ones.",
        (lambda points: list(points)): "It is all of them: those that are beaten have to go.",
    },
    explain=_other_front,
    praise="Nothing on the front is beaten in both, and everything else is.",
)


# ---- beaten on every seed


def _worst_against_best(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    return [
        other
        for other in scores
        if compute[other] <= compute[name] and min(scores[other]) > max(scores[name])
    ]


def _cheapest(compute: Mapping[str, float], names: Sequence[str]) -> str | None:
    return min(names, key=lambda name: compute[name], default=None)


def _beaten(scores: Seeds, compute: Mapping[str, float]) -> dict[str, str | None]:
    return {n: _cheapest(compute, _worst_against_best(scores, compute, n)) for n in scores}


Rival = Callable[[Seeds, Mapping[str, float], str], list[str]]


def _with(rivals: Rival) -> Callable[[Seeds, Mapping[str, float]], dict[str, str | None]]:
    return lambda scores, compute: {
        n: _cheapest(compute, rivals(scores, compute, n)) for n in scores
    }


def _by_means(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    mean = {n: sum(each) / len(each) for n, each in scores.items()}
    return [o for o in scores if compute[o] <= compute[name] and mean[o] > mean[name]]


def _seed_by_seed(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    return [
        other
        for other in scores
        if compute[other] <= compute[name]
        and all(a > b for a, b in zip(scores[other], scores[name], strict=False))
    ]


def _best_against_worst(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    return [o for o in scores if compute[o] <= compute[name] and max(scores[o]) > min(scores[name])]


def _only_cheaper(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    found = _worst_against_best(scores, compute, name)
    return [other for other in found if compute[other] < compute[name]]


def _whatever_the_cost(scores: Seeds, compute: Mapping[str, float], name: str) -> list[str]:
    return [other for other in scores if min(scores[other]) > max(scores[name])]


def _best_rival(scores: Seeds, compute: Mapping[str, float]) -> dict[str, str | None]:
    return {
        n: max(
            _worst_against_best(scores, compute, n),
            key=lambda other: sum(scores[other]) / len(scores[other]),
            default=None,
        )
        for n in scores
    }


_SCORES: Seeds = {
    "a": [50.0, 52.0, 51.0],
    "b": [60.0, 80.0, 53.0],
    "c": [70.0, 51.0, 75.0],
    "d": [90.0, 91.0, 95.0],
    "e": [40.0, 30.0, 35.0],
    "f": [96.0, 97.0, 99.0],
    "g": [61.0, 92.0, 54.0],
    "h": [71.0, 53.0, 76.0],
}
_COMPUTE = {"a": 3.0, "b": 2.0, "c": 2.5, "d": 6.0, "e": 4.0, "f": 6.0, "g": 7.0, "h": 2.5}


def _rivals(function: Function) -> dict[str, str | None]:
    given = {"scores": copy.deepcopy(dict(_SCORES)), "compute": dict(_COMPUTE)}
    answer = run(function, given)
    if answer.raised:
        raise Mistake(f"beaten(scores, compute) {answer.raised}. {answer.hint}".rstrip())
    if not isinstance(answer.value, dict):
        raise Mistake(f"beaten(…) should give a dict; it gave {type_name(answer.value)}.")
    return answer.value


def _other_rivals(found: dict[str, str | None], right: dict[str, str | None]) -> str:
    if set(found) != set(right):
        return f"It has the names {sorted(found)}; it should have {sorted(right)}."
    wrong = next(name for name in right if found[name] != right[name])
    return (
        f"For {wrong!r}, with {_SCORES[wrong]} at a cost of {_COMPUTE[wrong]:g}, it gave "
        f"{found[wrong]!r}; it should be {right[wrong]!r}."
    )


check_beaten = ObservedExercise(
    """Who is beaten by whom? `beaten(scores, compute)` → {name: a rival's name, or None}.

    `scores` gives one number per seed, high is good; `compute` one cost. A rival costs at most as
    much, and its worst seed is better than the other's best; the cheapest rival is named.
    """,
    right=_beaten,
    observe=_rivals,
    mistakes={
        (lambda *given: {name: rival for name, rival in _beaten(*given).items() if rival}): (
            "Those that nobody beats are missing: their rival is None."
        ),
        _with(_by_means): "It compares the means: one lucky seed can decide those.",
        _with(_seed_by_seed): "It compares seed by seed: seed 0 of one has nothing to do with seed "
        "0 of the other. The worst seed of the rival must be above the best one.",
        _with(_best_against_worst): (
            "It compares the best seed of the rival with the worst one: the other way round."
        ),
        _with(_only_cheaper): "A rival that costs equally much counts as well.",
        _with(_whatever_the_cost): "The rival must not cost more.",
        _best_rival: "Of several rivals it gives the best one; asked for is the cheapest.",
    },
    explain=_other_rivals,
    praise="Only what holds on every seed counts as beaten.",
)
