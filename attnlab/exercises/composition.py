"""Checks of lesson 73: an answer of many steps, the information gain of a table, best sums."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- an answer of twelve steps

check_right_after_twelve = NumberExercise(
    """Is it the largest share of right answers, as a number from 0 to 1, after a path of 12 steps,
    each of which goes wrong with probability 0.02 by itself?""",
    right=0.98**12,
    tolerance=1e-3,
    mistakes={
        0.98: "That is one step. All steps of the path must be right.",
        1 - 12 * 0.02: "That adds up the errors. Multiply the probabilities of right steps.",
        1 - 0.98**12: "That is the share of wrong answers.",
        0.02**12: "That is the probability that all twelve steps are wrong.",
    },
)


# ---- relative information gain


def _gain(
    counts: Tensor, *, relative: bool = True, of_x: bool = False, joint: bool = False
) -> Tensor:
    """Every keyword is a mistake."""
    p = counts / counts.sum()

    def entropy(q: Tensor) -> Tensor:
        return -(q * q.log()).sum()

    x, y, both = entropy(p.sum(1)), entropy(p.sum(0)), entropy(p)
    if joint:
        return (y - both) / y
    gained = x + y - both
    return gained / (x if of_x else y) if relative else gained


def _gain_cases() -> Iterator[Arguments]:
    for rows, columns in ((3, 5), (4, 2)):
        (scores,) = random_tensors((rows, columns), seed=rows)
        yield {"counts": 10 * scores.exp()}


check_gain = Exercise(
    """Is it (H(Y) − H(Y | X)) / H(Y)? `gain(counts)` with `counts` (x, y), all above 0: how often
    each value of X (a row) came with each value of Y (a column).
    """,
    right=_gain,
    cases=_gain_cases,
    axes="",
    mistakes={
        but(relative=False): "That is the gain in nats. Divide it by H(Y).",
        but(of_x=True): "It is divided by H(X). What is to be known is Y.",
        but(joint=True): "H(X, Y) stands in the place of H(Y | X) = H(X, Y) − H(X).",
    },
    praise="It is 1 where each row has one column alone, and 0 where all rows are alike.",
)


# ---- best sums


def _best_sums(
    values: Tensor, *, neighbours: bool = False, some: bool = False, turned: bool = False
) -> Tensor:
    """Every keyword is a mistake."""
    numbers = values.tolist()
    best = [0.0, 0.0]  # from behind the last number on
    for place, number in enumerate(numbers if turned else reversed(numbers)):
        taken = number + best[-1 if neighbours else -2]
        best.append(taken if some and not place else max(taken, best[-1]))
    found = best[2:] if turned else best[:1:-1]
    return torch.tensor(found, dtype=values.dtype)


def _best_cases() -> Iterator[Arguments]:
    for n, seed in ((7, 1), (11, 2), (5, 3)):
        (numbers,) = random_tensors((n,), seed=seed)
        values = (3 * numbers).round()
        values[-1] = -2
        yield {"values": values}


check_best_sums = Exercise(
    """Are they the best sums? `best_sums(values)` with `values` (n,) returns (n,): of each place
    the largest sum of numbers from it on, no two of them neighbours; of no number it is 0.
    """,
    right=_best_sums,
    cases=_best_cases,
    axes="n",
    mistakes={
        but(neighbours=True): "Neighbours are added: after a number the next place is left out.",
        but(some=True): "The last number is taken even where it is below 0. Nothing gives 0.",
        but(turned=True): "Those are sums of the numbers up to a place. Begin at the last place.",
    },
    praise="One pass from the right, two numbers kept: that is dynamic programming.",
)
