"""Checks of lesson 33: the far part, tokens that stand there alone, a standard error, a study."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, run
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function

# ---- the far part

check_far_part = NumberExercise(
    "Of 512 tokens the last 64 are measured: how many are changed beyond a distance of 128?",
    right=512 - 64 - 128,
    unit="tokens",
    mistakes={
        512 - 128: "The distance is counted from the first measured token, not from the end.",
        512 - 64: "The 128 tokens before the measured ones are left as they are.",
        128.0: "That is the near part.",
    },
)


# ---- tokens that can be copied from the far part alone


def _copied(
    tokens: Tensor, last: int, distance: int, *, near: bool = True, measured: bool = True,
    anywhere: bool = False, itself: bool = False, short: int = 0, early: int = 0, before: int = 0,
) -> Tensor:  # fmt: skip
    """(last,): stands in the far part and nowhere else before; every keyword is a mistake."""
    n = len(tokens)
    start, far = n - last, n - last - distance
    found = []
    for i in range(start, n):
        end = n if anywhere else i + itself - before if measured else start
        rest = [j for j in range(far - early, end) if itself or j != i]
        in_far = (tokens[: far - short] == tokens[i]).any()
        found.append(in_far & ~(near & (tokens[rest] == tokens[i]).any()))
    return torch.stack(found)


def _elsewhere(tokens: Tensor, last: int, distance: int) -> Tensor:
    return ~_copied(tokens, last, distance, near=False)


def _copied_cases() -> Iterator[Arguments]:
    tokens = torch.arange(53).square() % 37 % 17
    tokens[[5, 34, 45]] = 20  # 34 is the last of the far part in the first case,
    tokens[[20, 38]] = 22  # and 20 in the second: it stands there alone
    tokens[[3, 46, 47]] = 21  # a token that stands just before itself
    tokens[[2, 44, 49]] = 23  # and one that is measured twice
    tokens[51] = 24  # one that stands nowhere before
    for last, distance in ((11, 7), (19, 13)):
        yield {"tokens": tokens, "last": last, "distance": distance}


check_copied = Exercise(
    """Which measured tokens stand in the far part only? `copied(tokens, last, distance)`.

    `tokens` is (n,); it returns (last,), True or False. In the texts each border decides.
    """,
    right=_copied,
    cases=_copied_cases,
    axes="last",
    mistakes={
        but(near=False): (
            "Tokens that stand in the near part as well are counted: those can be "
            "copied from there."
        ),
        but(measured=False): (
            "A token may also be copied from a measured token before it: those are unchanged, too."
        ),
        but(anywhere=True): (
            "Tokens after a token take part. The model has not read those when it predicts it."
        ),
        but(itself=True): "No token is left: each token is compared with itself, too. What the "
        "model has read ends just before it, `tokens[far:i]`.",
        but(short=1): "The far part is one token too short: it ends just before the near part, "
        "which has `distance` tokens.",
        but(early=1): (
            "The near part begins one token too early, at the last token of the far part."
        ),
        but(before=1): "The token just before a token is left out: the model has read it.",
        _elsewhere: "These are the tokens that do not stand in the far part.",
    },
    praise="Their prediction is what the far part alone can have helped.",
)


# ---- the standard error of a mean difference


def _standard_error(
    before: Tensor, after: Tensor, *, paired: bool = True, alone: bool = False, ddof: int = 1
) -> Tensor:
    """Standard error of the mean over all tokens, texts being units; keywords are mistakes."""
    if not paired:
        apart = before.mean(1).var() + after.mean(1).var()
        return (apart / len(before)).sqrt()
    units = (after - before).flatten() if alone else (after - before).mean(1)
    return units.std(correction=ddof) / math.sqrt(len(units))


def _standard_error_cases() -> Iterator[Arguments]:
    before, noise, text = random_tensors((7, 5), (7, 5), (7, 1), seed=33)
    yield {"before": before.square(), "after": before.square() + 0.3 * noise + text}


check_standard_error = Exercise(
    "Is it the error of the mean change? `standard_error(before, after)`: both (b, m).",
    right=_standard_error,
    cases=_standard_error_cases,
    axes="",
    mistakes={
        but(alone=True): "All tokens count as independent. Those of one text are not: take the "
        "mean of each text, and the deviation of these means.",
        but(paired=False): "Losses before and after count as independent. Take the difference of "
        "each token first: most of what makes a token hard is in both.",
        but(ddof=0): "The deviation of b means is divided by √(b − 1), not by √b, before it "
        "becomes an error: use `std`, which does so.",
        (lambda before, after: (after - before).mean(1).std()): (
            "That is the deviation of the texts. The error of their mean is smaller, by √b."
        ),
    },
    praise="A text is one draw, however many of its tokens are measured.",
)


# ---- a whole study


class _Losses:
    """(b, n − 1): made-up losses that fall with each earlier occurrence of a token, the nearer the
    more, and depend on what stands anywhere before."""

    def __call__(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        i, j = torch.arange(n)[:, None], torch.arange(n)
        same = (tokens[:, :, None] == tokens[:, None, :]) & (j < i)
        near = (same / (1 + (i - j).abs())).sum(-1)
        rest = (tokens.double() * (1 + j % 5)).cumsum(1) % 7
        return (3 - near + 0.05 * rest)[:, 1:]

    def __repr__(self) -> str:  # what a message calls it
        return "(a function)"


def _far_use(
    losses_of: Function, tokens: Tensor, other: Tensor, last: int, distances: tuple[int, ...], *,
    sign: int = 1, swap: bool = False, everywhere: bool = False, whole: bool = False,
    class_of: str = "far",
) -> Tensor:  # fmt: skip
    """(distances,): every keyword is a mistake."""
    n = tokens.shape[1]
    found = []
    for distance in distances:
        far = n - last - distance
        changed = tokens.clone()
        if swap:
            changed[:, far : n - last] = other[:, far : n - last]
        elif whole:
            changed[:, : n - last] = other[:, : n - last]
        else:
            changed[:, :far] = other[:, :far]
        part = slice(None) if everywhere else slice(-last, None)
        change = sign * (losses_of(changed) - losses_of(tokens))[:, part]  # type: ignore[operator]
        member = torch.stack([_copied(row, last, distance) for row in tokens])
        if class_of == "far" and not everywhere:
            change = change[member]
        elif class_of == "rows":
            change = torch.stack(
                [c[m].mean() for c, m in zip(change, member, strict=True) if m.any()]
            )
        found.append(change.mean())
    return torch.stack(found)


def _far_use_cases() -> Iterator[Arguments]:
    tokens = torch.arange(4 * 41).square().reshape(4, 41) % 53 % 19
    other = (3 * tokens + 5) % 19
    numbers = {"last": 9, "distances": (3, 7, 13)}
    yield {"losses_of": _Losses(), "tokens": tokens, "other": other, **numbers}


def _far_use_explained(function: Function, given: Arguments) -> str | None:
    if "tokens" not in run(function, given).changed:
        return None
    return (
        "`tokens` is changed in place, so that the next distance and `losses_of(tokens)` no longer "
        "see the text as it was. Make a new tensor, by `torch.cat` or `tokens.clone()`."
    )


check_far_use = Exercise(
    """Is the far part replaced, and the change averaged over the tokens that stand there alone?

    `far_use(losses_of, tokens, other, last, distances)`: `tokens` and `other` are (b, n),
    `losses_of(tokens)` is (b, n − 1); it returns a tensor with a mean for each distance.
    """,
    right=_far_use,
    cases=_far_use_cases,
    axes="distances",
    explain=_far_use_explained,
    mistakes={
        but(sign=-1): "The sign is reversed: the loss after the change less the loss before it.",
        but(swap=True): "The near part was replaced, and the far part left as it is.",
        but(whole=True): (
            "Everything before the measured tokens was replaced: leave the near part as it is."
        ),
        but(class_of="all"): (
            "All measured tokens are averaged: take those that stand in the far part only."
        ),
        but(everywhere=True): "The losses of all tokens are averaged, those of the replaced ones, "
        "too. Take the last ones.",
        but(class_of="rows"): "It is a mean of the means of the texts. Average over all tokens of "
        "the class at once: a text with few of them counts less.",
    },
    praise="That is the measurement behind the curves of this lesson.",
)
