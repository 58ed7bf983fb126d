"""Checks of lesson 68: the expected layer, by hand and as code, and from which layer on a word is
known."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- the expected layer of four scores, by hand

check_expected_layer_by_hand = NumberExercise(
    "Is it the expected layer of the scores 0.5, 0.6, 0.9 and 0.9, of which the first is that of "
    "the embedding?",
    right=1.75,
    tolerance=0.004,
    mistakes={
        0.75: "Layers are counted from 0 there. The first gain is that of layer 1.",
        0.7: "The gains times their layers are added up. Divide by the sum of the gains, 0.4.",
        2.0: "That is the middle of layers 1 to 3. Weight each layer by its gain.",
        (0.6 + 2 * 0.9 + 3 * 0.9) / 2.4: "The scores are the weights there. Take their gains.",
    },
)


# ---- the expected layer


def _expected(
    scores: Tensor, *, first: int = 1, gains: bool = True, divided: bool = True
) -> Tensor:
    """Weighs each layer by what it adds to the scores; every keyword is a mistake."""
    gained = scores.diff() if gains else scores[1:]
    layers = torch.arange(first, first + len(gained)).to(scores)
    found = (layers * gained).sum()
    return found / gained.sum() if divided else found


def _curves() -> Iterator[Arguments]:
    """Scores that rise, and scores that fall at one layer."""
    for size, fall, seed in ((4, 0.0, 66), (5, 0.08, 67)):
        (drawn,) = random_tensors((size,), seed=seed)
        gained = 0.02 + 0.3 * drawn.softmax(0)
        gained[2] -= fall + gained[2] * (fall > 0)
        yield {"scores": torch.cat([torch.full((1,), 0.5).to(gained), gained]).cumsum(0)}


check_expected_layer = Exercise(
    """At which layer does the answer come in? `expected_layer(scores)`.

    `scores` (layers,) are those of cumulative probes, the first one that of the embedding alone. It
    returns one number: the mean layer, each weighted by what it adds to the score.
    """,
    right=_expected,
    cases=_curves,
    axes="",
    mistakes={
        but(first=0): "The first gain counts as layer 0. It is what layer 1 adds.",
        but(gains=False): "Layers are weighted by scores. Weight each by what it adds.",
        but(divided=False): "The weights do not sum to one. Divide by the sum of the gains.",
        (lambda scores: (scores.diff().clamp(min=0) * torch.arange(1, len(scores))).sum()
         / scores.diff().clamp(min=0).sum()): (
            "A fall counts as nothing there. It is subtracted: that is why the number may leave "
            "the range of the layers."
        ),
    },
    praise="Where scores fall it may lie outside the layers: read the curve first.",
)  # fmt: skip


# ---- from which layer on an answer is right


def _known_from(chosen: Tensor, label: Tensor, *, keeps: bool = True, never: int = 0) -> Tensor:
    """(e,) layers; every keyword is a mistake."""
    right = (chosen == label).long()
    if not keeps:
        return torch.where(right.any(0), right.argmax(0), len(right))
    last_wrong = ((1 - right) * torch.arange(1, len(right) + 1)[:, None]).amax(0)
    return torch.where(last_wrong == len(right), len(right) + never, last_wrong)


def _answers() -> Iterator[Arguments]:
    """Answers of four and of six probes to seven and five questions; some are never right."""
    for shape, seed in (((4, 7), 68), ((6, 5), 69)):
        (drawn,) = random_tensors(shape, seed=seed)
        label = torch.arange(shape[1]) % 2
        chosen = torch.where(drawn > -0.3, label, 1 - label)
        chosen[:, 0] = label[0]  # known from the embedding on
        chosen[0, 1], chosen[1, 1], chosen[2:, 1] = label[1], 1 - label[1], label[1]
        chosen[-1, 2] = 1 - label[2]
        yield {"chosen": chosen, "label": label}


check_known_from = Exercise(
    """From which layer on is each example known? `known_from(chosen, label)`.

    `chosen` (layers, e) are the answers of the probes of layers 0, 0 to 1, 0 to 2, …, and `label`
    (e,) the right ones. It returns (e,): the first layer from which on all probes are right, and
    the number of the probes where the last one is wrong.
    """,
    right=_known_from,
    cases=_answers,
    axes="e",
    mistakes={
        but(keeps=False): (
            "That is the first layer that is right. Some lose the answer again: take the first "
            "from which on all are right."
        ),
        but(never=-1): "Where the last probe is wrong there is no such layer: return their number.",
        (lambda chosen, label: (chosen == label).sum(0)): (
            "That counts the probes that are right. Ask after the last one that is wrong."
        ),
    },
    praise="Lucky guesses of early probes do not count, unless all later ones agree.",
)
