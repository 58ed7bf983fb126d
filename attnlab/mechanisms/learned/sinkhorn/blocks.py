"""Blocks: the options, and which keys of its own and of the sorted block a query may attend to."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Options, Size
from attnlab.mechanisms.learned.sinkhorn.sorting import in_blocks

Permutation = Float[Tensor, "b h N N"]  # row: the block of queries; column: the block of keys
ITERATIONS, MOST_ITERATIONS = 8, 10_000
RealBlocks = Bool[Tensor, "b N B"]  # which places of each block hold a real token


@dataclass(frozen=True, kw_only=True)
class SinkhornOptions(Options):
    """The blocks, and how they are sorted.

    ``block``        how many positions a block has.
    ``max_len``      the longest sequence: the sort network has an output for each of its blocks.
    ``join``         how the own block joins the sorted one: "concat", "sorted" or "sum".
    ``budget``       SortCut: how many of the sorted blocks all queries attend to.
    ``iterations``   how often rows and columns are normalised, 8 times if None; a causal layer
                     normalises rows alone, once, and refuses a number.
    ``temperature``  what scores are divided by; near 0 the matrix comes near a permutation.
    ``noise``        whether Gumbel noise is added to the scores in training.
    """

    block: Size = 32
    max_len: Size = 512
    join: Literal["concat", "sorted", "sum"] = "concat"
    budget: Size | None = None
    iterations: Size | None = None
    temperature: float = 0.75
    noise: bool = True

    def check(self) -> None:
        if self.temperature <= 0:
            raise ValueError(
                f"temperature divides the scores, so it is above 0, got {self.temperature}"
            )
        if self.iterations is not None and self.iterations > MOST_ITERATIONS:
            raise ValueError(
                f"iterations should be at most {MOST_ITERATIONS:,}, got {self.iterations:,}; some "
                "ten are enough for sums near one"
            )

    def refuse_future(self, causal: bool) -> None:
        """A ValueError for a causal SortCut."""
        if causal and self.budget is not None:
            raise ValueError(
                "SortCut cannot be causal: its first sorted blocks, which all queries attend to, "
                "hold tokens of the whole sequence; leave budget out"
            )


def prepared(
    permutation: Tensor, n: int, causal: bool, padding: Tensor | None, options: SinkhornOptions
) -> tuple[RealBlocks, Tensor]:
    """The real places of n positions (b or 1, N, B), and the part of S that is about them."""
    options.refuse_future(causal)
    real = torch.ones(1, n, dtype=torch.bool, device=permutation.device)
    real = in_blocks(real if padding is None else padding, options.block)
    many = real.shape[1]
    if permutation.shape[-1] < many:
        raise ValueError(
            f"`permutation` is for {permutation.shape[-1]} blocks, but {n} positions make {many} "
            f"blocks of {options.block}"
        )
    sort = permutation[..., :many, :many]
    return real, sort.tril(-1) if causal else sort


def sorted_seen(real: RealBlocks, causal: bool, options: SinkhornOptions) -> RealBlocks:
    """The places at which some block that may be brought there has a token."""
    if causal:
        before = real.cumsum(dim=1) - real.long()
        return before > 0
    seen = real.any(dim=1, keepdim=True).expand_as(real)
    # To the place of a block of padding nothing is brought: SortCut has the fewer sorted blocks.
    return seen if options.budget is None else seen & real.any(dim=2, keepdim=True)


def own_seen(real: RealBlocks, causal: bool) -> Bool[Tensor, "b N #B B"]:
    """Which keys of its own block a query may attend to."""
    keys = real[:, :, None]
    if not causal:
        return keys
    block = real.shape[2]
    return keys & torch.ones(block, block, dtype=torch.bool, device=real.device).tril()


def cut_up(x: Tensor, block: int, padding: Tensor | None) -> Tensor:
    """(b, h, n, d) → (b, h, N, B, d), zeros for padding and at the end of the last block."""
    x = x if padding is None else x.masked_fill(~padding[:, None, :, None], 0)
    return in_blocks(x, block, dim=2)


def sorted_blocks(sort: Tensor, x: Tensor, options: SinkhornOptions) -> Tensor:
    """ψ(x) for each block of queries: its own sorted block, or those of the budget."""
    rows = sort if options.budget is None else sort[:, :, : options.budget]
    mixed = (rows @ x.flatten(3)).unflatten(-1, x.shape[3:])
    if options.budget is None:
        return mixed
    return mixed.flatten(2, 3).unsqueeze(2).expand(-1, -1, x.shape[2], -1, -1)


def seen_by_all(brought: Tensor | None, q: Tensor, options: SinkhornOptions) -> Tensor | None:
    """Which sorted keys a query may attend to: (b, 1, N, 1, keys)."""
    if brought is None or options.budget is None:
        return brought
    first = brought[:, :, : options.budget].flatten(2)
    return first[:, :, None, None].expand(-1, -1, q.shape[2], -1, -1)


def beside(brought: Tensor, own: Tensor) -> Tensor:
    """One mask over the sorted keys and the own ones."""
    return torch.cat((brought.expand(len(own), -1, -1, own.shape[3], -1), own), dim=-1)


def sdpa_in_blocks(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Attention in each block; zero for a query that may attend to nothing."""
    q_flat, k_flat, v_flat = (x.flatten(1, 2) for x in (q, k, v))
    if seen is None:
        out = F.scaled_dot_product_attention(q_flat, k_flat, v_flat)
        return out.unflatten(1, q.shape[1:3])
    none = ~seen.any(dim=-1, keepdim=True)
    mask = (seen | none).expand(*q.shape[:3], -1, -1).flatten(1, 2)
    out = F.scaled_dot_product_attention(q_flat, k_flat, v_flat, attn_mask=mask)
    return out.unflatten(1, q.shape[1:3]).masked_fill(none, 0)
