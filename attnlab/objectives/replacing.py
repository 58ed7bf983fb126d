"""Entities that are replaced: which of a row, and by which other one of the same type."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Types(NamedTuple):
    """The tokens of all types, one type after the other, and for each token of the text where it
    stands there (-1: nowhere), where its type begins and how many tokens that has."""

    tokens: Int[Tensor, "e"]
    place: Int[Tensor, "v"]
    begins: Int[Tensor, "v"]
    size: Int[Tensor, "v"]

    @classmethod
    def of(cls, vocab: int, types: Sequence[Sequence[int]]) -> "Types":
        own = [list(each) for each in types] or [list(range(vocab))]
        place = torch.full((3, vocab), -1)
        so_far = 0
        for each in own:
            for index, token in enumerate(each):
                place[:, token] = torch.tensor([so_far + index, so_far, len(each)])
            so_far += len(each)
        return cls(torch.tensor([token for each in own for token in each]), *place)

    def other(self, tokens: Int[Tensor, "m"], noise: Float[Tensor, "m"]) -> Int[Tensor, "m"]:
        """For each entity another one of its type, each as likely."""
        size, begins = self.size[tokens], self.begins[tokens]
        further = 1 + (noise * (size - 1)).long()
        return self.tokens[begins + (self.place[tokens] - begins + further) % size]


def alternating(
    entity: Bool[Tensor, "b n"], noise: Float[Tensor, "b n"], rate: float
) -> Bool[Tensor, "b n"]:
    """Some of the entities, a share ``rate`` in the mean, and never two that follow one another.

    Each is a candidate with probability rate / (1 - rate); of candidates in a row every second one
    is taken, beginning with the first.
    """
    candidate = entity & (noise < rate / (1 - rate))
    rank = entity.long().cumsum(-1)  # the entities of a row are 1, 2, …
    last = torch.where(entity & ~candidate, rank, 0).cummax(-1).values  # the last that is none
    return candidate & ((rank - last) % 2 == 1)
