"""A text in a random order: which tokens are asked last, and the questions beside the text.

A question is a mask at the position of the token that it asks for. Questions stand after the text,
and a ``Visibility`` says which token and which question sees which.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.positions import positions_of
from attnlab.core.visibility import Visibility
from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.objectives.hiding import real_tokens, share_of, uniform


class Order(NamedTuple):
    """An order z of each text, whose last q tokens are asked.

    rank: the place of each token in it, from 0; the context are those before ``first``.
    first: the rank of the first token that is asked.
    asked: which tokens are asked, in the order z, and ``real``, where a text has so many.
    """

    rank: Int[Tensor, "b n"]
    first: Int[Tensor, "b 1"]
    asked: Int[Tensor, "b q"]
    real: Bool[Tensor, "b q"]

    @property
    def predicted(self) -> Bool[Tensor, "b n"]:
        """True at the tokens that are asked."""
        width = self.rank.shape[1]
        places = self.asked.masked_fill(~self.real, width)
        found = torch.zeros(len(self.rank), width + 1, dtype=torch.bool)
        return found.scatter_(1, places, True)[:, :width]

    @property
    def rank_of_asked(self) -> Int[Tensor, "b q"]:
        return self.first + torch.arange(self.asked.shape[1])


def drawn(batch: Batch, rate: float, generator: torch.Generator | None) -> Order:
    """An order of the real tokens of each row, each as likely as another; this share is asked, at
    least one token."""
    real = real_tokens(batch)
    scores = uniform(real.shape, generator).masked_fill(~real, torch.inf)
    order = scores.argsort(-1)
    places = torch.arange(real.shape[1])
    rank = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    count = share_of(real, rate)[:, None]
    first = real.sum(-1, keepdim=True) - count
    slots = torch.arange(int(count.amax()) if len(count) else 0)
    last = (first + slots).clamp(max=real.shape[1] - 1)
    return Order(rank, first, order.gather(1, last), slots < count)


def most_asked(length: int, rate: float) -> int:
    """How many of so many tokens are asked."""
    return int(share_of(torch.ones(1, length, dtype=torch.bool), rate))


def asked_beside(
    batch: Batch, order: Order, allowed: Bool[Tensor, "b m m"], mask: int, copies: int = 1
) -> Batch:
    """The text with ``copies`` of its questions after it, of which the last are scored."""
    tokens, real = batch.inputs, real_tokens(batch)
    place = positions_of(tokens.shape[1], tokens.device, padding=real)
    questions = torch.full_like(order.asked, mask).masked_fill(~order.real, 0)
    answers = tokens.gather(1, order.asked).masked_fill(~order.real, UNSCORED)
    unscored = [torch.full_like(x, UNSCORED) for x in (tokens, *[answers] * (copies - 1))]
    at = torch.cat([place, *[place.gather(1, order.asked)] * copies], 1)
    return replace(
        batch,  # type: ignore[type-var]
        inputs=torch.cat([tokens, *[questions] * copies], 1),
        targets=torch.cat([*unscored, answers], 1),
        padding=torch.cat([real, *[order.real] * copies], 1),
        structure=Visibility(allowed, at),
    )
