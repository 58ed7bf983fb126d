"""Pieces of sequences, and a head that says to which of many directions a vector is nearest."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.objectives.encodings import encoded
from attnlab.objectives.hiding import uniform


def drawn_pieces(
    n: Int[Tensor, "b"], shares: Sequence[tuple[float, float]], generator: torch.Generator | None
) -> tuple[Int[Tensor, "b v"], Int[Tensor, "b v"]]:
    """Where pieces of sequences of n places begin, and how long they are: each anywhere, and
    between its two shares of the sequence, of at least one place where there is one."""
    where, share = uniform(torch.Size((2, len(n), len(shares))), generator)
    least, most = torch.tensor(shares, dtype=torch.float64).unbind(1)
    length = (n[:, None] * (least + (most - least) * share)).round().long()
    length = length.clamp(min=1).minimum(n[:, None])
    return (where * (n[:, None] - length + 1)).long(), length


def pieces(
    x: Tensor, start: Int[Tensor, "b v"], length: Int[Tensor, "b v"], width: int
) -> tuple[Tensor, Tensor]:
    """The pieces (b, v, width, …) of each sequence, and which of their places are real."""
    place = torch.arange(width, device=x.device)
    index = (start[..., None] + place).clamp(max=x.shape[1] - 1)
    rows = torch.arange(len(x), device=x.device)[:, None, None]
    return x[rows, index], place < length[..., None]


def encoded_pieces(name: str, model: Any, texts: Tensor, real: Tensor) -> Float[Tensor, "b v dim"]:
    """One vector for each piece, the mean over its real places."""
    found = encoded(name, model, texts.flatten(0, 1), real.flatten(0, 1), "mean")
    return found.unflatten(0, texts.shape[:2])


class Head(nn.Module):
    """Two hidden layers, a vector of length 1, and its cosines with K directions."""

    def __init__(self, dim: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, hidden),
        )  # fmt: skip
        self.directions = nn.Parameter(torch.randn(outputs, hidden))

    def forward(self, x: Float[Tensor, "... dim"]) -> Float[Tensor, "... k"]:
        return F.normalize(self.layers(x), dim=-1) @ F.normalize(self.directions, dim=-1).T
