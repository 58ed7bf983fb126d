"""Checks of lesson 34: a sharp β, the energy, repeated updates, a pattern completed, one by one."""

import math
from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# ---- a sharp enough β

check_sharp = NumberExercise(
    "Is it the β at which dot products 1 and 0 get the weights 0.9 and 0.1?",
    right=math.log(0.9 / 0.1),
    tolerance=0.02,
    mistakes={
        math.log(0.9 / 0.1) / 2: "The dot products differ by 1, not by 2.",
        math.log10(9): "That is the logarithm to base 10; the softmax has powers of e.",
        9.0: "The ratio of the weights is 9 to 1, and it is e^β.",
        -math.log(0.9): (
            "That solves e^(−β) = 0.9. The weights are e^β and 1, divided by their sum."
        ),
    },
)


# ---- the energy


def _energy(
    xi: Tensor, X: Tensor, beta: float, *, sign: int = -1, divided: bool = True,
    constants: bool = True, half: float = 0.5,
) -> Tensor:  # fmt: skip
    """E of one state; every keyword is a mistake."""
    spread = torch.logsumexp(beta * X @ xi, 0) / (beta if divided else 1)
    out = sign * spread + half * xi @ xi
    if constants:
        out = out + math.log(len(X)) / beta + X.square().sum(1).max() / 2
    return out


_ENERGY_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The log-sum-exp has a minus sign: near a pattern the energy is low.",
        partial(_energy, sign=1),
    ),
    ("The log-sum-exp is divided by β.", partial(_energy, divided=False)),
    (
        "The two constants are missing: log(m) / β and half of M².",
        partial(_energy, constants=False),
    ),
    ("Half of ξ · ξ is added, not the whole.", partial(_energy, half=1.0)),
)


@returns_verdict
def check_energy(function: Function) -> str:
    """Is it the energy of one state? `energy(xi, X, beta)`: `xi` (d,), `X` (m, d); a number."""
    xi, X = random_tensors((5,), (7, 5), seed=34)
    for beta in (0.5, 2.0):
        given = {"xi": xi, "X": X, "beta": beta}
        require(function, given, _energy, shape="", known_mistakes=_ENERGY_MISTAKEN)
    return "It is low near the stored patterns."


# ---- repeated updates


def _retrieve(xi: Tensor, X: Tensor, beta: float, steps: int) -> Tensor:
    for _ in range(steps):
        xi = (beta * xi @ X.mT).softmax(-1) @ X
    return xi


def _plain_sums(xi: Tensor, X: Tensor, beta: float, steps: int) -> Tensor:
    for _ in range(steps):
        xi = (beta * xi @ X.mT) @ X
    return xi


def _over_states(xi: Tensor, X: Tensor, beta: float, steps: int) -> Tensor:
    for _ in range(steps):
        xi = (beta * xi @ X.mT).softmax(0) @ X
    return xi


def _added(xi: Tensor, X: Tensor, beta: float, steps: int) -> Tensor:
    for _ in range(steps):
        xi = xi + (beta * xi @ X.mT).softmax(-1) @ X
    return xi


_RETRIEVE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Only one update was made: repeat it `steps` times, each from the new state.",
        lambda xi, X, beta, steps: _retrieve(xi, X, beta, 1),
    ),
    ("β is missing in the softmax.", lambda xi, X, beta, steps: _retrieve(xi, X, 1.0, steps)),
    ("There is no softmax: the dot products themselves are the weights.", _plain_sums),
    ("The softmax runs over the states. It runs over the patterns.", _over_states),
    ("The old state is added. An update replaces it.", _added),
)


@returns_verdict
def check_retrieve(function: Function) -> str:
    """Are the states updated `steps` times? `retrieve(xi, X, beta, steps)`.

    `xi` is (n, d), `X` (m, d); it returns (n, d).
    """
    xi, X = random_tensors((3, 5), (7, 5), seed=35)
    for steps in (1, 4):
        given = {"xi": xi, "X": X, "beta": 0.7, "steps": steps}
        require(function, given, _retrieve, shape="n d", known_mistakes=_RETRIEVE_MISTAKEN)
    check_arguments_and_dtype(function, {"xi": xi, "X": X, "beta": 0.7, "steps": 2})
    return "Each update starts from the state before it."


