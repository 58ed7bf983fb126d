"""Lesson 00's checks: a position, a share, a count of parameters, and a writer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises import check_previous_share, check_writer
from tests.exercises.frame import answers_to


def probabilities(logits: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """By sorting."""
    order = logits.argsort(descending=True)
    weights = ((logits - logits.max()) / temperature).exp()
    if top_k is not None:
        weights[order[top_k:]] = 0
    return weights / weights.sum()


def writer(
    after: Callable[..., Tensor] = probabilities, *,
    place: int = -1, cut: Callable[[list[int]], list[int]] = list, start: int = 0,
    greedy: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    def write(
        logits_of: Callable, ids: Sequence[int], steps: int, temperature: float,
        top_k: int | None, draw: Callable,
    ) -> list[int]:  # fmt: skip
        text = list(ids)
        for _ in range(steps):
            logits = logits_of(torch.tensor(cut(text)))[place].clone()
            if greedy and not temperature:
                text.append(int(logits.argmax()))
            else:
                text.append(draw(after(logits, temperature, top_k)))
        return text[start:]

    return write


def in_tensors(
    logits_of: Callable, ids: Sequence[int], steps: int, temperature: float,
    top_k: int | None, draw: Callable,
) -> Tensor:  # fmt: skip
    text = torch.tensor(ids)
    for _ in range(steps):
        logits = logits_of(text)[-1]
        if temperature == 0:
            new = logits.argmax()
        else:
            best = (logits / temperature).topk(top_k or len(logits))
            spread = torch.zeros(11).double().scatter(0, best.indices, best.values.softmax(-1))
            new = torch.tensor(draw(spread))
        text = torch.cat([text, new[None]])
    return text


def masked(logits: Tensor, t: float, k: int | None, *, value: float) -> Tensor:
    logits = logits / t
    if k is not None:
        logits = torch.where(logits < logits.topk(k).values[-1], value, logits)
    return logits.softmax(-1)


def probabilities_of_least(logits: Tensor, t: float, k: int) -> Tensor:
    weights = (logits / t).exp()
    weights[logits.argsort(descending=True)[:-k]] = 0
    return weights / weights.sum()


def cut_late(logits: Tensor, t: float, k: int | None) -> Tensor:
    found = (logits / t).softmax(-1)
    if k is not None:
        found[found < found.topk(k).values[-1]] = 0
    return found


WRITER_WRONG = {
    "times": ("multiplied by the temperature", writer(lambda x, t, k: probabilities(x, 1 / t, k))),
    "ignored": ("temperature is not used", writer(lambda x, t, k: probabilities(x, 1.0, k))),
    "late": (
        "The probabilities are divided by the temperature",
        writer(lambda x, t, k: probabilities(x, 1.0, k) / t),
    ),
    "no k": ("top_k is not used", writer(lambda x, t, k: probabilities(x, t, None))),
    "least": (
        "LEAST likely",
        writer(lambda x, t, k: probabilities(x, t, None) if k is None
               else probabilities_of_least(x, t, k)),
    ),
    "zero": ("they need −∞", writer(lambda x, t, k: masked(x, t, k, value=0.0))),
    "not one": ("The k probabilities do not sum to one", writer(cut_late)),
    "prompt": ("gets the prompt alone", writer(cut=lambda text: text[:3])),
    "newest": ("gets the newest token alone", writer(cut=lambda text: text[-1:])),
    "first": ("logits of the first position", writer(place=0)),
    "division": ("At temperature 0 nothing is drawn", writer(greedy=False)),
    "no draw": (
        "Nothing is drawn",
        lambda logits_of, ids, steps, t, k, draw: [*ids, *range(steps)],
    ),
    "text": ("a list of whole numbers", lambda *given: str(writer()(*given))),
    "new only": ("Wrong shape: `ids`", writer(start=3)),
    "none": ("`return`", lambda *given: None),
    "raises": ("raised ZeroDivisionError", lambda *given: 1 / 0),
}  # fmt: skip


def divided(logits: Tensor, t: float, k: int | None) -> Tensor:
    found = cut_late(logits, t, k)
    return found / found.sum()


RIGHT = [
    (check_previous_share, lambda w: w.diagonal(-1).mean()),
    (
        check_previous_share,
        lambda w: sum(w[i, i - 1].item() for i in range(1, len(w))) / (len(w) - 1),
    ),
    *((check_writer, write) for write in (writer(), in_tensors, writer(divided))),
]

TestAnswers = answers_to(RIGHT, [(check_writer, WRITER_WRONG)])
