"""Checks of lesson 66: what is lost in nats, the total correlation of two words, mask-predict."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- what is lost

check_nats_lost = NumberExercise(
    """Is it C(Y | X) in nats, of sentences of ten words in one of two dialects, which one coin
    decides?""",
    right=9 * math.log(2),
    tolerance=1e-3,
    mistakes={
        10 * math.log(2): "That is the sum of the entropies of the words. Take H(Y | X) off.",
        math.log(2): "That is H(Y | X), the one coin. C is the words' entropies less this.",
        9.0: "That is in bits. How many nats is a bit?",
        0.0: "Then the words would not depend on each other, and they share a coin.",
    },
)


# ---- the total correlation of two words


def _correlation(
    p: Tensor, *, bits: bool = False, joint: bool = True, one: bool = False, turned: bool = False
) -> Tensor:
    """Every keyword is a mistake."""
    first, second = p.sum(1), p.sum(0)

    def entropy(q: Tensor) -> Tensor:
        return -(q * q.log()).sum()

    words = entropy(first) + (0 if one else entropy(second))
    found = words - entropy(p) if joint else words
    found = -found if turned else found
    return found / math.log(2) if bits else found


def _correlation_cases() -> Iterator[Arguments]:
    for rows, columns in ((3, 5), (4, 2)):
        (scores,) = random_tensors((rows, columns), seed=rows)
        yield {"p": scores.flatten().softmax(0).view(rows, columns)}


check_total_correlation = Exercise(
    """Is it the total correlation of two words, in nats? `correlation(p)` with `p` (u, v).

    p[i, j] is the probability that the first word is i and the second j, all above 0.
    """,
    right=_correlation,
    cases=_correlation_cases,
    axes="",
    mistakes={
        but(joint=False): "Those are the entropies of the words. Take that of the pair off.",
        but(bits=True): "That is in bits. Nats take the natural logarithm.",
        but(one=True): "The entropy of the second word is missing.",
        but(turned=True): "The sign is turned: words minus pair, which is never below 0.",
    },
    praise="For two words this is their mutual information.",
)


# ---- which words are masked again


def _mask_again(
    tokens: Tensor, logp: Tensor, t: int, passes: int, mask: int,
    *, surest: bool = False, rounded: bool = False, done: bool = False,
) -> Tensor:  # fmt: skip
    """Every keyword from ``surest`` on is a mistake."""
    n = len(tokens)
    share = n * t / passes if done else n * (passes - t) / passes
    count = max(1, math.ceil(share) if rounded else math.floor(share))
    order = logp.argsort(descending=surest)
    out = tokens.clone()
    out[order[:count]] = mask
    return out


def _mask_again_cases() -> Iterator[Arguments]:
    for n, t, passes in ((7, 1, 4), (11, 2, 3), (5, 3, 4), (3, 7, 8)):
        (logp,) = random_tensors((n,), seed=n)
        yield {
            "tokens": torch.arange(n) + 20,
            "logp": -logp.abs(),
            "t": t,
            "passes": passes,
            "mask": 99,
        }


check_mask_again = Exercise(
    """Is it what pass t of mask-predict begins with? `mask_again(tokens, logp, t, passes, mask)`.

    `tokens` (n,) and the log probabilities `logp` (n,) with which they were written; it returns a
    copy of the tokens in which the floor(n (passes − t) / passes) least sure words, at least one,
    are `mask`.
    """,
    right=_mask_again,
    cases=_mask_again_cases,
    axes="n",
    mistakes={
        but(surest=True): "The surest words are masked. Keep these, and mask the least sure.",
        but(rounded=True): "The number is rounded down: floor(n (passes − t) / passes).",
        but(done=True): "The number should fall from pass to pass: n (passes − t) / passes.",
    },
    praise="In the last pass at least one word is written anew.",
)
