"""The checks of lesson 72 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable
from statistics import fmean

import pytest

from attnlab.exercises import check_beaten, check_front
from tests.exercises.frame import answers_to

# ---- a front


def by_sorting(points: dict) -> list[str]:
    kept: list[str] = []
    best, cost = float("-inf"), None
    for name in sorted(points, key=lambda n: (points[n][0], -points[n][1])):
        mine = points[name]
        if mine[1] > best or (mine[1] == best and mine[0] == cost):
            kept.append(name)
            best, cost = mine[1], mine[0]
    return kept


def by_comparing(points: dict) -> set[str]:
    def beats(a: tuple, b: tuple) -> bool:
        return a != b and a[0] <= b[0] and a[1] >= b[1]

    return {n for n, b in points.items() if not any(beats(a, b) for a in points.values())}


def kept_unless(beats: Callable) -> Callable:
    return lambda points: [
        n for n, b in points.items() if not any(beats(*a, *b) for a in points.values())
    ]


FRONT_WRONG = {
    "strict": ("equal in the other is kept", kept_unless(lambda c, s, a, b: c < a and s > b)),
    "costs": ("equal costs the worse", kept_unless(lambda c, s, a, b: c < a and s >= b)),
    "scores": ("equal scores the dearer", kept_unless(lambda c, s, a, b: c <= a and s > b)),
    "low scores": (
        "Low scores",
        lambda points: by_comparing({n: (c, -s) for n, (c, s) in points.items()}),
    ),
    "high costs": (
        "High costs",
        lambda points: by_comparing({n: (-c, s) for n, (c, s) in points.items()}),
    ),
    "all": ("It is all of them", list),
    "none": ("it should be", lambda points: []),
    "None": ("list of names", lambda points: None),
    "numbers": ("should give a list of names", lambda points: [1, 2]),
    "raises": ("KeyError", lambda points: points["z"]),
}


TestFront = answers_to(
    [(check_front, solution) for solution in [by_sorting, by_comparing]],
    [(check_front, FRONT_WRONG)],
)


# ---- beaten on every seed


def named(
    better: Callable, affordable: Callable = lambda a, b: a <= b, best: bool = False
) -> Callable:
    def beaten(scores: dict, compute: dict) -> dict:
        found = {}
        for name, own in scores.items():
            rivals = [
                other
                for other in scores
                if affordable(compute[other], compute[name]) and better(scores[other], own)
            ]
            rivals.sort(key=lambda other: -fmean(scores[other]) if best else compute[other])
            found[name] = rivals[0] if rivals else None
        return found

    return beaten


def all_above(a: list, b: list) -> bool:
    return min(a) > max(b)


right = named(all_above)

BEATEN_WRONG = {
    "means": ("compares the means", named(lambda a, b: fmean(a) > fmean(b))),
    "seed by seed": (
        "compares seed by seed",
        named(lambda a, b: all(x > y for x, y in zip(a, b, strict=True))),
    ),
    "best": ("the other way round", named(lambda a, b: max(a) > min(b))),
    "cheaper": ("costs equally much", named(all_above, lambda a, b: a < b)),
    "any cost": ("must not cost more", named(all_above, lambda a, b: True)),
    "best rival": ("asked for is the cheapest", named(all_above, best=True)),
    "left out": (
        "nobody beats are missing",
        lambda s, c: {n: r for n, r in right(s, c).items() if r is not None},
    ),
    "names": ("It has the names", lambda s, c: {"a": "b"}),
    "other": ("For 'a'", lambda s, c: dict.fromkeys(s)),
    "list": ("should give a dict", lambda s, c: list(s)),
    "raises": ("ZeroDivisionError", lambda s, c: 1 / 0),
}


def test_right_rivals() -> None:
    verdict = check_beaten(right)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), BEATEN_WRONG.values(), ids=BEATEN_WRONG)
def test_wrong_rivals(words: str, solution: Callable, refuses: Callable) -> None:
    refuses(check_beaten(solution), words)


def test_messages_about_rivals_differ(tells_apart: Callable) -> None:
    tells_apart(check_beaten, BEATEN_WRONG)
