"""Checks of lesson 08: the capacity of an expert, the balance loss, places for two choices."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

check_expert_capacity = NumberExercise(
    "Is it the capacity of one of 16 experts for 500 tokens, with the factor 1.25?",
    right=39,
    unit="tokens",
    mistakes={
        31: "That is int(500 / 16), the equal share without the factor 1.25.",
        40: "That is 39.06 rounded up: the int of the formula rounds down.",
        625: "That is 500 · 1.25, the room of all experts together: divide by their number.",
        78: "That is for the factor 2.5, twice the one in the exercise.",
    },
)


# ---- the balance loss


def _balance(
    p: Tensor, *, soft: bool = False, times: bool = True, mean: bool = True, least: bool = False
) -> Tensor:
    experts = p.shape[1]
    chosen = p.argmin(-1) if least else p.argmax(-1)
    f = p.mean(0) if soft else F.one_hot(chosen, experts).to(p.dtype).mean(0)
    total = (f * p.mean(0)).sum() if mean else (f * p.sum(0)).sum()
    return experts * total if times else total


def _probabilities() -> Iterator[Arguments]:
    for n, experts in ((23, 5), (17, 3)):
        (scores,) = random_tensors((n, experts), seed=n)
        yield {"p": (2 * scores).softmax(-1)}


check_balance_loss = Exercise(
    """Is it the balance loss E Σ f P? `balance(p) -> a number` for router probabilities p (n, E).

    f (E,) is the share of the tokens for which each expert is the most probable one, and P (E,) the
    mean of each expert's probabilities.
    """,
    right=_balance,
    cases=_probabilities,
    axes="",
    mistakes={
        but(soft=True): "f is counted, as a share of choices. Here it is P itself: E Σ P².",
        but(times=False): "The factor E is missing: the loss of a uniform router should be 1.",
        but(mean=False): "P is a mean over the tokens, and not their sum.",
        but(least=True): "f counts the least probable expert of each token, not the most probable.",
    },
    praise="Only P has a gradient. f says which expert's probability is pushed down most.",
)


# ---- two choices


def _placed(
    p: Tensor, capacity: int, *, token_by_token: bool = False, apart: bool = False, more: int = 0,
) -> Tensor:  # fmt: skip
    chosen = p.topk(2, dim=-1).indices
    order = [(i, c) for c in range(2) for i in range(len(p))]
    if token_by_token:
        order = sorted(order)
    taken = torch.zeros(2, p.shape[1], dtype=torch.int64)  # by first and by second choices
    placed = torch.zeros(len(p), 2, dtype=torch.bool)
    for i, c in order:
        e = chosen[i, c]
        full = taken[c, e] if apart else taken[:, e].sum()
        placed[i, c] = full < capacity + more
        taken[c, e] += int(placed[i, c])
    return placed


def _two_choices() -> Iterator[Arguments]:
    for n, experts, capacity in ((19, 4, 7), (23, 3, 11)):
        (scores,) = random_tensors((n, experts), seed=n + 3)
        scores[:, 0] += 1  # so that one of the experts is full
        yield {"p": scores.softmax(-1), "capacity": capacity}


check_two_choices = Exercise(
    """Which choices have a place? `placed(p, capacity) -> (n, 2)`, True where one is computed.

    p (n, E) are the router's probabilities. Each token chooses the two most probable experts, the
    best first. Each expert has room for `capacity` choices. All first choices are placed before any
    second, and each in the order of the tokens.
    """,
    right=_placed,
    cases=_two_choices,
    axes="n 2",
    mistakes={
        but(token_by_token=True): (
            "Both choices of a token are placed before the next token's first. All first choices "
            "come before any second."
        ),
        but(apart=True): (
            "First and second choices are counted apart, so that an expert computes up to twice "
            "its capacity."
        ),
        but(more=1): "An expert takes one choice more than its capacity.",
    },
    praise="A later token's first choice may take the place of an earlier token's second.",
)
