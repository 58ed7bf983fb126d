r"""A cache of at most b tokens: which of those that were read stay for the next one.

A trained model writes with its own weights, but each layer keeps b tokens only. A new token attends
to them and to itself; then tokens leave until there are b again. What has left does not come back.
Each policy gives every token a score, keeps the last r tokens whatever their score, and of the
others the $b - r$ with the largest:

``Window``  r = b, the last tokens.
``Sinks``   the first s tokens, and the last b − s (StreamingLLM).
``H2O``     the score is the sum of the weights that a token has had so far, "heavy hitters":
            $A_j = \sum_{i \ge j} \mathrm{softmax}_j(q_i \cdot k_j / \sqrt d)$, over the tokens that
            were there for query i.
``SnapKV``  the last w tokens of the prompt vote for those before them: the sum of their weights,
            each averaged with those of its neighbours. b tokens of the prompt are kept, and then
            all that is written: the cache grows.
``Random``  the score is drawn once for each token: the control.

``Quest`` is of another kind. It keeps all tokens and *reads* at most b of them. The keys are cut
into pages of p tokens, of which the least m and the largest number M of each channel are known. No
key of a page has a larger product with a query than

$$U = \sum_c \max(q_c\, m_c,\; q_c\, M_c),$$

and a new token reads its own page and, of those before, the pages of the largest U, b / p together.

    small = budget_cache(model, H2O(budget=64))     # a copy, with the same weights
    attnlab.generate(small, prompt, 100)
    attnlab.measure.cache.kept(small, 100_000)

Heads that share keys decide together: their weights are added. The tokens of one call of ``step``
see each other and all that is kept, and the cache is cut afterwards, so a prompt is read as by the
model itself, which is also what the papers do. With a budget that holds the whole text, the copy
writes as the model does.

Departures. The released H2O takes its budgets as shares of the prompt, and hides tokens instead of
deleting them, so that one may come back. The released SnapKV and H2O choose for each query head;
here each head of keys chooses, which keeps what grouped queries save. Kept keys stay turned by
their place in the text, where StreamingLLM numbers them anew. Quest leaves the first two layers as
they are; here they are like the others. A cap or a sink logit of the layer is not part of the
weights that are added up.

Xiao, Tian, Chen, Han, Lewis. Efficient Streaming Language Models with Attention Sinks. ICLR 2024,
arXiv:2309.17453. Zhang and others. H2O: Heavy-Hitter Oracle for Efficient Generative Inference of
Large Language Models. NeurIPS 2023, arXiv:2306.14048. Li and others. SnapKV: LLM Knows What You are
Looking for Before Generation. NeurIPS 2024, arXiv:2404.14469. Tang, Zhao, Zhu, Xiao, Kasikci, Han.
Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference. ICML 2024, arXiv:2406.10774.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.options import Count, Options, Size
from attnlab.core.positions import Bias, DistanceBias, biased
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.softmax import masked_softmax

M = TypeVar("M", bound=nn.Module)


class Cache(NamedTuple):
    """What is kept: keys and values, where their tokens stand, and the tokens' scores."""

    keys: Float[Tensor, "b g t d"]
    values: Float[Tensor, "b g t e"]
    at: Int[Tensor, "b g t"]
    scores: Float[Tensor, "b g t"]
    length: int  # how many tokens were read

    @property
    def size(self) -> int:
        """How many tokens are kept."""
        return self.at.shape[2]


# ---- policies


@dataclass(frozen=True, kw_only=True)
class Policy(Options):
    """What stays. ``budget`` is b, how many tokens are kept (``Quest``: read)."""

    budget: Count
    votes: ClassVar[bool] = False  # whether scores are made of weights

    @property
    def newest(self) -> int:
        """r, how many of the last tokens are kept whatever their score."""
        return self.budget

    def scored(self, held: Cache, weights: Tensor, layer: int, new: int) -> Tensor:
        """The scores of all tokens; the last ``new`` of them have just come. ``weights`` (b, g,
        new, t) are those of their queries, empty where the policy asks for none."""
        return held.scores

    def most(self, held: Cache, new: int) -> int:
        """How many tokens may stay."""
        return self.budget

    def read(self, q: Tensor, held: Cache) -> Tensor | None:
        """Which tokens a single new one reads, (b, h, 1, t); None for all of them."""
        return None


@dataclass(frozen=True, kw_only=True)
class Window(Policy):
    """The last tokens."""


@dataclass(frozen=True, kw_only=True)
class Sinks(Policy):
    """The first tokens, ``sinks`` of them, and the last."""

    sinks: Count = 4

    def check(self) -> None:
        _refuse_more("sinks", self.sinks, self.budget)

    @property
    def newest(self) -> int:
        return self.budget - self.sinks

    def scored(self, held: Cache, weights: Tensor, layer: int, new: int) -> Tensor:
        return -held.at.to(held.scores)


