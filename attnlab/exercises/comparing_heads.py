"""Checks of lesson 69: the divergence of two heads, by hand and as code, and maps of words."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- two rows by hand

_MIDDLE = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))

check_divergence_by_hand = NumberExercise(
    "Is it the Jensen–Shannon divergence of the rows (1, 0) and (1/2, 1/2), in nats?",
    right=_MIDDLE - math.log(2) / 2,
    tolerance=0.004,
    mistakes={
        (_MIDDLE - math.log(2) / 2) / math.log(2): "That is in bits. Take natural logarithms.",
        _MIDDLE: "That is the entropy of the mean row. Subtract the mean of both entropies.",
        _MIDDLE - math.log(2): "Both entropies are subtracted whole. Each counts one half.",
        math.log(2): "That is the largest divergence there is: for rows without a common key.",
        math.sqrt(_MIDDLE - math.log(2) / 2): "That is its square root, which is a distance.",
    },
)


# ---- the divergence of two heads


def _entropy(rows: Tensor) -> Tensor:
    return -torch.special.xlogy(rows, rows).sum(1)


def _divergence(
    p: Tensor, q: Tensor, *, mean: bool = True, half: float = 0.5, base: float = math.e
) -> Tensor:
    """The mean over the rows; every keyword is a mistake."""
    found = _entropy((p + q) / 2) - half * (_entropy(p) + _entropy(q))
    found = found / math.log(base)
    return found.mean() if mean else found.sum()


def _two_maps() -> Iterator[Arguments]:
    """Rows that sum to one; in the second case some weights are zero."""
    p, q = random_tensors((5, 7), (5, 7), seed=69)
    yield {"p": (2 * p).softmax(1), "q": (2 * q).softmax(1)}
    hidden = (torch.arange(7) > torch.arange(5)[:, None] + 1) & torch.ones_like(p).bool()[:5, :7]
    p, q = (x.masked_fill(hidden, -torch.inf).softmax(1) for x in (p, q))
    yield {"p": p, "q": q}


check_divergence = Exercise(
    """How differently do two heads attend? `divergence(p, q)` with two maps (n, m).

    It returns one number: the Jensen–Shannon divergence of the rows in nats, in the mean over the
    rows. A weight may be 0.
    """,
    right=_divergence,
    cases=_two_maps,
    axes="",
    mistakes={
        but(mean=False): "The rows are added up. Take their mean, or long texts count more.",
        but(half=1): "Both entropies are subtracted whole. Each counts one half.",
        but(base=2): "That is in bits. Take natural logarithms.",
        (lambda p, q: (_entropy(p) - _entropy(q)).abs().mean()): (
            "That compares how broad the rows are. Two sharp heads may attend to different keys."
        ),
        (lambda p, q: (p - q).abs().sum(1).mean() / 2): (
            "That is the share of weight that would have to be moved, not the divergence."
        ),
    },
    praise="It is 0 for equal maps, and at most ln 2.",
)


# ---- from pieces to words


def _words(
    w: Tensor, words: Tensor, *, to: str = "sum", read: str = "mean", turned: bool = False
) -> Tensor:
    """(v, v) of v words; every keyword is a mistake."""
    each = torch.nn.functional.one_hot(words).to(w).mT  # (v, n)
    mean = each / each.sum(1, keepdim=True)
    rows, columns = (mean if x == "mean" else each for x in (read, to))
    found = rows @ w @ columns.mT
    return found.mT if turned else found


def _pieces() -> Iterator[Arguments]:
    """Three words of one, two and three pieces, and five of one or two."""
    for numbers, seed in (([0, 1, 1, 2, 2, 2], 70), ([0, 0, 1, 2, 3, 3, 4], 71)):
        (scores,) = random_tensors((len(numbers), len(numbers)), seed=seed)
        yield {"w": scores.softmax(1), "words": torch.tensor(numbers)}


check_words_of_pieces = Exercise(
    """Is it the attention between words? `words_of_pieces(w, words)`.

    `w` (n, n) is the map of n pieces, and `words` (n,) has the number of the word of each piece:
    0, 0, 1, … It returns the map of the words (v, v), whose rows sum to one.
    """,
    right=_words,
    cases=_pieces,
    axes="v v",
    mistakes={
        but(to="mean"): "Attention to a word is the mean over its pieces. Take the sum.",
        but(read="sum"): "Attention from a word is the sum over its pieces, so rows exceed one.",
        but(to="mean", read="sum"): "Sum and mean are exchanged: sum over keys, mean over queries.",
        but(turned=True): "Rows are keys here. Rows are queries.",
    },
    praise="The rows sum to one again.",
)