# ---- a pattern completed


def _complete(
    xi: Tensor, known: Tensor, X: Tensor, beta: float, steps: int, *,
    keep: bool = True, blank: bool = True, of: str = "unknown", restored: str = "each update",
) -> Tensor:  # fmt: skip
    """Updates that change the unknown entries alone; every keyword is a mistake."""
    state = torch.where(known, xi, 0) if blank else xi
    fixed = ~known if of == "known" else known
    for _ in range(steps):
        new = (beta * state @ X.mT).softmax(-1) @ X
        state = torch.where(fixed, state, new) if keep and restored == "each update" else new
    return torch.where(known, xi, state) if restored == "at the end" else state


_COMPLETE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The known entries have changed: after each update set them back to those of xi.",
        partial(_complete, keep=False),
    ),
    (
        "The known entries are set back at the end only. Set them back after each update: the next "
        "one starts from them.",
        partial(_complete, restored="at the end"),
    ),
    (
        "The unknown entries of xi take part in the first dot products. Start with zeros there.",
        partial(_complete, blank=False),
    ),
    ("The known entries are updated, and the unknown ones kept.", partial(_complete, of="known")),
    (
        "Only one update was made: repeat it `steps` times.",
        lambda xi, known, X, beta, steps: _complete(xi, known, X, beta, 1),
    ),
)


@returns_verdict
def check_complete(function: Function) -> str:
    """Are only the unknown entries filled in? `complete(xi, known, X, beta, steps)`.

    `xi` and `known` (True at a known entry) are (n, d), `X` (m, d); it returns (n, d).
    """
    xi, X, chance = random_tensors((5, 7), (11, 7), (5, 7), seed=36)
    given = {"xi": xi, "known": chance > 0, "X": X, "beta": 0.6, "steps": 3}
    require(function, given, _complete, shape="n d", known_mistakes=_COMPLETE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "The known entries stay, and the others come from the stored patterns."


# ---- Hopfield's own network


def _recalled(
    xi: Tensor, X: Tensor, *, diagonal: bool = False, at_once: bool = False, passes: int = 100,
    tie: float | None = None,
) -> Tensor:  # fmt: skip
    """Unit by unit, until a pass changes nothing; every keyword is a mistake."""
    W = X.mT @ X
    if not diagonal:
        W = W - W.diag().diag()
    state = xi.clone()
    for _ in range(passes):
        old = state.clone()
        for i in range(len(xi)):
            total = W[i] @ (old if at_once else state)
            if total:
                state[i] = total.sign()
            elif tie is not None:
                state[i] = tie
        if torch.equal(old, state):
            break
    return state


_RECALLED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "A unit reads itself: the diagonal of XᵀX must be zero.",
        partial(_recalled, diagonal=True),
    ),
    (
        "All units change at once. Here one changes after the other, and reads the newest states.",
        partial(_recalled, at_once=True),
    ),
    (
        "All units change at once, and in one pass only. Here one changes after the other.",
        partial(_recalled, at_once=True, passes=1),
    ),
    (
        "Only one pass was made. Repeat until a pass changes nothing.",
        partial(_recalled, passes=1),
    ),
    (
        "A unit has become 0: `sign` gives 0 for a sum of 0. Such a unit stays as it is.",
        partial(_recalled, tie=0.0),
    ),
    (
        "A unit with the sum 0 has become +1. It stays as it is.",
        partial(_recalled, tie=1.0),
    ),
    ("That is the step of the modern network, a softmax.", lambda xi, X: (X @ xi).softmax(0) @ X),
)


@returns_verdict
def check_recalled(function: Function) -> str:
    """Do the units change one after the other until nothing changes? `recall(xi, X)`.

    `xi` (d,) and `X` (m, d) are +1 and −1; it returns (d,).
    """
    xi, X = random_tensors((13,), (4, 13), seed=73)  # each mistake ends in another state
    given = {"xi": xi.sign(), "X": X.sign()}
    require(function, given, _recalled, shape="d", known_mistakes=_RECALLED_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "No change of a unit raises the energy, so the passes come to an end."
