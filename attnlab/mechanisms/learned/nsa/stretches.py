"""The stretches of NSA: their means, what they weigh, and which blocks that makes worth reading."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.chosen_blocks import NOTHING, largest
from attnlab.core.heads import queries_per_key_head
from attnlab.core.options import Options, Size

Shares = Float[Tensor, "b h n stretches"]  # the weights of the compressed stretches
Chosen = Int[Tensor, "b g n c"]  # the blocks of each query, −1 where there are fewer than c


@dataclass(frozen=True, kw_only=True)
class NSAOptions(Options):
    """``stretch``  l, how many tokens are compressed into one.
    ``stride``   s, every how many tokens a stretch begins; it divides l and l'.
    ``block``    l', how many tokens are selected together.
    ``chosen``   c, how many blocks a query selects, the first and the two last included.
    ``window``   w, how many of the last tokens are read, the current one included.
    """

    stretch: Size = 32
    stride: Size = 16
    block: Size = 64
    chosen: Size = 16
    window: Size = 512

    def check(self) -> None:
        if self.stretch % self.stride or self.block % self.stride:
            raise ValueError(
                f"stride={self.stride} should divide stretch={self.stretch} and block={self.block}"
            )
        if self.chosen < 3:
            raise ValueError(
                "the first block and the last two are always chosen, so chosen should be at least "
                f"3, got {self.chosen}"
            )

    def fitted(self, m: int) -> int:
        """l', or m where the whole text is shorter."""
        return min(self.block, m)

    def begins(self, m: int, device: torch.device) -> Int[Tensor, "stretches"]:
        """Where the stretches of m tokens begin."""
        return torch.arange(0, max(m - self.stretch + 1, 0), self.stride, device=device)

    def means(self, x: Tensor) -> Tensor:
        """(b, g, m, d) → (b, g, stretches, d)."""
        if x.shape[2] < self.stretch:
            return x[:, :, :0]
        return x.unfold(2, self.stretch, self.stride).mean(dim=-1)

    def overlap(self, like: Tensor) -> Float[Tensor, "t"]:
        """How many strides a block shares with each stretch that meets it, the first such first."""
        begins = torch.arange(self.stride - self.stretch, self.block, self.stride)
        shared = (begins + self.stretch).clamp(max=self.block) - begins.clamp(min=0)
        return (shared // self.stride).to(like)


def compressed(
    q: Tensor, k: Tensor, asking: Tensor, begins: Tensor, padding: Tensor | None,
    options: NSAOptions,
) -> Shares:  # fmt: skip
    """The weights of the stretches that are complete; zeros before the first is. ``k`` has their
    keys."""
    if not len(begins):
        return q.new_zeros(*q.shape[:3], 0)
    complete = begins + options.stretch - 1 <= asking
    if padding is not None:
        complete = complete & padding[:, None, padding.shape[1] - q.shape[2] :, None]
    k = k.repeat_interleave(queries_per_key_head(q, k), dim=1)
    none = ~complete.any(dim=-1, keepdim=True)
    hidden = torch.where(none, 0.0, -torch.inf).to(q)  # a softmax of none would be NaN
    scores = torch.where(complete, (q * q.shape[-1] ** -0.5) @ k.mT, hidden)
    return scores.softmax(dim=-1).masked_fill(none, 0)


def choose(
    shares: Shares, asking: Tensor, repeats: int, m: int, options: NSAOptions,
    padding: Tensor | None = None,
) -> Chosen:  # fmt: skip
    """The first block, the own and the one before, and those that the heads of a group value
    most."""
    value, _ = ranking(shares, asking, repeats, m, options)
    chosen = most_valuable(value, asking // options.fitted(m), options)
    if padding is None:
        return chosen
    return chosen.masked_fill(~padding[:, None, m - shares.shape[2] :, None], NOTHING)


def most_valuable(
    value: Float[Tensor, "... n blocks"], own: Int[Tensor, "... n 1"], options: NSAOptions
) -> Int[Tensor, "... n c"]:
    """The first block, the own, the one before, and then the others by their value."""
    block = torch.arange(value.shape[-1], device=value.device)
    before = own.masked_fill(own < 1, NOTHING), (own - 1).masked_fill(own < 2, NOTHING)
    always = torch.cat((torch.zeros_like(own), *before), dim=-1).expand(*value.shape[:-1], 3)
    most = min(options.chosen, len(block))
    rest = value.masked_fill((block == 0) | (block >= own - 1), -torch.inf)
    return torch.cat((always, largest(rest, max(0, most - 3))), dim=-1)[..., :most]


def ranking(
    shares: Shares, asking: Tensor, repeats: int, m: int, options: NSAOptions
) -> tuple[Float[Tensor, "b g n blocks"], Bool[Tensor, "#b 1 n blocks"]]:
    """What each block is worth to each group, −∞ after the query; and those always chosen."""
    shares = shares.detach().unflatten(1, (-1, repeats)).sum(dim=2)
    size = options.fitted(m)
    block = torch.arange(-(-m // size), device=shares.device)
    own = asking // size
    value = worth(shares, len(block), options).masked_fill(block > own, -torch.inf)
    return value, (block == 0) | (block == own) | (block == own - 1)


def worth(shares: Shares, blocks: int, options: NSAOptions) -> Float[Tensor, "b g n blocks"]:
    """What the stretches that overlap each block got, by how many strides they do."""
    if blocks == 1 or not shares.shape[-1]:  # the first block is always read
        return shares.new_zeros(*shares.shape[:3], blocks)
    step, before = options.block // options.stride, options.stretch // options.stride - 1
    overlap = options.overlap(shares)
    short = max(0, (blocks - 1) * step + len(overlap) - before - shares.shape[-1])
    each, last = F.pad(shares, (before, short)), (blocks - 1) * step
    return sum(share * each[..., t : t + last + 1 : step] for t, share in enumerate(overlap))
