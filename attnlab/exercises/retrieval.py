"""Checks of lesson 34: a sharp β, the energy, repeated updates, a pattern completed, one by one."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

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


check_energy = Exercise(
    "Is it the energy of one state? `energy(xi, X, beta)`: `xi` (d,), `X` (m, d); a number.",
    right=_energy,
    cases=drawn(34, xi=(5,), X=(7, 5), beta=[0.5, 2.0]),
    axes="",
    mistakes={
        but(sign=1): "The log-sum-exp has a minus sign: near a pattern the energy is low.",
        but(divided=False): "The log-sum-exp is divided by β.",
        but(constants=False): "The two constants are missing: log(m) / β and half of M².",
        but(half=1.0): "Half of ξ · ξ is added, not the whole.",
    },
    praise="It is low near the stored patterns.",
)


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


check_retrieve = Exercise(
    """Are the states updated `steps` times? `retrieve(xi, X, beta, steps)`.

    `xi` is (n, d), `X` (m, d); it returns (n, d).
    """,
    right=_retrieve,
    cases=drawn(35, xi=(3, 5), X=(7, 5), beta=0.7, steps=[1, 4]),
    axes="n d",
    mistakes={
        (lambda xi, X, beta, steps: _retrieve(xi, X, beta, 1)): (
            "Only one update was made: repeat it `steps` times, each from the new state."
        ),
        (lambda xi, X, beta, steps: _retrieve(xi, X, 1.0, steps)): "β is missing in the softmax.",
        _plain_sums: "There is no softmax: the dot products themselves are the weights.",
        _over_states: "The softmax runs over the states. It runs over the patterns.",
        _added: "The old state is added. An update replaces it.",
    },
    praise="Each update starts from the state before it.",
)


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


def _complete_cases() -> Iterator[Arguments]:
    xi, X, chance = random_tensors((5, 7), (11, 7), (5, 7), seed=36)
    yield {"xi": xi, "known": chance > 0, "X": X, "beta": 0.6, "steps": 3}


check_complete = Exercise(
    """Are only the unknown entries filled in? `complete(xi, known, X, beta, steps)`.

    `xi` and `known` (True at a known entry) are (n, d), `X` (m, d); it returns (n, d).
    """,
    right=_complete,
    cases=_complete_cases,
    axes="n d",
    mistakes={
        but(keep=False): (
            "The known entries have changed: after each update set them back to those of xi."
        ),
        but(restored="at the end"): (
            "The known entries are set back at the end only. Set them back after each update: the "
            "next one starts from them."
        ),
        but(blank=False): (
            "The unknown entries of xi take part in the first dot products. Start with zeros there."
        ),
        but(of="known"): "The known entries are updated, and the unknown ones kept.",
        (lambda xi, known, X, beta, steps: _complete(xi, known, X, beta, 1)): (
            "Only one update was made: repeat it `steps` times."
        ),
    },
    praise="The known entries stay, and the others come from the stored patterns.",
)


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


def _recalled_cases() -> Iterator[Arguments]:
    xi, X = random_tensors((13,), (4, 13), seed=73)  # each mistake ends in another state
    yield {"xi": xi.sign(), "X": X.sign()}


check_recalled = Exercise(
    """Do the units change one after the other until nothing changes? `recall(xi, X)`.

    `xi` (d,) and `X` (m, d) are +1 and −1; it returns (d,).
    """,
    right=_recalled,
    cases=_recalled_cases,
    axes="d",
    mistakes={
        but(diagonal=True): "A unit reads itself: the diagonal of XᵀX must be zero.",
        but(at_once=True): (
            "All units change at once. Here one changes after the other, and reads the newest "
            "states."
        ),
        but(at_once=True, passes=1): (
            "All units change at once, and in one pass only. Here one changes after the other."
        ),
        but(passes=1): "Only one pass was made. Repeat until a pass changes nothing.",
        but(tie=0.0): (
            "A unit has become 0: `sign` gives 0 for a sum of 0. Such a unit stays as it is."
        ),
        but(tie=1.0): "A unit with the sum 0 has become +1. It stays as it is.",
        (lambda xi, X: (X @ xi).softmax(0) @ X): (
            "That is the step of the modern network, a softmax."
        ),
    },
    praise="No change of a unit raises the energy, so the passes come to an end.",
)
