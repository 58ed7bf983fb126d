"""What a mechanism that chooses keys notes of its choice, in one form for all of them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.chosen_blocks import NOTHING, picked


class Selection(NamedTuple):
    """The units (blocks of keys, or single keys) that each query could choose, and those it chose.

    ``of``      what a unit is: "block" or "token"
    ``unit``    (b or 1, m): the number of the unit that each key belongs to; −1 for padding
    ``scores``  (b, g, n, u): by which units are chosen, the largest first; −∞ where a unit cannot
                be chosen by its score. g is the number of heads, or of groups of heads that choose
                together, or 1
    ``chosen``  (b, g, n, u)
    ``always``  (b, g, n, u): those of the chosen units that are read whatever their scores
    """

    of: str
    unit: Int[Tensor, "#b m"]
    scores: Float[Tensor, "b g n u"]
    chosen: Bool[Tensor, "b g n u"]
    always: Bool[Tensor, "b g n u"]


def of_blocks(
    scores: Tensor, chosen: Tensor, always: Tensor, unit: Tensor, padding: Tensor | None
) -> Selection:
    """A choice of blocks: ``chosen`` (b, g, n, k) has their numbers, −1 where there are fewer."""
    read = picked(chosen, scores.shape[-1])
    if padding is not None:
        unit = unit.masked_fill(~padding, NOTHING)
    return Selection("block", unit, scores, read, read & always)


def of_tokens(scores: Tensor, chosen: Tensor, allowed: Tensor) -> Selection:
    """A choice of single keys, the same for all heads: all are (b, n, m), ``allowed`` (b or 1, n,
    m) with the keys that are no padding."""
    unit = torch.arange(scores.shape[-1], device=scores.device)[None]
    unit, none = unit.masked_fill(~allowed.any(1), NOTHING), torch.zeros_like(chosen)
    return Selection("token", unit, scores[:, None], chosen[:, None], none[:, None])
