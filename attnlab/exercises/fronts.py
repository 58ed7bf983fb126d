"""Checks of lesson 72: a chance, a Pareto front, and who is beaten by whom on every seed."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import note_mistakes, run
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, type_name

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


_FRONT_MISTAKEN: tuple[tuple[str, Callable[[Points], list[str]]], ...] = (
    (
        "One that is beaten in one of the two and equal in the other is kept: equal and better "
        "together is beaten, too.",
        _strict,
    ),
    ("Of two with equal costs the worse one is kept.", _by_cost_only),
    ("Of two with equal scores the dearer one is kept.", _by_score_only),
    ("Low scores are taken for good ones.", _upside_down),
    ("High costs are taken for good ones.", _against_cost),
    ("It is all of them: those that are beaten have to go.", lambda points: list(points)),
)

_FRONT_CASES: tuple[Points, ...] = (
    {
        **{"a": (3.0, 50.0), "b": (1.0, 20.0), "c": (3.0, 40.0), "d": (5.0, 50.0)},
        **{"e": (4.0, 45.0), "f": (7.0, 90.0), "g": (2.0, 20.0), "h": (6.0, 10.0)},
    },
    {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (2.0, 2.0)},
)


@returns_verdict
def check_front(function: Function) -> str:
    """Is it the Pareto front? `front(points)` → the names, of `{name: (cost, score)}`.

    Low costs and high scores are good. Two that are equal in both are both kept. The order of the
    names does not count.
    """
    note_mistakes(sentence for sentence, _ in _FRONT_MISTAKEN)
    for points in _FRONT_CASES:
        answer = run(function, {"points": dict(points)})
        if answer.raised:
            raise Mistake(f"front(points) {answer.raised}. {answer.hint}".rstrip())
        found = _names(answer.value, "front(points)")
        if found == set(_front(points)):
            continue
        for sentence, mistaken in _FRONT_MISTAKEN:
            if found == set(mistaken(points)):
                raise Mistake(sentence)
        raise Mistake(f"Of {dict(points)} it gave {sorted(found)}; it should be {_front(points)}.")
    return "Nothing on the front is beaten in both, and everything else is."


def _names(value: object, call: str) -> set[str]:
    if not isinstance(value, list | tuple | set | dict) or not all(
        isinstance(name, str) for name in value
    ):
        raise Mistake(f"{call} should give a list of names; it gave {type_name(value)}.")
    return set(value)


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


_BEATEN_MISTAKEN: tuple[tuple[str, Function], ...] = (
    ("It compares the means: one lucky seed can decide those.", _with(_by_means)),
    (
        "It compares seed by seed: seed 0 of one has nothing to do with seed 0 of the other. The "
        "worst seed of the rival must be above the best one.",
        _with(_seed_by_seed),
    ),
    (
        "It compares the best seed of the rival with the worst one: the other way round.",
        _with(_best_against_worst),
    ),
    ("A rival that costs equally much counts as well.", _with(_only_cheaper)),
    ("The rival must not cost more.", _with(_whatever_the_cost)),
    ("Of several rivals it gives the best one; asked for is the cheapest.", _best_rival),
)

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


@returns_verdict
def check_beaten(function: Function) -> str:
    """Who is beaten by whom? `beaten(scores, compute)` → {name: a rival's name, or None}.

    `scores` gives one number per seed, high is good; `compute` one cost. A rival costs at most as
    much, and its worst seed is better than the other's best; the cheapest rival is named.
    """
    note_mistakes(sentence for sentence, _ in _BEATEN_MISTAKEN)
    given = {"scores": copy.deepcopy(dict(_SCORES)), "compute": dict(_COMPUTE)}
    answer = run(function, given)
    if answer.raised:
        raise Mistake(f"beaten(scores, compute) {answer.raised}. {answer.hint}".rstrip())
    value, right = answer.value, _beaten(_SCORES, _COMPUTE)
    if not isinstance(value, dict):
        raise Mistake(f"beaten(…) should give a dict; it gave {type_name(value)}.")
    if value == {name: rival for name, rival in right.items() if rival is not None}:
        raise Mistake("Those that nobody beats are missing: their rival is None.")
    if value != right:
        for sentence, mistaken in _BEATEN_MISTAKEN:
            if value == mistaken(_SCORES, _COMPUTE):
                raise Mistake(sentence)
        if set(value) != set(right):
            raise Mistake(f"It has the names {sorted(value)}; it should have {sorted(right)}.")
        wrong = next(name for name in right if value[name] != right[name])
        raise Mistake(
            f"For {wrong!r}, with {_SCORES[wrong]} at a cost of {_COMPUTE[wrong]:g}, it gave "
            f"{value[wrong]!r}; it should be {right[wrong]!r}."
        )
    return "Only what holds on every seed counts as beaten."
