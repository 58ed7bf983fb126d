"""Checks of lesson 00: a row of a map, the share of a head, its parameters, and a writer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    Answer,
    Arguments,
    KnownMistake,
    Named,
    expect_tensor,
    expect_tensors,
    part_faults,
    random_tensors,
    run,
)
from attnlab.exercises.exercise import Exercise
from attnlab.exercises.verdict import Function, Mistake, returns_verdict, says

# ---- a row, and parameters

check_attended_position = NumberExercise(
    "Where does the induction head attend from position 20 of *uncopyrightables*, read twice?",
    right="uncopyrightables".index("p") + 1,
    unit="(position)",
    mistakes={
        4: "That is the same letter, the first time. The head attends to the letter after it.",
        19: "That is the letter just before: to it attends layer 0, head 1.",
        6: "One place too far: the first p stands at position 4, and the letter after it at 5.",
        20: "That is the second p itself.",
        21: "That is the letter to be predicted, but it comes later: the mask forbids it.",
    },
)


check_attention_parameters = NumberExercise(
    "How many parameters has an attention layer of width 64 with its layer norm?",
    right=4 * 64 * 64 + 2 * 64,
    unit="parameters",
    mistakes={
        4 * 64 * 64: "The four matrices are right. The layer norm is missing.",
        4 * 64 * 64 + 64: "The layer norm has a scale and a shift, 64 numbers each.",
        4 * 65 * 64 + 128: "These matrices have no biases.",
        4 * (4 * 64 * 64 + 128): "Those are bytes in float32; the numbers themselves are counted.",
        3 * 64 * 64 + 128: "One matrix is missing: the output projection.",
        4 * (4 * 64 * 64) + 128: "The heads share the width: four heads have no more than one.",
        4 * 64 * 16 + 128: "All four heads together have the width 64, not one of them alone.",
    },
)


# ---- the share of a head


def _previous_share_cases() -> Iterator[Arguments]:
    (scores,) = random_tensors((7, 7), seed=3)
    yield {"weights": scores.softmax(-1)}


check_previous_share = Exercise(
    """Is it the mean weight on the token just before? `previous_share(weights (n, n)) -> number`.

    The mean is over the rows that have a token before. Called with n = 7.
    """,
    right=lambda w: w.diagonal(-1).mean(),
    cases=_previous_share_cases,
    axes="",
    mistakes={
        (lambda w: w.diagonal(-1).sum() / len(w)): (
            "You divide by all rows, but row 0 has no token before it."
        ),
        (lambda w: w.diagonal().mean()): (
            "That is the share of the token itself: the diagonal is one too high."
        ),
        (lambda w: w.diagonal(1).mean()): (
            "That is the share of the NEXT token: rows are queries, columns are keys."
        ),
        (lambda w: w.diagonal(-1).sum()): (
            "That is a sum. Divide by the number of rows that have a token before."
        ),
        (lambda w: w.diagonal(-1)): "Those are the shares of the rows: average them.",
        (lambda w: w.diagonal(-2).mean()): "That is the share of the token two places before.",
    },
    praise="A head with a share of 1 attends to the token just before and to nothing else.",
)


# ---- a writer

Model = Callable[[Any], Tensor]
Draw = Callable[[Tensor], int]
VOCABULARY = 11
_NAMES = ("probabilities", "ids")


def _model(ids: Any) -> Tensor:
    """Logits (n, vocabulary) that depend on every token up to each place, later ones included."""
    given = torch.as_tensor(ids)
    (table,) = random_tensors((VOCABULARY, VOCABULARY), seed=8)
    return table[given] + 0.3 * table.mT[given].cumsum(0)


def _second(probabilities: Tensor) -> int:
    """Always the second most likely token, so that a drawn text can be compared."""
    return int(probabilities.argsort(descending=True)[1])


def _next(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    logits = logits / temperature
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
    return logits.softmax(-1)


def _write(
    logits_of: Model, ids: Sequence[int], steps: int, temperature: float, top_k: int | None,
    draw: Draw, *, following: Callable[..., Tensor] = _next,
    context: Callable[[list[int], int], list[int]] = lambda ids, n: ids, place: int = -1,
) -> list[int]:  # fmt: skip
    """The text; a known mistake replaces how it makes probabilities, or what the model gets."""
    written = list(ids)
    for _ in range(steps):
        logits = logits_of(context(written, len(ids)))[place]
        greedy = temperature == 0
        new = int(logits.argmax()) if greedy else draw(following(logits, temperature, top_k))
        written.append(new)
    return written


def _kept(logits: Tensor, top_k: int | None, *, largest: bool = True) -> Tensor:
    k = len(logits) if top_k is None else top_k
    return torch.zeros(len(logits)).scatter(0, logits.topk(k, largest=largest).indices, 1).bool()


def _call(case: Arguments, drawn: list[Tensor]) -> Arguments:
    """The arguments of one call; the probabilities that are drawn from go into ``drawn``."""

    def draw(probabilities: Tensor) -> int:
        drawn.append(torch.as_tensor(probabilities).detach().double().flatten())
        return _second(drawn[-1])

    model, ids = Named(_model, "a model"), list(case["ids"])
    return {"logits_of": model, **case, "ids": ids, "draw": Named(draw, "a function")}


def _rows(drawn: Sequence[Tensor]) -> Tensor:
    return torch.stack([*drawn]) if drawn else torch.zeros(0, VOCABULARY, dtype=torch.float64)


def _changed(**changes: Any) -> Callable[..., Tensor]:
    """The probabilities that a mistaken writer draws from."""

    def drawn_from(ids: list[int], steps: int, temperature: float, top_k: int | None) -> Tensor:
        case = {"ids": ids, "steps": steps, "temperature": temperature, "top_k": top_k}
        drawn: list[Tensor] = []
        _write(*_call(case, drawn).values(), **changes)
        return _rows(drawn)

    return drawn_from


_WRITER_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The logits are multiplied by the temperature; divide by it: a high temperature makes all "
        "tokens nearly equally likely.",
        _changed(following=lambda logits, t, k: _next(logits, 1 / t, k)),
    ),
    (
        "The temperature is not used: divide the logits by it.",
        _changed(following=lambda logits, t, k: _next(logits, 1.0, k)),
    ),
    (
        "The probabilities are divided by the temperature, so they do not sum to one: divide the "
        "logits, before the softmax.",
        _changed(following=lambda logits, t, k: _next(logits, 1.0, k) / t),
    ),
    (
        "top_k is not used: only the k most likely tokens may be drawn.",
        _changed(following=lambda logits, t, k: _next(logits, t, None)),
    ),
    (
        "The k LEAST likely tokens are kept.",
        _changed(
            following=lambda logits, t, k: (
                (logits / t).masked_fill(~_kept(logits, k, largest=False), -torch.inf).softmax(-1)
            )
        ),
    ),
    (
        "Tokens that are not among the k have the logit 0, and e⁰ = 1: they need −∞.",
        _changed(
            following=lambda logits, t, k: (
                (logits / t).masked_fill(~_kept(logits, k), 0).softmax(-1)
            )
        ),
    ),
    (
        "The k probabilities do not sum to one: choose the k tokens before the softmax, or divide "
        "by the sum afterwards.",
        _changed(following=lambda logits, t, k: (logits / t).softmax(-1) * _kept(logits, k)),
    ),
    (
        "The model always gets the prompt alone: append each new token before the next call.",
        _changed(context=lambda ids, n: ids[:n]),
    ),
    (
        "The model gets the newest token alone: it needs the whole text so far.",
        _changed(context=lambda ids, n: ids[-1:]),
    ),
    (
        "These are the logits of the first position. The next token is predicted at the last one.",
        _changed(place=0),
    ),
)


@says(_WRITER_MISTAKEN)
@returns_verdict
def check_writer(function: Function) -> str:
    """Does it write? `write(logits_of, ids, steps, temperature, top_k, draw) -> ids`.

    `logits_of(ids)` gives the logits (n, vocabulary), `draw(probabilities)` one token; `top_k` may
    be None. At temperature 0 the most likely token is taken. The result has the prompt and the new
    tokens. Called with a prompt of 3 tokens and 5 steps.
    """
    for temperature, top_k in ((0.7, None), (0.7, 4), (0.0, None)):
        case = {"ids": [3, 1, 4], "steps": 5, "temperature": temperature, "top_k": top_k}
        _refuse(function, case)
    return "The model reads its own words, one at a time; temperature and top-k choose among them."


def _refuse(function: Function, case: Arguments) -> None:
    """A `Mistake`, unless the function writes as it should."""
    drawn: list[Tensor] = []
    wanted: list[Tensor] = []
    answer = run(function, _call(case, drawn))
    written = torch.tensor(_write(*_call(case, wanted).values())).double()
    if case["temperature"] == 0 and (answer.raised or drawn):
        raise Mistake(
            "At temperature 0 nothing is drawn: take the most likely token, and divide by nothing."
        )
    if answer.raised:
        expect_tensor(answer, written, "")
    if answer.value is None:
        raise Mistake(f"{answer.call} gave None: is the `return` missing?")
    if case["temperature"] and not drawn:
        raise Mistake("Nothing is drawn: call `draw` with the probabilities of the next token.")
    shapes, truth = ("steps vocabulary", "n+steps"), (_rows(wanted), written)
    found = expect_tensors(Answer(answer.call, (_rows(drawn), _ids(answer))), _NAMES, shapes, truth)
    faults = part_faults(found, truth, case, _NAMES, (_WRITER_MISTAKEN, ()))
    if faults:
        raise Mistake(faults[0])


def _ids(answer: Answer) -> Tensor:
    try:
        return torch.as_tensor(answer.value).double()
    except (TypeError, ValueError, RuntimeError):
        raise Mistake(f"{answer.call} should give the ids as a list of whole numbers.") from None
