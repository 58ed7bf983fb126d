r"""Four ways to choose keys, on the same queries and keys: how much attention do they find?

A learned pattern computes the scores of a few pairs only and hopes that these carry most of the
attention. How good the choice is shows beside the weights of full attention: of the keys with the
largest weights of each query, the **recall** is the share of their weight that the choice includes.
What it costs is the number of **pairs** whose scores are computed.

``by_weight``      the ``top`` keys of largest weight: the best choice of that size. It has to
                   compute every score to know them.
``by_hashing``     Reformer's: queries and keys whose hash, $\arg\max[xR; -xR]$ for a random matrix
                   $R$, is equal in one of several rounds.
``by_clustering``  the Routing Transformer's: spherical k-means; each cluster takes the w vectors
                   nearest to its centre.
``by_sorting``     Sparse Sinkhorn's: each block of queries attends to itself and to the block that
                   Sinkhorn's normalisation matches with it.

These are the choices alone, in double precision, for looking at. The mechanisms' pages compute the
attention. Here a hashed query may attend to its whole bucket, where Reformer cuts long buckets into
chunks. The score of two blocks is the mean of their q·k, where Sparse Sinkhorn learns a network,
which may also match a block with itself.

With ``shared`` queries and keys (``keys`` is None) a token does not attend to itself, unless
nothing else is left, as Reformer has it.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.reformer import unit

LLOYD = 10
"""Steps of k-means."""

Vectors = Float[Tensor, "n d"]
Allowed = Bool[Tensor, "n n"]
Weights = Float[Tensor, "n n"]


class Choice(NamedTuple):
    """What one way has chosen.

    ``chosen`` (n, n): pairs that are attended to. ``pairs``: how many scores are computed.
    ``query_groups``, ``key_groups`` (n,): the bucket of the first round, the cluster or the block
    of each query and key; a vector that no cluster took has −1. ``by_weight`` has no groups.
    """

    chosen: Bool[Tensor, "n n"]
    pairs: int
    query_groups: Int[Tensor, "n"] | None = None
    key_groups: Int[Tensor, "n"] | None = None


# ---- what may be attended to, and what is


def allowed_pairs(n: int, *, causal: bool = False, shared: bool = False) -> Allowed:
    """(n, n): the pairs that may meet; with ``shared`` none with itself, unless nothing is left."""
    check_integer("n", n, at_least=1)
    pairs = torch.ones(n, n, dtype=torch.bool)
    pairs = pairs.tril() if causal else pairs
    if shared:
        pairs.fill_diagonal_(False)
        alone = ~pairs.any(dim=1)
        pairs[alone, alone] = True
    return pairs


@checked
def full_weights(queries: Vectors, keys: Vectors, allowed: Allowed) -> Weights:
    """(n, n): the weights of softmax attention over the allowed pairs, in float64."""
    q, k = queries.double(), keys.double()
    found: Tensor = masked_softmax(q @ k.mT / math.sqrt(q.shape[1]), allowed)
    return found


@checked
def recall(weights: Weights, chosen: Allowed, *, top: int) -> float:
    """The mean share of the weight of each query's ``top`` heaviest keys that is chosen."""
    heaviest = _heaviest(weights, top)
    most = (weights * heaviest).sum(dim=1)
    found = (weights * (heaviest & chosen)).sum(dim=1)
    return float((found / most)[most > 0].mean())


# ---- the four ways


@checked
def by_weight(weights: Weights, allowed: Allowed, *, top: int) -> Choice:
    """The ``top`` keys of largest weight of each query; of equal ones the first."""
    return Choice(_heaviest(weights, top) & allowed, int(allowed.sum()))


@checked
def by_hashing(
    queries: Vectors, keys: Vectors, allowed: Allowed, rotations: Float[Tensor, "rounds d half"]
) -> Choice:
    """Pairs in one bucket in at least one round; ``half`` columns make 2 · ``half`` buckets."""
    q, k = (hashes(x, rotations) for x in (queries, keys))
    same = (q[:, :, None] == k[:, None, :]) & allowed
    return Choice(same.any(dim=0), int(same.sum()), q[0], k[0])


@checked
def hashes(x: Vectors, rotations: Float[Tensor, "rounds d half"]) -> Int[Tensor, "rounds n"]:
    """arg max of [xR; −xR] in each round (Kitaev et al. 2020, section 2)."""
    turned = x.double() @ rotations.double()
    return torch.cat((turned, -turned), dim=-1).argmax(dim=-1)


