"""The synthesizing functions, which compute logits without comparing tokens.

Each module here maps (x, start) to ``Logits`` for the queries at positions start … start + n - 1
and the keys at positions 0 … start + n - 1. None of them depends on a key's token: a column j is a
position.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.shapes import Tokens, Values


class Logits(NamedTuple):
    """S = rows · columnsᵀ + table, not multiplied. Parts that a function does not have are None.

    A first axis of 1 is for the whole batch: a random alignment is the same for all sequences.
    """

    rows: Float[Tensor, "#b h n r"] | None = None
    columns: Float[Tensor, "#b h m r"] | None = None
    table: Float[Tensor, "#b h n m"] | None = None


class Random(nn.Module):
    """S = R, one L × L table per head, trained or (``fixed``) left as it was drawn."""

    table: Tensor

    def __init__(self, heads: int, max_len: int, *, fixed: bool = False) -> None:
        super().__init__()
        table = torch.randn(heads, max_len, max_len)
        if fixed:
            self.register_buffer("table", table)
        else:
            self.table = nn.Parameter(table)

    def forward(self, x: Tokens, start: int) -> Logits:
        stop = start + x.shape[1]
        return Logits(table=self.table[None, :, start:stop, :stop])


class FactorizedRandom(nn.Module):
    """S = R₁ R₂ᵀ, per head two L × rank tables."""

    def __init__(self, heads: int, max_len: int, rank: int) -> None:
        super().__init__()
        unit = rank**-0.25  # so that entries of the product have variance one
        self.rows = nn.Parameter(torch.randn(heads, max_len, rank) * unit)
        self.columns = nn.Parameter(torch.randn(heads, max_len, rank) * unit)

    def forward(self, x: Tokens, start: int) -> Logits:
        stop = start + x.shape[1]
        return Logits(self.rows[None, :, start:stop], self.columns[None, :, :stop])


class Hidden(nn.Module):
    """relu(x W₁ + b₁), cut into heads of width dim / heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.linear, self.heads = nn.Linear(dim, dim), heads

    def forward(self, x: Tokens) -> Float[Tensor, "b h n d"]:
        return self.linear(x).relu().unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Second(nn.Module):
    """The second layer of F, W₂ and b₂, one per head: from the hidden width d to ``size``."""

    def __init__(self, heads: int, d: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, size, d) * d**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, size))

    def forward(
        self, hidden: Float[Tensor, "b h n d"], size: int | None = None
    ) -> Float[Tensor, "b h n size"]:
        """The first ``size`` entries."""
        return hidden @ self.weight[:, :size].mT + self.bias[:, None, :size]


class Dense(nn.Module):
    """S_i = F(x_i): a token determines its logits for all positions.

    As factors: rows (relu(x W₁ + b₁), 1), columns (W₂, b₂). That is attention whose keys are
    parameters, one for each position.
    """

    def __init__(self, dim: int, heads: int, max_len: int) -> None:
        super().__init__()
        self.hidden = Hidden(dim, heads)
        self.second = Second(heads, dim // heads, max_len)

    def forward(self, x: Tokens, start: int) -> Logits:
        hidden, stop = self.hidden(x), start + x.shape[1]
        rows = torch.cat((hidden, torch.ones_like(hidden[..., :1])), dim=-1)
        bias = self.second.bias[:, :stop, None]
        return Logits(rows, torch.cat((self.second.weight[:, :stop], bias), dim=-1)[None])


class FactorizedDense(nn.Module):
    """S_ij = A_i[j mod a] · B_i[⌊j / a⌋]: two short rows in place of one of length L = a·b."""

    def __init__(self, dim: int, heads: int, factors: tuple[int, int]) -> None:
        super().__init__()
        self.hidden = Hidden(dim, heads)
        self.tiled = Second(heads, dim // heads, factors[0])
        self.repeated = Second(heads, dim // heads, factors[1])
        self.factors = factors

    def forward(self, x: Tokens, start: int) -> Logits:
        hidden, stop = self.hidden(x), start + x.shape[1]
        blocks = math.ceil(stop / self.factors[0])
        outer = self.repeated(hidden, blocks)[..., :, None] * self.tiled(hidden)[..., None, :]
        return Logits(table=outer.flatten(-2)[..., :stop])


def mixed(
    parts: list[Logits], weights: Float[Tensor, "parts"] | None, v: Values, n: int
) -> tuple[Float[Tensor, "b h n r"], Float[Tensor, "b h m r"], Float[Tensor, "#b h n m"] | None]:
    """Σ_s α_s S_s: factors stand side by side, their rows times α_s, and tables are summed.

    Without any factors there is one of zeros, so that all variants are called in the same way.
    """
    rows, columns, tables = [], [], []
    for s, part in enumerate(parts):
        if part.rows is not None and part.columns is not None:
            rows.append(part.rows if weights is None else weights[s] * part.rows)
            columns.append(part.columns)
        if part.table is not None:
            tables.append(part.table if weights is None else weights[s] * part.table)
    return (
        _beside(rows or [v.new_zeros(1, v.shape[1], n, 1)], len(v)),
        _beside(columns or [v.new_zeros(1, v.shape[1], v.shape[2], 1)], len(v)),
        sum(tables[1:], tables[0]) if tables else None,
    )


def _beside(factors: list[Tensor], b: int) -> Tensor:
    return torch.cat([factor.expand(b, -1, -1, -1) for factor in factors], dim=-1)
