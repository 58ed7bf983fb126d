"""The indexer: its numbers, which tokens they choose, and the loss from which it learns."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.forms import form
from attnlab.core.heads import queries_per_key_head
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import listening, note
from attnlab.core.selection import of_tokens
from attnlab.core.shapes import GroupKeys, GroupValues, KeyPadding, Queries
from attnlab.core.softmax import masked_softmax
from attnlab.core.tracing import on_cpu, transformed

IndexQueries = Float[Tensor, "b a n c"]  # of each of the indexer's heads
IndexKeys = Float[Tensor, "b m c"]  # one for all of them
IndexWeights = Float[Tensor, "b n a"]
IndexScores = Float[Tensor, "b n m"]
PIECE = 128
"""Queries whose keys and values are fetched at once on a CPU."""
NOTHING = -1
"""In place of a token, where a query has fewer than k."""


@dataclass(frozen=True, kw_only=True)
class DeepSeekSparseOptions(Options):
    """The indexer.

    ``chosen``       k, how many tokens a query attends to; 2,048 in DeepSeek-V3.2.
    ``index_heads``  H, its heads.
    ``index_dim``    c, their width; that of the heads of attention unless given.
    ``aligned``      over which tokens it learns to be like attention: "chosen", or "all".
    """

    chosen: Size = 128
    index_heads: Size = 4
    index_dim: Size | None = None
    aligned: Literal["chosen", "all"] = "chosen"

    def fitted(self, m: int) -> int:
        """k, or m where the whole text is shorter."""
        return min(self.chosen, m)


# ---- what is chosen


def past(index: IndexScores, padding: Tensor | None) -> Bool[Tensor, "#b n m"]:
    """Which pairs may be chosen: real tokens that are not after the query."""
    n, m = index.shape[1:]
    allowed = patterns.causal().dense(n, m, index.device)[None]
    return allowed if padding is None else allowed & padding[:, None]


def choose(
    scores: IndexScores, allowed: Bool[Tensor, "#b n m"], options: DeepSeekSparseOptions
) -> Bool[Tensor, "b n m"]:
    """The k allowed tokens of the largest scores, of equal ones the first."""
    ranked = scores.detach().masked_fill(~allowed, -torch.inf)
    least = ranked.topk(options.fitted(scores.shape[-1])).values[..., -1:]
    above, equal = ranked > least, (ranked == least) & allowed
    room = options.chosen - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= room))
    note("selection", lambda: of_tokens(ranked, chosen, allowed))
    return chosen


def listed(mask: Bool[Tensor, "b n m"], options: DeepSeekSparseOptions) -> Int[Tensor, "b n k"]:
    """The chosen tokens in their order, then −1 where there are fewer than k."""
    k, m = options.fitted(mask.shape[-1]), mask.shape[-1]
    place = torch.where(mask, mask.cumsum(-1) - 1, k)
    tokens = torch.full((*mask.shape[:2], k + 1), NOTHING, device=mask.device)
    return tokens.scatter(-1, place, torch.arange(m, device=mask.device).expand_as(place))[..., :k]


def products(q: Queries, k: GroupKeys, chosen: Tensor) -> Float[Tensor, "b h n k"]:
    """The products of each query with the keys that it chose, divided by √d."""
    grouped = q.unflatten(1, (-1, queries_per_key_head(q, k))) * q.shape[-1] ** -0.5
    return torch.einsum("bgrnd,bnkgd->bgrnk", grouped, taken(k, chosen)).flatten(1, 2)


def taken(x: Float[Tensor, "b g m d"], chosen: Tensor) -> Float[Tensor, "b n k g d"]:
    """The keys or values of the chosen tokens; of the first token where there is none."""
    batch = torch.arange(len(x), device=x.device)[:, None, None]
    return x.transpose(1, 2)[batch, chosen.clamp(min=0)]


def spread(weights: Tensor, chosen: Tensor, m: int) -> Tensor:
    """The weights of the chosen tokens, at their places among m."""
    at = torch.where(chosen == NOTHING, m, chosen)[:, None].expand_as(weights)
    return weights.new_zeros(*weights.shape[:3], m + 1).scatter(-1, at, weights)[..., :m]


def in_pieces(
    q: Queries, k: GroupKeys, v: GroupValues, index: IndexScores, padding: KeyPadding
) -> list[tuple[Any, ...]]:
    """The same five for some queries at a time with the keys up to them. What is fetched then fits
    the cache of a CPU. The list is empty where there are few queries, on other devices, and for
    whoever records, compiles or transforms."""
    (n, m), hidden = index.shape[1:], torch.compiler.is_compiling() or transformed()
    if hidden or listening() or not on_cpu(q) or n <= PIECE:
        return []
    found = []
    for start in range(0, n, PIECE):
        rows, past = slice(start, start + PIECE), slice(0, m - n + min(start + PIECE, n))
        real = None if padding is None else padding[:, past]
        found.append((q[:, :, rows], k[:, :, past], v[:, :, past], index[:, rows, past], real))
    return found


# ---- the indexer's own loss


@form
def index_loss(
    q: Queries, k: GroupKeys, index: IndexScores, *,
    padding: KeyPadding = None, options: DeepSeekSparseOptions = DeepSeekSparseOptions(),
) -> Float[Tensor, ""]:  # fmt: skip
    """L: how far the indexer's softmax is from the weights of attention, which are detached. The
    mean over queries that have a token to attend to."""
    q, k = q.detach(), k.detach()
    allowed = past(index, padding)
    if padding is not None:
        allowed = allowed & padding[:, -q.shape[2] :, None]
    if options.aligned == "chosen":
        chosen = listed(choose(index, allowed, options), options)
        allowed, scores = chosen != NOTHING, products(q, k, chosen)
        index = index.gather(-1, chosen.clamp(min=0))
    else:
        scores = q @ k.repeat_interleave(queries_per_key_head(q, k), dim=1).mT * q.shape[-1] ** -0.5
    p = upcast(masked_softmax(scores, allowed[:, None])).mean(1)
    some = allowed.any(-1).expand(p.shape[:2])
    index = index.masked_fill(~allowed, -torch.inf).masked_fill(~some[..., None], 0)
    log_guess = index.log_softmax(-1).masked_fill(~allowed, 0)
    return (torch.special.xlogy(p, p) - p * log_guess).sum() / some.sum().clamp(min=1)


class Beside(torch.autograd.Function):
    """``out``, whose backward pass also sends the gradient 1 to a loss."""

    generate_vmap_rule = True

    @staticmethod
    def forward(out: Tensor, loss: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.dtype, ctx.device = inputs[1].dtype, inputs[1].device

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor]:
        return d_out, torch.ones((), dtype=ctx.dtype, device=ctx.device)
