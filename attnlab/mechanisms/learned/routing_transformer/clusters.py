"""The clusters: which tokens belong to which centroid, and how the centroids move."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Options, Size
from attnlab.core.precision import no_autocast, upcast, upcast_together
from attnlab.core.shapes import SelfKeys, TokenPadding, checked

Centroids = Float[Tensor, "h clusters d"]  # of unit length, some for each head
Members = Int[Tensor, "b h clusters w"]  # positions in ascending order; n marks an empty place


@dataclass(frozen=True, kw_only=True)
class RoutingOptions(Options):
    """The clusters of each head.

    ``clusters``  how many centroids each head has; √n in the paper.
    ``window``    how many tokens a cluster takes; n / clusters unless given.
    ``decay``     λ of the moving averages: how much of a centroid stays at each step of training.
    """

    clusters: Size = 8
    window: Size | None = None
    decay: float = 0.999

    def check(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ValueError(
                "decay is the part of a centroid that stays, between 0 (it is replaced) and 1 (it "
                f"never moves), got {self.decay}"
            )


def normalised(x: Tensor) -> Tensor:
    """Layer norm without scale and bias: vectors √d long, whose entries sum to zero."""
    return F.layer_norm(upcast(x), x.shape[-1:])


@torch.no_grad()
def nearest(x: Float[Tensor, "b h n d"], centroids: Tensor) -> Int[Tensor, "b h n"]:
    """The centroid that each vector is most like: argmax of μ·x."""
    with no_autocast(x.device):
        vectors, directions = upcast_together(x, centroids)
        return (vectors @ directions.mT).argmax(dim=-1)


def largest(n: int, clusters: int, window: int | None) -> int:
    """How many of n tokens a cluster takes: ``window``, or ⌈n / clusters⌉; n at most."""
    return min(-(-n // clusters) if window is None else window, n)


def quota(count: Tensor, clusters: int, window: int | None) -> Tensor:
    """How many a cluster takes for several numbers of tokens, not bounded by them."""
    return -(-count // clusters) if window is None else torch.full_like(count, window)


@torch.no_grad()
def top_members(
    x: Float[Tensor, "b h n d"], centroids: Tensor, window: int | None, padding: Tensor | None
) -> Members:
    """The w vectors that each centroid is most like, among real tokens, by position.

    A token may be in several clusters, or in none. Ties are broken as ``torch.topk`` breaks them.
    """
    n, clusters = x.shape[2], centroids.shape[1]
    with no_autocast(x.device):
        vectors, directions = upcast_together(x, centroids)
        likeness = directions @ vectors.mT
    if padding is not None:
        likeness = likeness.masked_fill(~padding[:, None, None], -torch.inf)
    w = largest(n, clusters, window)
    members = likeness.topk(w).indices
    if padding is not None:
        real = padding.sum(dim=-1)
        takes = quota(real, clusters, window).minimum(real)
        rank = torch.arange(w, device=x.device)
        members = members.masked_fill(rank >= takes[:, None, None, None], n)
    return members.sort().values


def membership(members: Members, n: int) -> Bool[Tensor, "b h clusters n"]:
    """Whether each of n tokens is in each cluster."""
    found = members.new_zeros(*members.shape[:3], n + 1, dtype=torch.bool)
    return found.scatter(3, members, True)[..., :n]


@checked
@torch.no_grad()
def moved(
    centroids: Centroids, queries: Float[Tensor, "b h n d"], keys: SelfKeys, *,
    decay: float, padding: TokenPadding = None,
) -> Centroids:  # fmt: skip
    r"""The centroids after one step of spherical k-means with moving averages.

    $$\mu \leftarrow \lambda \mu + \frac{1 - \lambda}{2} \Big(\sum_{q \in \mu} q + \sum_{k \in \mu}
    k\Big)$$

    q and k are those that have μ for nearest centroid. The sum in brackets, and the new μ, are
    scaled to unit length; a centroid to which nothing is nearest stays.
    """
    with no_autocast(centroids.device):
        old = upcast(centroids)
        pull = torch.zeros_like(old)
        for x in (normalised(queries), normalised(keys)):
            found = F.one_hot(nearest(x, old), old.shape[1]).to(x.dtype)
            if padding is not None:
                found = found * padding[:, None, :, None]
            pull = pull + torch.einsum("bhnc,bhnd->hcd", found, x).to(pull.dtype)
        new = F.normalize(decay * old + (1 - decay) * F.normalize(pull, dim=-1), dim=-1)
        new = torch.where((pull != 0).any(dim=-1, keepdim=True), new, old)
    return new.to(centroids.dtype)
