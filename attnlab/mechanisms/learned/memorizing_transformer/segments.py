"""What a query of a Memorizing Transformer attends to, segment by segment, and what is kept."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Count, Options, Size
from attnlab.core.positions import DistanceBias
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.search import NOTHING, Lookup, Search
from attnlab.core.softmax import masked_softmax

PerHead = Float[Tensor, "h"]
LocalBias = Float[Tensor, "h r"] | None


@dataclass(frozen=True, kw_only=True)
class MemorizingOptions(Options):
    """The segments, the cache and the memory: by default the paper's smallest, divided by four.

    ``segment``     how many tokens are read before they are stored (512 in the paper).
    ``cache``       how many tokens before its segment a query attends to directly (512).
    ``memory``      how many past keys and values are kept to be searched (up to 262,144).
    ``neighbours``  how many of them each query fetches; all, where there are fewer.
    ``stored``      what enters the memory at the end of a segment: the segment itself, or the
                    positions that leave the cache.
    ``normalise``   whether queries and keys are made unit vectors.
    ``search``      exact, or approximate, which needs faiss and codes the memory anew after each
                    segment: faster where segments and memory are large.
    """

    segment: Size = 128
    cache: Count = 128
    memory: Count = 384
    neighbours: Size = 32
    stored: Literal["segment", "leaving"] = "segment"
    normalise: bool = True
    search: Search = "exact"

    @property
    def local(self) -> int:
        """The largest number of positions that a query attends to directly, itself included."""
        return self.segment + self.cache

    @property
    def delay(self) -> int:
        """How many positions before a segment the memory ends while the segment is read."""
        return self.cache if self.stored == "leaving" else 0

    @property
    def reach(self) -> int:
        """How many positions before a segment its queries need."""
        return max(self.cache, self.delay + self.memory)

    def start(self, position: int) -> int:
        """Where the segment of a position begins."""
        return position - position % self.segment


def unit(x: Tensor, options: MemorizingOptions) -> Tensor:
    """Queries or keys as they are compared, and stored; half precisions become float32."""
    return F.normalize(upcast(x), dim=-1) if options.normalise else upcast(x)


def first_scale(d: int, options: MemorizingOptions) -> float:
    """The scale at which random queries and keys of width d have scores of variance one."""
    return float(d ** (0.5 if options.normalise else -0.5))


def bias_by_distance(scheme: object, options: MemorizingOptions, device: torch.device) -> LocalBias:
    """(h, r): a number for each of the distances 0 … r − 1 to a local key, where a scheme has
    biases."""
    if not isinstance(scheme, DistanceBias):
        return None
    return scheme.by_distance(1, options.local, device).flip(-1)


def local_biases(local_bias: LocalBias, of_queries: Tensor, of_keys: Tensor) -> Tensor | float:
    """The biases (b, h, n, m) of queries and keys at positions (b, n) and (b, m); column t of
    ``local_bias`` is for a key t positions back."""
    if local_bias is None:
        return 0.0
    back = (of_queries[:, :, None] - of_keys[:, None]).clamp(0, local_bias.shape[1] - 1)
    return upcast(local_bias)[:, back].transpose(0, 1)


def combined(near: Tensor, far: Tensor, gate: Tensor) -> Tensor:
    """(1 − g) near + g far, with one g for each head."""
    g = torch.sigmoid(upcast(gate))[:, None, None]
    return (1 - g) * near + g * far


def refuse_twice(gate: Tensor | None, options: MemorizingOptions) -> None:
    """A ValueError for one softmax over a memory and a cache that hold the same keys."""
    if gate is None and options.memory and options.stored == "segment" and options.cache:
        raise ValueError(
            "without a gate one softmax is taken over cache and memory, and with stored='segment' "
            "the newest keys are in both; give stored='leaving', or cache=0"
        )


def note_fetched(
    found: list[Tensor], weights: list[Tensor], gate: Tensor | None, options: MemorizingOptions
) -> None:
    """Note what the queries of each piece have fetched, and the gate."""

    def joined(parts: list[Tensor], filler: int) -> Tensor:
        """Side by side; a piece has as many neighbours as its memory had keys, at most k."""
        padded = [F.pad(x, (0, options.neighbours - x.shape[-1]), value=filler) for x in parts]
        return torch.cat(padded, dim=2)

    note("neighbours", lambda: joined(found, NOTHING))
    note("neighbour_weights", lambda: joined(weights, 0))
    if gate is not None:
        note("gate", lambda: torch.sigmoid(upcast(gate)))


# ---- one piece of a segment


class Past(NamedTuple):
    """What the queries of one segment may need of the positions before it, without gradients."""

    keys: Float[Tensor, "b h p d"]
    values: Float[Tensor, "b h p e"]
    stored: slice
    """Which of these positions the memory holds."""
    memory: Lookup
    """The keys of these."""

    @classmethod
    def of(cls, k: Tensor, v: Tensor, seen: Tensor | None, options: MemorizingOptions) -> "Past":
        """Keeps the last positions before a segment, at least as many as ``options.reach``."""
        high = max(0, k.shape[2] - options.delay)
        stored = slice(max(0, high - options.memory), high)
        of_memory = None if seen is None else seen[:, stored]
        memory = Lookup(k[:, :, stored], seen=of_memory, search=options.search)
        return cls(k.detach(), v.detach(), stored, memory)

    @property
    def length(self) -> int:
        """The number of positions p."""
        return self.keys.shape[2]

    def hiding(self, seen: Bool[Tensor, "b p"]) -> "Past":
        """The same positions, of which others are seen."""
        old = self.memory
        return self._replace(memory=Lookup(old.keys, seen=seen[:, self.stored], search=old.search))


class Piece(NamedTuple):
    """Output of some queries of one segment, the positions they fetched, and with what weights."""

    out: Float[Tensor, "b h t e"]
    neighbours: Int[Tensor, "b h t k"]
    weights: Float[Tensor, "b h t k"]


def joined(pieces: list[Piece], gate: Tensor | None, options: MemorizingOptions) -> Tensor:
    """The outputs of all pieces; what they fetched is noted."""
    neighbours, weights = ([getattr(p, name) for p in pieces] for name in ("neighbours", "weights"))
    note_fetched(neighbours, weights, gate, options)
    return torch.cat([p.out for p in pieces], dim=2)


def piece(
    q: Tensor, k: Tensor, v: Tensor, *, past: Past, gate: Tensor | None, scale: Tensor,
    at: Tensor, first: int, seen: Tensor | None, local_bias: LocalBias, options: MemorizingOptions,
) -> Piece:  # fmt: skip
    """One softmax over the local keys, one over the fetched, or one over both without a gate.

    k and v are of a segment so far, q of its last t tokens. ``at`` and ``seen`` are of the past,
    the first position of which is number ``first``, and of the segment.
    """
    t, near = q.shape[2], max(0, past.length - options.cache)
    k, v = (torch.cat([x[:, :, near:], y], dim=2) for x, y in ((past.keys, k), (past.values, v)))
    factor = upcast(scale)[:, None, None]
    local = factor * (q @ k.mT) + local_biases(local_bias, at[:, at.shape[1] - t :], at[:, near:])
    mask = _visible(t, k.shape[2], q.device, None if seen is None else seen[:, near:])
    fetched, found = _fetched(q, past, options)
    scores, there = factor * fetched.scores, found != NOTHING
    if gate is None:
        both = torch.cat([local, scores], dim=-1)
        allowed = torch.cat([mask.expand(*there.shape[:3], -1), there], dim=-1)
        of_both = masked_softmax(both, allowed)
        of_near, of_far = of_both.split([k.shape[2], scores.shape[-1]], dim=-1)
        out = of_near @ upcast(v) + _sum(of_far, fetched.values)
    else:
        of_near = masked_softmax(local, mask)
        of_far = masked_softmax(scores, there) if scores.shape[-1] else scores
        out = combined(of_near @ upcast(v), _sum(of_far, fetched.values), gate)
    positions = torch.where(there, found + (first + past.stored.start), NOTHING)
    return Piece(out.to(v.dtype), positions, of_far)


def _visible(t: int, m: int, device: torch.device, seen: Tensor | None) -> Tensor:
    """Which of m local positions, the last t of which are the queries', each may attend to."""
    causal = torch.ones(t, m, dtype=torch.bool, device=device).tril(m - t)[None, None]
    return causal if seen is None else causal & seen[:, None, None]