@dataclass(frozen=True, kw_only=True)
class _WithRecent(Policy):
    """``recent`` of the last tokens stay whatever their score; half of the budget if not given."""

    recent: Count | None = None

    def check(self) -> None:
        _refuse_more("recent", self.newest, self.budget)

    @property
    def newest(self) -> int:
        return self.budget // 2 if self.recent is None else self.recent


@dataclass(frozen=True, kw_only=True)
class H2O(_WithRecent):
    """The tokens that had the most weight so far, and the last."""

    votes: ClassVar[bool] = True

    def scored(self, held: Cache, weights: Tensor, layer: int, new: int) -> Tensor:
        return held.scores + weights.sum(2)


@dataclass(frozen=True, kw_only=True)
class Random(_WithRecent):
    """Tokens that are drawn, all with the same chance, and the last."""

    seed: Count = 0

    def scored(self, held: Cache, weights: Tensor, layer: int, new: int) -> Tensor:
        drawn = torch.Generator().manual_seed((self.seed * 997 + layer) * 1_000_003 + held.length)
        fresh = torch.rand(*held.at.shape[:2], new, generator=drawn).to(held.scores)
        return torch.cat((held.scores[..., : held.size - new], fresh), dim=-1)


@dataclass(frozen=True, kw_only=True)
class SnapKV(Policy):
    """What the last ``window`` tokens of the prompt attend to, and they themselves. Their weights
    are averaged over ``pool`` neighbours."""

    window: Size = 32
    pool: Size = 5
    votes: ClassVar[bool] = True

    def check(self) -> None:
        _refuse_more("window", self.window, self.budget)
        if self.pool % 2 == 0:
            raise ValueError(f"pool should be odd, a token and its neighbours, got {self.pool}")

    @property
    def newest(self) -> int:
        return self.window

    def scored(self, held: Cache, weights: Tensor, layer: int, new: int) -> Tensor:
        if held.size > new:  # the prompt has been read
            return held.scores
        votes, before = weights[:, :, -self.window :].sum(2), max(0, new - self.window)
        if before:
            pooled = F.avg_pool1d(votes[..., :before], self.pool, stride=1, padding=self.pool // 2)
            votes = torch.cat((pooled, votes[..., before:]), dim=-1)
        return votes

    def most(self, held: Cache, new: int) -> int:
        return self.budget if held.size == new else held.size


@dataclass(frozen=True, kw_only=True)
class Quest(Policy):
    """Pages of ``page`` tokens whose bound is largest. All tokens are kept."""

    page: Size = 16

    def check(self) -> None:
        _refuse_more("page", self.page, self.budget)

    def most(self, held: Cache, new: int) -> int:
        return held.size

    def read(self, q: Tensor, held: Cache) -> Tensor:
        keys = held.keys.repeat_interleave(q.shape[1] // held.keys.shape[1], dim=1)
        own = (held.size - 1) // self.page  # the page of the new token
        whole = keys[:, :, : own * self.page].unflatten(2, (own, self.page))
        low, high = whole.amin(3), whole.amax(3)
        bound = torch.maximum(q * low, q * high).sum(-1)  # (b, h, own)
        best = bound.argsort(dim=-1, descending=True, stable=True)[
            ..., : self.budget // self.page - 1
        ]
        pages = torch.zeros(*bound.shape[:2], own + 1, dtype=torch.bool, device=q.device)
        pages.scatter_(-1, note("pages", best), True)
        pages[..., own] = True
        return pages.repeat_interleave(self.page, dim=-1)[..., None, : held.size]


def _refuse_more(name: str, least: int, budget: int) -> None:
    if least > budget:
        raise ValueError(f"{name}={least} does not fit into a budget of {budget} tokens")


# ---- layers


class BudgetCacheAttention(nn.Module):
    """A layer of dense attention that decodes with a budget; all else is the layer's."""

    def __init__(self, attention: DenseAttention, policy: Policy, layer: int = 0) -> None:
        super().__init__()
        self.attention, self.policy, self.layer = attention, policy, layer

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.attention(*args, **kwargs)
        return out

    def step(self, x: Tensor, state: Cache | None = None) -> tuple[Tensor, Cache]:
        """The next t tokens (b, t, dim); they see each other and what is kept."""
        if state is not None and not isinstance(state, Cache):
            raise TypeError(
                "state should be None at the start and then what step returned, got a "
                f"{type(state).__name__}: it may be the state of another mechanism"
            )
        layer, policy, new = self.attention, self.policy, x.shape[1]
        layer.heads.refuse_step(layer.causal)
        q, k, v = layer.heads.project(x, start=0 if state is None else state.length)
        held = _joined(state, k, v)
        keys, values = note("keys", held.keys), note("values", held.values)
        own = q[..., : keys.shape[-1]]  # what may stand behind it is no part of the products
        mask: Any = policy.read(own, held) if new == 1 else None
        mask = note("mask", patterns.causal() if mask is None else mask)
        bias = self._bias(held.at, new)
        out = layer.heads.merge(layer._attend(q, keys, values, mask, bias))
        weights = self._weights(own, keys, bias) if policy.votes else held.scores[:, :, None, :0]
        held = held._replace(scores=policy.scored(held, weights, self.layer, new))
        return out, _cut(held, policy.most(held, new), policy.newest)

    def _bias(self, at: Tensor, new: int) -> Bias:
        """What a position scheme adds to the scores of the tokens that are kept, (b, h, n, t)."""
        scheme, h, g = self.attention.heads.positions, self.attention.heads.heads, at.shape[1]
        if not isinstance(scheme, DistanceBias):
            return None
        each = scheme(at[..., at.shape[2] - new :], at)  # (b, g, h, n, t)
        heads = torch.arange(h, device=at.device)
        found: Tensor = each[:, heads * g // h, heads]
        return found

    def _weights(self, q: Tensor, keys: Tensor, bias: Bias) -> Tensor:
        """The weights of the new queries, added over the heads that share keys: (b, g, n, t)."""
        g = keys.shape[1]
        q, keys = upcast(q), upcast(keys).repeat_interleave(q.shape[1] // g, dim=1)
        scale = getattr(self.attention, "scale", q.shape[-1] ** -0.5)
        scores = biased(q @ keys.mT * scale, bias)
        weights = masked_softmax(scores, patterns.dense_of(patterns.causal(), q, keys))
        return weights.unflatten(1, (g, -1)).sum(2)


def _joined(past: Cache | None, k: Tensor, v: Tensor) -> Cache:
    """What was kept, and the new tokens with a score of 0."""
    b, g, n = k.shape[:3]
    length = 0 if past is None else past.length
    at = (length + torch.arange(n, device=k.device)).expand(b, g, n)
    scores = upcast(k).new_zeros(b, g, n)
    if past is None:
        return Cache(k, v, at, scores, n)
    pairs = zip(past[:4], (k, v, at, scores), strict=True)
    keys, values, at, scores = (torch.cat(both, dim=2) for both in pairs)
    return Cache(keys, values, at, scores, length + n)


def _cut(held: Cache, most: int, newest: int) -> Cache:
    """The newest tokens, and of the others those of the largest scores; of equal ones the
    earlier."""
    if held.size > most:
        first = held.scores.masked_fill(held.at >= held.length - newest, torch.inf)
        stay = first.argsort(dim=-1, descending=True, stable=True)[..., :most].sort(-1).values
        rows = stay[..., None]
        keys, values = (x.gather(2, rows.expand(-1, -1, -1, x.shape[3])) for x in held[:2])
        at, scores = (x.gather(2, stay) for x in held[2:4])
        held = Cache(keys, values, at, scores, held.length)
    note("kept", held.at)
    return held


def budget_cache(model: M, policy: Policy) -> M:
    """A copy of ``model`` whose layers of dense attention decode with a budget.

    The weights are those of the model, and a call without a state gives what the model gives.
    Raises ValueError where no layer decodes from keys and values that are compared by one softmax.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model should be a module, got a {type(model).__name__}")
    if not isinstance(policy, Policy) or type(policy) is Policy:
        raise TypeError(
            "policy says which tokens stay, such as H2O(budget=64), got "
            f"{policy if isinstance(policy, type) else type(policy).__name__}"
        )
    if any(getattr(part, "shares_cache", False) for part in model.modules()):
        raise ValueError(
            "layers of this model share a cache (cache_of), and a budget is for layers that keep "
            "their own"
        )
    changed: nn.Module = copy.deepcopy(model)
    if isinstance(changed, DenseAttention):
        _check(changed)
        changed = BudgetCacheAttention(changed, policy)
    found = [
        (parent, name, child)
        for parent in changed.modules()
        if not isinstance(parent, BudgetCacheAttention)
        for name, child in parent.named_children()
        if isinstance(child, DenseAttention) and child.causal
    ]
    if not found and not isinstance(changed, BudgetCacheAttention):
        raise ValueError(
            f"{type(model).__name__} has no causal layer that decodes from keys and values, such "
            "as those of full or multi_query attention"
        )
    for number, (parent, name, child) in enumerate(found):
        _check(child)
        setattr(parent, name, BudgetCacheAttention(child, policy, number))
    return changed  # type: ignore[return-value]


def _check(layer: DenseAttention) -> None:
    if not layer.one_softmax:
        raise ValueError(
            f"a budget is for heads whose weights are one softmax of queries times keys, and those "
            f"of {type(layer).__name__} are not"
        )
