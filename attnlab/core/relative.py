r"""Scores by content and by distance, as Transformer-XL has them.

$$s_{ij} = \frac{(q_i + u) \cdot k_j + (q_i + t) \cdot W_R R_{i-j}}{\sqrt d}$$

The story is on the page ``attnlab.mechanisms.positions.relative``; this file holds what layers with
a memory need as well.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import exact_dtype, upcast
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax

HeadVector = Float[Tensor, "h d"]  # u and t: one vector for each head
DistanceWeight = Float[Tensor, "h d p"]  # W_R: from sinusoids of width p to keys of width d


@checked
def sinusoids(distances: Int[Tensor, "r"], width: Size) -> Float[Tensor, "r p"]:
    """R: the sines and cosines of each distance, in turn."""
    t = torch.arange(0, width, 2, device=distances.device, dtype=exact_dtype(distances.device))
    angles = distances[:, None] * 10000.0 ** (-t / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width]


@checked
def distance_keys(weight: DistanceWeight, distances: Int[Tensor, "r"]) -> Float[Tensor, "h r d"]:
    """W_R R: what queries are compared with to score each distance."""
    return sinusoids(distances, weight.shape[-1]).to(weight.dtype) @ weight.mT


@checked
def relative_shift(scores: Float[Tensor, "b h n r"]) -> Float[Tensor, "b h n r"]:
    """Row i moved to the left by n - 1 - i (Dai et al., appendix B).

    Columns are the distances m - 1, m - 2, … in descending order; after the shift column j of row i
    is the distance of key j from query i, for queries that are the last n of m positions. What is
    moved in from the right belongs to the next row: those entries are to be masked or cut off.
    """
    b, h, n, r = scores.shape
    padded = nn.functional.pad(scores, (1, 0))  # (b, h, n, r + 1), a zero before each row
    return padded.reshape(b, h, r + 1, n)[:, :, 1:].reshape(b, h, n, r)


def content_scores(q: Tensor, k: Tensor, u: Tensor) -> Tensor:
    """(q + u)·k for all pairs, not yet divided by √d."""
    return (upcast(q) + upcast(u)[:, None]) @ upcast(k).mT


def weigh(content: Tensor, position: Tensor, mask: Tensor | None, d: int) -> Tensor:
    """The weights of two terms that are not yet divided by √d: the softmax of their sum."""
    content, position = note("content", content * d**-0.5), note("position", position * d**-0.5)
    return note("weights", masked_softmax(note("scores", content + position), mask))


def past_keys(weight: DistanceWeight, m: int) -> Float[Tensor, "h m d"]:
    """W_R R of the distances m - 1, …, 0, those of m keys from the last of them."""
    return distance_keys(upcast(weight), torch.arange(m - 1, -1, -1, device=weight.device))


def past_weights(q: Tensor, k: Tensor, u: Tensor, t: Tensor, r: Tensor, mask: Tensor) -> Tensor:
    """The weights of queries that are the last n of m positions, under a causal mask; ``r`` ends
    with ``past_keys`` of m."""
    position = relative_shift(content_scores(q, r[None, :, -k.shape[2] :], t))
    return weigh(content_scores(q, k, u), position, mask, q.shape[-1])


class ScoredByDistance(Layer):
    """The projections into heads, and the weights of the score of every head: u, t and W_R."""

    def __init__(self, dim: Size, heads: Size) -> None:
        super().__init__()
        self.heads = Heads(dim, heads)
        self.distance = nn.Linear(dim, dim, bias=False)
        self.u, self.t = (nn.Parameter(torch.zeros(heads, dim // heads)) for _ in range(2))

    @property
    def weight(self) -> DistanceWeight:
        """W_R of each head."""
        return self.distance.weight.unflatten(0, (self.heads.heads, -1))
