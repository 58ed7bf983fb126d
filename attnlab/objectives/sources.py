"""What an encoder reads and what a decoder writes, as rows of tokens of different lengths."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlab.objectives.batches import UNSCORED, Batch


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of tokens with zeros at their ends, and where they have tokens."""
    width = max(1, *map(len, rows)) if rows else 1
    tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]).reshape(-1, width)
    return tokens, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]


def from_source(
    batch: Batch, source: Tensor, source_real: Tensor, target: Tensor, real: Tensor, start: int
) -> Batch:
    """The batch of an encoder-decoder, which reads at each place the target of the place before."""
    before = target.roll(1, dims=1)
    before[:, 0] = start
    return replace(
        batch,  # type: ignore[type-var]
        inputs=before.masked_fill(~real, 0),
        targets=target.masked_fill(~real, UNSCORED),
        padding=real,
        source=source,
        source_padding=source_real,
    )


def packed(tokens: Int[Tensor, "b n"], kept: Bool[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
    """The kept tokens of each row at its beginning, and where they are."""
    width = max(1, int(kept.sum(-1).amax())) if len(kept) else 1
    to = torch.where(kept, kept.long().cumsum(-1) - 1, width)
    out = tokens.new_zeros(len(tokens), width + 1).scatter_(1, to, tokens)[:, :width]
    return out, torch.arange(width) < kept.sum(-1, keepdim=True)


def with_end(tokens: Tensor, real: Tensor, rows: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """One more token at the end of those rows."""
    tokens, real = (nn.functional.pad(x, (0, 1)) for x in (tokens, real))
    last = (torch.arange(tokens.shape[1]) == real.sum(-1, keepdim=True)) & rows
    tokens = tokens.masked_fill(~real, 0).masked_fill(last, end)
    real = real | last
    width = max(1, int(real.sum(-1).amax())) if len(real) else 1
    return tokens[:, :width], real[:, :width]