class Fetched(NamedTuple):
    """The dot products of queries with what they fetched, and its values."""

    scores: Float[Tensor, "b h t k"]
    values: Float[Tensor, "b h t k e"]


def _fetched(q: Tensor, past: Past, options: MemorizingOptions) -> tuple[Fetched, Tensor]:
    """What each query fetches from the memory, and where from."""
    found = past.memory.nearest(q, options.neighbours)
    keys, values = (upcast(_gathered(x[:, :, past.stored], found)) for x in past[:2])
    return Fetched((keys @ q[..., None]).squeeze(-1), values), found


def _gathered(x: Tensor, found: Tensor) -> Tensor:
    """(b, h, m, d) at positions (b, h, t, k) → (b, h, t, k, d)."""
    flat = found.clamp(min=0).flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).unflatten(2, found.shape[2:])


def _sum(weights: Tensor, values: Tensor) -> Tensor:
    return (weights[..., None, :] @ values).squeeze(-2)


def largest(products: Tensor, stored: Tensor, neighbours: int) -> Tensor:
    """The positions of the ``neighbours`` largest among the ``stored`` of each row, best first."""
    best = products.detach().masked_fill(~stored, -torch.inf)
    return best.topk(min(neighbours, best.shape[-1]), dim=-1).indices
