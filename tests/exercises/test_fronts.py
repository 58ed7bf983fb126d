"""The checks of lesson 72 name each mistake, and accept every way of writing the right answer."""

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


FRONT_WRONG = {
    "none": ("it should be", lambda points: []),
    "None": ("list of names", lambda points: None),
    "numbers": ("should give a list of names", lambda points: [1, 2]),
    "raises": ("KeyError", lambda points: points["z"]),
}


# ---- beaten on every seed


def beaten(scores: dict, compute: dict) -> dict:
    """The cheapest of the affordable ones that are better on every seed."""
    found = {}
    for name, own in scores.items():
        rivals = [
            other
            for other in scores
            if compute[other] <= compute[name] and min(scores[other]) > max(own)
        ]
        found[name] = min(rivals, key=compute.get, default=None)
    return found


BEATEN_WRONG = {
    "names": ("It has the names", lambda s, c: {"a": "b"}),
    "other": ("For 'a'", lambda s, c: dict.fromkeys(s)),
    "list": ("should give a dict", lambda s, c: list(s)),
    "raises": ("ZeroDivisionError", lambda s, c: 1 / 0),
}


RIGHT = [(check_front, by_sorting), (check_front, by_comparing), (check_beaten, beaten)]

TestAnswers = answers_to(RIGHT, [(check_front, FRONT_WRONG), (check_beaten, BEATEN_WRONG)])
