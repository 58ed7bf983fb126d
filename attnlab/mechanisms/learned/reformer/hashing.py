"""Where the tokens of a sequence are hashed to, and which pairs that lets attend."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.options import Options, Size
from attnlab.core.precision import no_autocast, normal, upcast
from attnlab.core.shapes import checked

Rotations = Float[Tensor, "h r d k"]  # for each head, r rounds of k directions: 2k buckets
Buckets = Int[Tensor, "b h r n"]  # the bucket of each token in each round

NOT_HASHED = -1
"""The bucket that is noted for a padded token."""


@dataclass(frozen=True, kw_only=True)
class ReformerOptions(Options):
    """The options of LSH attention.

    ``buckets``        buckets in a round, an even number; the paper takes 2 n / chunk

    ``chunk``          tokens in a chunk of the sorted order, m in the equations. A query attends to
    at most 2 m keys in a round, so a bucket should hold fewer.

    ``rounds``         independent hashes; a query attends to what any of them finds

    ``count``          how a pair that several rounds find is kept from counting several times.
    "attended" divides it by the number of rounds in which the query attends to the key, which is
    exact: one softmax over the union. "buckets" divides it by the number of rounds in which the two
    share a bucket, as printed: too small a weight where a bucket is larger than its chunks.

    ``causal_window``  which earlier tokens of its bucket a causal query attends to. "nearest": the
    last m. "chunks": those of its own chunk and the one before, as printed; where chunks begin
    depends on the buckets of *later* tokens, so that these change earlier outputs.

    ``scale``          what dot products are multiplied by; 1/√d if not given

    ``seed``           of the rotations that a layer draws
    """

    buckets: Size = 64
    chunk: Size = 64
    rounds: Size = 4
    count: Literal["attended", "buckets"] = "attended"
    causal_window: Literal["nearest", "chunks"] = "nearest"
    scale: float | None = None
    seed: int = 0

    def check(self) -> None:
        if self.buckets % 2:
            raise ValueError(
                f"buckets should be even, because each direction and its opposite are a bucket "
                f"each, got buckets={self.buckets}, try {self.buckets + 1}"
            )

    def draw(self, heads: int, width: int, generator: torch.Generator) -> Rotations:
        """Rotations with entries N(0, 1)."""
        shape = (heads, self.rounds, width, self.buckets // 2)
        return normal(*shape, generator=generator).to(torch.get_default_dtype())

    def scale_of(self, width: int) -> float:
        return 1 / math.sqrt(width) if self.scale is None else self.scale


@checked
def hash_buckets(x: Float[Tensor, "b h n d"], rotations: Rotations) -> Buckets:
    """argmax([xR; -xR]) for each round: the direction, or its opposite, that x is nearest to.

    Entry k of -xR is bucket k + half. Vectors on one ray from the origin have the same bucket,
    opposite ones are half the number of buckets apart.
    """
    x, half = upcast(x.detach()), rotations.shape[-1]
    found = []
    for round_ in upcast(rotations).unbind(1):
        with no_autocast(x.device):
            products = x @ round_
        nearest = products.abs().argmax(dim=-1, keepdim=True)
        opposite = products.gather(-1, nearest) < 0
        found.append((nearest + half * opposite).squeeze(-1))
    return torch.stack(found, dim=2)


class Places(NamedTuple):
    """Where tokens stand once each round has sorted them by (bucket, position).

    In round r query i attends to key j if 0 ≤ rank_i - rank_j ≤ ``reach``, j is not i and, in
    causal attention, j < i. A padded token is in no such pair.
    """

    buckets: Buckets
    """-1 for padded tokens, which come last in the order."""
    order: Int[Tensor, "b h r n"]
    """The positions, sorted."""
    rank: Int[Tensor, "b h r n"]
    """Ranks of different buckets differ by more than ``reach``."""
    reach: int
    causal: bool
    nearest: bool
    """Whether a query attends to the last ``reach`` tokens of its bucket."""

    @classmethod
    def of(
        cls, buckets: Buckets, number: int, padding: Tensor | None, options: ReformerOptions, *,
        causal: bool,
    ) -> "Places":  # fmt: skip
        """The vectors of ``number`` buckets."""
        n, chunk = buckets.shape[-1], min(options.chunk, buckets.shape[-1])
        if padding is not None:
            buckets = buckets.masked_fill(~padding[:, None, None], NOT_HASHED)
        padded = buckets == NOT_HASHED
        order = torch.sort(buckets.masked_fill(padded, number), dim=-1, stable=True).indices
        place = torch.arange(n, device=order.device).expand_as(order)
        place = torch.empty_like(order).scatter_(-1, order, place)
        nearest = causal and options.causal_window == "nearest"
        if nearest:
            rank, reach = place + buckets * (chunk + 1), chunk
        else:
            rank, reach = place // chunk + buckets * 2, 1
        rank = torch.where(padded, n + (number + 1 + place) * (chunk + 1), rank)
        narrow = (n + number + 1) * (chunk + 2) < 2**29  # doubled ranks fit into 32 bits
        return cls(buckets, order, rank.int() if narrow else rank, reach, causal, nearest)

    def attended(self, round_: int) -> Bool[Tensor, "b h n n"]:
        """The pairs of one round: query i (rows) attends to key j (columns)."""
        rank = self.rank[:, :, round_]
        ahead = rank[..., :, None] - rank[..., None, :]
        return (ahead >= 0) & (ahead <= self.reach) & self._others()

    def same_bucket(self, round_: int) -> Bool[Tensor, "b h n n"]:
        """The pairs whose buckets in one round are equal."""
        own = self.buckets[:, :, round_]
        return own[..., :, None] == own[..., None, :]

    def _others(self) -> Bool[Tensor, "n n"]:
        """The keys that a query could have: not itself, nor in causal attention a later one."""
        n = self.rank.shape[-1]
        pairs = torch.ones(n, n, dtype=torch.bool, device=self.rank.device)
        if self.causal:
            return pairs.tril(-1)
        return pairs.fill_diagonal_(False)