@checked
def by_clustering(
    queries: Vectors,
    keys: Vectors | None,
    allowed: Allowed,
    starts: Int[Tensor, "clusters"],
    *,
    width: int,
) -> Choice:
    """Pairs that one cluster took both of; each takes the ``width`` queries and keys nearest to it.

    ``starts`` are the vectors (queries first, then keys) that the clusters start from. ``keys`` is
    None where they are the queries.
    """
    check_integer("width", width, at_least=1)
    q = unit(queries.double())
    k = q if keys is None else unit(keys.double())
    centres = _centres(q if keys is None else torch.cat((q, k)), starts)
    near_q, near_k = q @ centres.mT, k @ centres.mT
    members_q, members_k = _members(near_q, width), _members(near_k, width)
    together = (members_q[:, :, None] & members_k[:, None, :]) & allowed
    groups = (_nearest_taken(*pair) for pair in ((near_q, members_q), (near_k, members_k)))
    return Choice(together.any(dim=0), int(together.sum()), *groups)


@checked
def by_sorting(
    queries: Vectors,
    keys: Vectors,
    allowed: Allowed,
    *,
    block: int,
    causal: bool = False,
    temperature: float = 0.75,
    steps: int = 8,
) -> Choice:
    """Each block of queries with itself and the block of keys matched with it.

    ``matching`` gives the matrix; its largest entry in each row is the match. Causally the match is
    an earlier block, and the first block has none.
    """
    n = len(queries)
    matched = matching(
        queries, keys, block=block, causal=causal, temperature=temperature, steps=steps
    )
    of = torch.arange(n) // block
    best = matched.argmax(dim=1)  # of the first block, causally, itself
    own = of[:, None] == of[None, :]
    other = best[of][:, None] == of[None, :]
    chosen = (own | other) & allowed
    return Choice(chosen, int(chosen.sum()), of, of)


@checked
def matching(
    queries: Vectors,
    keys: Vectors,
    *,
    block: int,
    causal: bool = False,
    temperature: float = 0.75,
    steps: int = 8,
) -> Float[Tensor, "blocks blocks"]:
    """Sinkhorn's normalisation of the scores of blocks: rows are blocks of queries.

    A score is the mean q·k/√d of two different blocks over ``temperature``. Rows, then columns are
    divided by their sums, ``steps`` times (Tay et al. 2020, section 3.2). Causally only earlier
    blocks take part and columns are left alone, because a column holds later blocks.
    """
    check_integer("block", block, at_least=1)
    check_integer("steps", steps, at_least=1)
    q, k = (_block_means(x.double(), block) for x in (queries, keys))
    scores = q @ k.mT / (math.sqrt(queries.shape[1]) * temperature)
    others = torch.ones_like(scores, dtype=torch.bool)
    others = others.tril(-1) if causal else others.fill_diagonal_(False)
    if causal or len(q) == 1:
        return masked_softmax(scores, others)
    scores = scores.masked_fill(~others, -math.inf)
    for _ in range(steps):
        scores = scores - scores.logsumexp(dim=1, keepdim=True)
        scores = scores - scores.logsumexp(dim=0, keepdim=True)
    return scores.exp()


# ---- helpers


def _heaviest(weights: Tensor, top: int) -> Tensor:
    check_integer("top", top, at_least=1)
    order = weights.argsort(dim=1, descending=True, stable=True)[:, :top]
    return torch.zeros_like(weights, dtype=torch.bool).scatter_(1, order, True)


def _centres(points: Tensor, starts: Tensor) -> Tensor:
    """Spherical k-means: a centre is the mean direction of the points nearest to it."""
    centres = points[starts]
    for _ in range(LLOYD):
        nearest = (points @ centres.mT).argmax(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        moved = sums.norm(dim=1, keepdim=True) > 0
        centres = torch.where(moved, unit(sums), centres)
    return centres


def _members(near: Tensor, width: int) -> Tensor:
    """(clusters, n): the ``width`` vectors nearest to each centre."""
    order = near.argsort(dim=0, descending=True, stable=True)[:width]
    return torch.zeros_like(near, dtype=torch.bool).scatter_(0, order, True).mT


def _nearest_taken(near: Tensor, members: Tensor) -> Tensor:
    """(n,): the nearest of the clusters that took the vector; −1 for none."""
    taken = near.masked_fill(~members.mT, -math.inf)
    return torch.where(members.any(dim=0), taken.argmax(dim=1), -1)


def _block_means(x: Tensor, block: int) -> Tensor:
    return torch.stack([part.mean(dim=0) for part in x.split(block)])
