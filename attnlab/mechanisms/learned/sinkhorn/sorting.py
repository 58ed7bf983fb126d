"""How blocks are sorted: the network that scores them, and Sinkhorn's normalisation."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.heads import zero_nonfinite_padding
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.shapes import TokenPadding, Tokens, checked

Scores = Float[Tensor, "... N N"]  # of N blocks for the N places that they may take
NEVER = -1e30  # a score whose exponential is zero, and whose differences are numbers


def in_blocks(x: Tensor, block: int, dim: int = 1) -> Tensor:
    """(…, n, …) → (…, ⌈n / block⌉, block, …), the last block filled up with zeros.

    A block is at most as long as the sequence.
    """
    block = min(block, x.shape[dim])
    extra = -x.shape[dim] % block
    if extra:  # to pad by nothing would copy
        after = (0, 0) * (x.dim() - 1 - dim % x.dim())
        x = F.pad(x, (*after, 0, extra))
    return x.unflatten(dim, (-1, block))


@checked
def pooled(
    x: Tokens, block: Size, *, causal: bool = False, padding: TokenPadding = None
) -> Float[Tensor, "b N dim"]:
    """What the sort network is told of each block: the sum of its tokens, padding left out.

    Causal: the sum of all tokens up to the first of the block, which all of the block have seen.
    """
    x = zero_nonfinite_padding(x, padding)
    return x.cumsum(dim=1)[:, ::block] if causal else in_blocks(x, block).sum(dim=2)


@checked
def sinkhorn(
    scores: Scores,
    iterations: Size,
    *,
    allowed: Bool[Tensor, "... #N #N"] | None = None,
    columns: bool = True,
) -> Float[Tensor, "... N N"]:
    """Rows and columns of exp(scores) divided by their sums in turn, in log space.

    With more iterations the matrix becomes doubly stochastic; after each, columns sum to one.
    Without ``columns`` it is a softmax of each row. What is not ``allowed`` is zero.
    """
    logarithms = upcast(scores)
    allowed = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed
    for _ in range(iterations if columns else 1):
        for dim in (-1, -2) if columns else (-1,):
            logarithms = logarithms.masked_fill(~allowed, NEVER)
            logarithms = logarithms - logarithms.logsumexp(dim=dim, keepdim=True)
    return logarithms.exp().masked_fill(~allowed, 0).to(scores.dtype)


def gumbel(shape: tuple[int, ...]) -> Tensor:
    """Noise −log(−log u), drawn on the processor from PyTorch's own generator."""
    drawn = torch.rand(shape).clamp(min=torch.finfo(torch.float32).tiny)
    return -(-drawn.log()).log()


class SortNetwork(nn.Module):
    """Scores of each block for every place: (b, N, dim) → (b, heads, N, N), N up to ``blocks``.

    Two layers with a ReLU between them; the second has an output for each place of each head.
    """

    @checked
    def __init__(self, dim: Size, heads: Size, blocks: Size) -> None:
        super().__init__()
        self.heads, self.blocks = heads, blocks
        self.hidden = nn.Linear(dim, dim)
        self.places = nn.Linear(dim, heads * blocks)

    @checked
    def forward(self, sums: Float[Tensor, "b N dim"]) -> Float[Tensor, "b h N N"]:
        many = sums.shape[1]
        if many > self.blocks:
            raise ValueError(
                f"the sequence has {many} blocks, but the sort network was made for {self.blocks}: "
                "it has an output for each place and none beyond; shorten the sequence, or build "
                "with larger blocks or a larger max_len"
            )
        found = self.places(self.hidden(sums).relu()).unflatten(-1, (self.heads, self.blocks))
        return found.transpose(1, 2)[..., :many]
