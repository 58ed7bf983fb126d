"""Checks of lesson 91: a score of an image and a caption, the mask of captions, and the loss that
compares images with texts."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- one image and two captions, by hand

check_own_caption = NumberExercise(
    "Is it the probability of the image's own caption? The cosines of its two queries are 0.1 and "
    "0.5 with its own caption, 0.4 and 0.3 with the other; the temperature is 0.05.",
    right=1 / (1 + math.exp(-2)),
    tolerance=0.004,
    mistakes={
        1 / (1 + math.exp(-0.1)): "The cosines are not divided by the temperature there.",
        1 / (1 + math.exp(-0.005)): "The temperature multiplies there. Divide by it.",
        1 / (1 + math.exp(1)): "That is the mean over the queries. Take the largest cosine.",
        1 / (1 + math.exp(6)): "That is the first query alone. Take the largest of both cosines.",
        2.0: "That is the difference of the two scores. Their softmax is asked.",
        1 / (1 + math.exp(2)): "That is the probability of the other caption.",
    },
)


# ---- who sees whom in captioning


def _captioning(
    queries: int, words: int, *, of_words: bool = False, later: bool = False,
    image: bool = True, own: bool = True, square: bool = True,
) -> Tensor:  # fmt: skip
    """(q + n, q + n), True = may attend; every keyword is a mistake."""
    place = torch.arange(queries + words)
    row, column = place[:, None], place
    of_query, to_query = row < queries, column < queries
    earlier = column <= row if own else column < row
    to_word = (earlier | later) & ~of_query & ~to_query
    queries_see = to_query & (square | (column <= row))
    return (
        (of_query & queries_see)
        | (~of_query & to_query & image)
        | to_word
        | (of_query & ~to_query & of_words)
    )


check_captioning_mask = Exercise(
    """Who sees whom while a caption is written? `captioning_mask(queries, words)`.

    Rows and columns are first the queries, then the words: (q + n, q + n), True = may attend.
    Queries see all queries and no word; a word sees all queries, itself and the words before it.
    Called with (queries, words) = (2, 3), (5, 7) and (3, 1).
    """,
    right=_captioning,
    cases=drawn(queries=[2, 5, 3], words=[3, 7, 1]),
    axes="s s",
    mistakes={
        but(of_words=True): (
            "Queries see words there. What a query has read of a caption would then stand in front "
            "of the words that are to be predicted: the answer leaks."
        ),
        but(later=True): "A word sees later words, which it is to predict.",
        but(image=False): "Words see no query there: a caption is written without its image.",
        but(own=False): "A word does not see itself. The word before the next one is needed.",
        but(square=False): (
            "Queries see earlier queries alone. They have no order: all see all."
        ),
        (lambda queries, words: _captioning(queries, words).T): (
            "Rows and columns are exchanged: a row says whom its token may attend to."
        ),
        (lambda queries, words: ~_captioning(queries, words)): (
            "True and False are exchanged: True means may attend."
        ),
    },
    praise="No query sees a word, so that queries are computed once, whatever is written.",
)  # fmt: skip


# ---- images and texts compared


def _contrastive(
    z: Tensor, t: Tensor, temperature: float, *, unit: bool = True, mean: bool = False,
    times: bool = False, sides: int = 2, summed: bool = False,
) -> Tensor:  # fmt: skip
    """One number; every keyword is a mistake."""
    if unit:
        z, t = F.normalize(z, dim=-1), F.normalize(t, dim=-1)
    each = torch.einsum("bqw, cw -> bcq", z, t)
    s = each.mean(-1) if mean else each.amax(-1)
    s = s * temperature if times else s / temperature
    own = torch.arange(len(s))
    losses = [F.cross_entropy(s, own), F.cross_entropy(s.T, own)]
    chosen = {0: losses[:1], 1: losses[1:], 2: losses}[sides]
    total = torch.stack(chosen).sum()
    return total if summed else total / len(chosen)


def _pairs() -> Iterator[Arguments]:
    """Five images of three queries and seven images of two, each with its text."""
    for b, q, w, temperature, seed in ((5, 3, 4, 0.5, 91), (7, 2, 3, 0.2, 92)):
        z, t = random_tensors((b, q, w), (b, w), seed=seed)
        yield {"z": z, "t": t, "temperature": temperature}


check_contrastive = Exercise(
    """Images against texts: `contrastive(z, t, temperature)`.

    `z` (b, q, w) are the queries of b images and `t` (b, w) one vector of each text; text i belongs
    to image i. The score of an image and a text is the largest cosine over the queries, divided by
    the temperature. It returns one number: the mean of two cross-entropies, in which each image
    chooses among the b texts, and each text among the b images.
    """,
    right=_contrastive,
    cases=_pairs,
    axes="",
    mistakes={
        but(unit=False): "The products are no cosines: give all vectors the length 1 first.",
        but(mean=True): "The queries are averaged. The best one counts.",
        but(times=True): "The temperature multiplies there: divide by it.",
        but(sides=0): "Images choose among texts, and texts do not choose among images.",
        but(sides=1): "Texts choose among images, and images do not choose among texts.",
        but(summed=True): "Both cross-entropies are added up. Take their mean.",
        (lambda z, t, temperature: -_diagonal(z, t, temperature).mean()): (
            "Only the own pairs count there. Without the wrong ones all vectors may become equal."
        ),
    },
    praise="Only the best query counts, so one may learn to answer for all.",
)  # fmt: skip


def _diagonal(z: Tensor, t: Tensor, temperature: float) -> Tensor:
    """(b,) scores of images and their own texts."""
    z, t = F.normalize(z, dim=-1), F.normalize(t, dim=-1)
    return torch.einsum("bqw, bw -> bq", z, t).amax(-1) / temperature
