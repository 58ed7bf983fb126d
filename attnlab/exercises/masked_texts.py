"""Checks of lesson 64: how many answers an update scores, what a masked text shows, a probe."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

check_scored_answers = NumberExercise(
    "Is it the number of answers that one update of a masked language model scores?",
    right=608,
    unit="answers",
    mistakes={
        614.4: (
            "That is 15 % of all 4,096 tokens at once. Of each text a whole number is hidden, "
            "round(0.15 · 128)."
        ),
        4096: "That is every token of the batch: only the hidden 15 % are scored.",
        19: "That is one text of 128 tokens; the batch has 32 of them.",
        486: "Those are the masks alone, 80 %. Replaced and kept tokens are scored as well.",
        486.4: "Those are the masks alone, 80 %. Replaced and kept tokens are scored as well.",
        3488: "Those are the tokens that are not scored.",
    },
)


# ---- what a masked text shows


def _seen(
    tokens: Tensor, scored: Tensor, kind: Tensor, other: Tensor, mask: int, *,
    masks: float = 0.8, last: float = 0.9, anywhere: bool = False, all_hidden: bool = False,
) -> Tensor:  # fmt: skip
    chosen = torch.ones_like(scored) if anywhere else scored
    hidden = chosen & ((kind < masks) | all_hidden)
    replaced = chosen & ~hidden & (kind < last)
    return torch.where(replaced, other, tokens).masked_fill(hidden, mask)


def _masked_texts() -> Iterator[Arguments]:
    for n, seed in ((61, 0), (97, 5)):
        a, b, c, d = random_tensors((n,), (n,), (n,), (n,), seed=seed)
        yield {
            "tokens": (a.sigmoid() * 40).long(),
            "scored": b > 0,
            "kind": (c * 10).sin().abs(),  # a number from 0 to 1 for each token
            "other": (d.sigmoid() * 40).long(),
            "mask": 40,
        }


check_masked_text = Exercise(
    """What does the model read? `read(tokens, scored, kind, other, mask) -> (n,)`.

    Where a token is scored (True) and its number `kind` is below 0.8, the model reads the mask;
    where `kind` is from 0.8 up to 0.9, the token of `other`; everywhere else the token itself.
    """,
    right=_seen,
    cases=_masked_texts,
    axes="n",
    mistakes={
        but(all_hidden=True): (
            "Every scored token became a mask. Of ten, one is replaced and one stays as it is."
        ),
        but(anywhere=True): "Tokens that are not scored were changed as well.",
        but(last=1.0): "All scored tokens that are no mask were replaced; half of them stay.",
        but(last=0.8): "No token was replaced: from 0.8 up to 0.9 the token of `other` is read.",
        but(masks=0.9, last=1.0): "The bounds are shifted: masks are below 0.8, others below 0.9.",
    },
    praise="A kept token is scored too, so the model cannot trust what it sees.",
)


# ---- a probe


def _answers(
    states: Tensor, labels: Tensor, new: Tensor, *,
    constant: bool = True, signed: bool = True, own: bool = False,
) -> Tensor:  # fmt: skip
    def with_one(x: Tensor) -> Tensor:
        return torch.cat([x, torch.ones_like(x[:, :1])], 1) if constant else x

    wanted = 2 * labels - 1 if signed else labels
    w = torch.linalg.lstsq(with_one(states), wanted[:, None].to(states.dtype)).solution
    return (with_one(states if own else new) @ w)[:, 0]


def _states() -> Iterator[Arguments]:
    for m, d, seed in ((61, 5, 1), (89, 7, 4)):
        states, new, noise = random_tensors((m, d), (m - 2, d), (m,), seed=seed)
        labels = (states[:, 1] + 0.5 * noise > 0.3).long()
        yield {"states": states + 0.7, "labels": labels, "new": new + 0.7}


check_linear_probe = Exercise(
    """Is it a linear probe? `probe(states, labels, new) -> scores (k,)`, above 0 for class 1.

    states (m, d) are frozen, labels (m,) are 0 or 1. The probe is the least-squares solution for
    the targets -1 and 1 with a constant beside the states, and its scores are those of the new
    states (k, d).
    """,
    right=_answers,
    cases=_states,
    axes="k",
    mistakes={
        but(constant=False): (
            "The constant is missing: give every state one more number, 1, so that the plane need "
            "not go through the origin."
        ),
        but(signed=False): (
            "The targets are 0 and 1 here, so a score above 0 does not mean class 1. Take 2y - 1."
        ),
        but(own=True): (
            "Those are the scores of the states that it has learned from; it is asked new ones."
        ),
    },
    praise="Nothing of the encoder has changed; only w was computed.",
)
