"""Checks of lesson 65: the share of a task in a mixture, rates from numbers of examples, spans put
back into their text."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- the share of a task

check_share_of_a_task = NumberExercise(
    """Is it the share of the rows that one of four equally frequent tasks has, where R = 3?""",
    right=1 / 16,
    tolerance=1e-6,
    mistakes={
        1 / 4: "That is its share of the rows of tasks. Three of four rows are text.",
        3 / 4: "That is the share of the text.",
        1 / 7: "R rows of text come for each row of all tasks together, not of each task.",
        1 / 12: "For one row of tasks there are three of text: four rows, one of which is a task.",
    },
)


# ---- rates


def _rates(
    sizes: Tensor, cap: float, temperature: float, *,
    capped: bool = True, power: bool = False, whole: bool = True, late: bool = False,
    flat: bool = False,
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    least = sizes.clamp(max=cap) if capped and not late else sizes
    weights = least if flat else least ** (temperature if power else 1 / temperature)
    weights = weights.clamp(max=cap) if late else weights
    return weights / weights.sum() if whole else weights


def _rates_cases() -> Iterator[Arguments]:
    for count, cap, temperature in ((3, 40.0, 1.0), (5, 60.0, 2.0), (4, 30.0, 4.0)):
        (drawn,) = random_tensors((count,), seed=count)
        yield {"sizes": 10 + 90 * drawn.sigmoid(), "cap": cap, "temperature": temperature}


check_rates = Exercise(
    """Is it how often each task is drawn? `rates(sizes, cap, temperature)` with `sizes` (t,), the
    numbers of examples of t tasks, gives (t,).

    At most `cap` examples of a task count; what counts is raised to the power 1 / `temperature`.
    """,
    right=_rates,
    cases=_rates_cases,
    axes="t",
    mistakes={
        but(capped=False): "The cap is missing: of a task at most `cap` examples count.",
        but(whole=False): "Rates sum to 1: divide by the sum of all of them.",
        but(power=True): "The power is 1 / temperature: a high temperature makes rates equal.",
        but(flat=True): "The temperature is missing.",
        but(late=True): "The cap is for examples: it comes before the power.",
    },
    praise="A cap below the smallest task, or a very high temperature, makes all rates equal.",
)


# ---- spans


def _restore(
    source: Tensor, target: Tensor, vocab: int, *,
    keep: bool = False, turned: bool = False, first: bool = False, behind: bool = False,
) -> Tensor:  # fmt: skip
    """Every keyword is a mistake."""
    spans, text = dict[int, list[int]](), list[int]()
    own = list[int]()
    for token in target.tolist():
        if token >= vocab:
            own = spans.setdefault(token, [])
        elif not (first and own):
            own.append(token)
    if turned:
        spans = dict(zip(spans, reversed(spans.values()), strict=True))
    for token in source.tolist():
        if token < vocab:
            text.append(token)
        else:
            text += ([token] if keep else []) + ([] if behind else spans[token])
    if behind:
        text += [token for span in spans.values() for token in span]
    return torch.tensor(text)


def _restore_cases() -> Iterator[Arguments]:
    vocab = 10
    word, gaps = -1, range(vocab, vocab + 3)
    for seed, rows in enumerate((
        ([word, gaps[0], word, word, gaps[1], word], [gaps[0], word, word, gaps[1], word]),
        ([word, gaps[0], word, gaps[1], word, word, gaps[2]],
         [gaps[0], word, gaps[1], word, word, word, gaps[2], word, word]),
        ([word, word, gaps[0], word], [gaps[0], word, word]),
    )):  # fmt: skip
        (drawn,) = random_tensors((10,), seed=seed)
        words = iter((1000 * drawn).long().remainder(vocab).tolist())
        source, target = ([next(words) if x == word else x for x in row] for row in rows)
        yield {"source": torch.tensor(source), "target": torch.tensor(target), "vocab": vocab}


check_restore = Exercise(
    """Is it the text? `restore(source, target, vocab)` with `source` (n,) and `target` (m,).

    Tokens below `vocab` are words. `vocab`, `vocab` + 1, … are sentinels: one for each gap of the
    source, and in the target the same before the words of the gap. There are no end marks.
    """,
    right=_restore,
    cases=_restore_cases,
    axes="n",
    mistakes={
        but(keep=True): "The sentinels are still there. A gap is replaced by its words.",
        but(turned=True): "The spans are exchanged: a sentinel says which span is its own.",
        but(first=True): "A span may have several words: take all up to the next sentinel.",
        but(behind=True): "The spans stand behind the text. Each belongs where its sentinel is.",
    },
    praise="Source and target together lose nothing: that is why a target needs its sentinels.",
)
