"""What a query of a Memorizing Transformer attends to, segment by segment, and what is kept."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.cache import KeyValueCache
from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import wide
from attnlab.core.probe import note
from attnlab.core.search import NOTHING, Search, nearest
from attnlab.core.softmax import masked_softmax

PerHead = Float[Tensor, "h"]
LocalBias = Float[Tensor, "h r"] | None


@dataclass(frozen=True, kw_only=True)
class Memory(Options):
    """The segments, the cache and the memory: by default the paper's smallest, divided by four.

    ``segment``     how many tokens are read before they are stored (512 in the paper).
    ``cache``       how many tokens before its segment a query attends to directly (512).
    ``memory``      how many past keys and values are kept to be searched (up to 262,144).
    ``neighbours``  how many of them each query fetches; all, where there are fewer.
    ``stored``      what enters the memory at the end of a segment: the segment itself, or the
                    positions that leave the cache.
    ``normalise``   whether queries and keys are made unit vectors.
    ``search``      the exact search by PyTorch, or by faiss.
    """

    segment: Size = 128
    cache: Count = 128
    memory: Count = 384
    neighbours: Size = 32
    stored: Literal["segment", "leaving"] = "segment"
    normalise: bool = True
    search: Search = "torch"

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


def unit(x: Tensor, options: Memory) -> Tensor:
    """Queries or keys as they are compared, and stored; half precisions become float32."""
    return F.normalize(wide(x), dim=-1) if options.normalise else wide(x)


def local_biases(local_bias: LocalBias, of_queries: Tensor, of_keys: Tensor) -> Tensor | float:
    """The biases (b, h, n, m) of queries and keys at positions (b, n) and (b, m); column t of
    ``local_bias`` is for a key t positions back."""
    if local_bias is None:
        return 0.0
    back = (of_queries[:, :, None] - of_keys[:, None]).clamp(0, local_bias.shape[1] - 1)
    return wide(local_bias)[:, back].transpose(0, 1)


def combined(near: Tensor, far: Tensor, gate: Tensor) -> Tensor:
    """(1 − g) near + g far, with one g for each head."""
    g = torch.sigmoid(wide(gate))[:, None, None]
    return (1 - g) * near + g * far


def refuse_twice(gate: Tensor | None, options: Memory) -> None:
    """A ValueError for one softmax over a memory and a cache that hold the same keys."""
    if gate is None and options.memory and options.stored == "segment" and options.cache:
        raise ValueError(
            "without a gate one softmax is taken over cache and memory, and with stored='segment' "
            "the newest keys are in both; give stored='leaving', or cache=0"
        )


def note_fetched(
    found: list[Tensor], weights: list[Tensor], gate: Tensor | None, options: Memory
) -> None:
    """Note what the queries of each piece have fetched, and the gate."""

    def joined(parts: list[Tensor], filler: int) -> Tensor:
        """Side by side; a piece has as many neighbours as its memory had keys, at most k."""
        padded = [F.pad(x, (0, options.neighbours - x.shape[-1]), value=filler) for x in parts]
        return torch.cat(padded, dim=2)

    note("neighbours", lambda: joined(found, NOTHING))
    note("neighbour_weights", lambda: joined(weights, 0))
    if gate is not None:
        note("gate", lambda: torch.sigmoid(wide(gate)))


# ---- one piece of a segment


class Piece(NamedTuple):
    """Output of some queries of one segment, the positions they fetched, and with what weights."""

    out: Float[Tensor, "b h t e"]
    neighbours: Int[Tensor, "b h t k"]
    weights: Float[Tensor, "b h t k"]


def attend(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, scale: Tensor, *,
    first: int, at: Tensor, seen: Tensor | None, local_bias: LocalBias, options: Memory,
) -> Tensor:  # fmt: skip
    """The queries are the last n of the m positions, the first of which is number ``first``.

    q and k are as ``unit`` makes them. ``at`` (b or 1, m) counts positions for the biases; keys
    that are not ``seen`` (b, m) are never attended to.
    """
    refuse_twice(gate, options)
    m = k.shape[2]
    pieces: list[Piece] = []
    begin = end = m - q.shape[2]
    while end < m:
        begin, start = end, options.start(first + end)
        end = min(m, start + options.segment - first)
        low = max(0, start - options.reach - first)
        keys, values = (_detached(x[:, :, low:end], start - first - low) for x in (k, v))
        pieces.append(
            _piece(
                q[:, :, begin - m + q.shape[2] : end - m + q.shape[2]], keys, values, gate, scale,
                first=first + low, start=start, at=at[:, low:end],
                seen=None if seen is None else seen[:, low:end],
                local_bias=local_bias, options=options,
            )
        )  # fmt: skip
    neighbours, weights = ([getattr(p, name) for p in pieces] for name in ("neighbours", "weights"))
    note_fetched(neighbours, weights, gate, options)
    return torch.cat([p.out for p in pieces], dim=2)


def _detached(x: Tensor, count: int) -> Tensor:
    """The first ``count`` positions, those of earlier segments, give no gradient."""
    return torch.cat([x[:, :, :count].detach(), x[:, :, count:]], dim=2)


def _piece(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, scale: Tensor, *,
    first: int, start: int, at: Tensor, seen: Tensor | None, local_bias: LocalBias, options: Memory,
) -> Piece:  # fmt: skip
    """One softmax over the local keys, one over the fetched, or one over both without a gate."""
    t, m = q.shape[2], k.shape[2]
    near = max(0, start - options.cache - first)
    high = max(0, start - options.delay - first)
    low = max(0, high - options.memory)
    factor = wide(scale)[:, None, None]
    local = factor * (q @ k[:, :, near:].mT) + local_biases(
        local_bias, at[:, m - t :], at[:, near:]
    )
    mask = _visible(t, m - near, q.device, None if seen is None else seen[:, near:])
    of_memory = None if seen is None else seen[:, low:high]
    fetched, found = _fetched(q, k[:, :, low:high], v[:, :, low:high], of_memory, options)
    scores, there = factor * fetched.scores, found != NOTHING
    if gate is None:
        both = torch.cat([local, scores], dim=-1)
        allowed = torch.cat([mask.expand(*there.shape[:3], -1), there], dim=-1)
        of_near, of_far = masked_softmax(both, allowed).split([m - near, scores.shape[-1]], dim=-1)
        out = of_near @ wide(v[:, :, near:]) + _sum(of_far, fetched.values)
    else:
        of_near = masked_softmax(local, mask)
        of_far = masked_softmax(scores, there) if scores.shape[-1] else scores
        out = combined(of_near @ wide(v[:, :, near:]), _sum(of_far, fetched.values), gate)
    positions = torch.where(there, found + (first + low), NOTHING)
    return Piece(out.to(v.dtype), positions, of_far)


def _visible(t: int, m: int, device: torch.device, seen: Tensor | None) -> Tensor:
    """Which of m local positions, the last t of which are the queries', each may attend to."""
    causal = torch.ones(t, m, dtype=torch.bool, device=device).tril(m - t)[None, None]
    return causal if seen is None else causal & seen[:, None, None]


class Fetched(NamedTuple):
    """The dot products of queries with what they fetched, and its values."""

    scores: Float[Tensor, "b h t k"]
    values: Float[Tensor, "b h t k e"]


def _fetched(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, options: Memory
) -> tuple[Fetched, Tensor]:
    """What each query fetches from the memory (k, v), and where from."""
    if not k.shape[2]:
        nothing = q.new_zeros(*q.shape[:3], 0)
        return Fetched(nothing, q.new_zeros(*q.shape[:3], 0, v.shape[-1])), nothing.long()
    found = nearest(q, k, options.neighbours, seen=seen, search=options.search)
    keys, values = (_gathered(x, found) for x in (k, wide(v)))
    return Fetched((keys @ q[..., None]).squeeze(-1), values), found


def _gathered(x: Tensor, found: Tensor) -> Tensor:
    """(b, h, m, d) at positions (b, h, t, k) → (b, h, t, k, d)."""
    flat = found.clamp(min=0).flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).unflatten(2, found.shape[2:])


def _sum(weights: Tensor, values: Tensor) -> Tensor:
    return (weights[..., None, :] @ values).squeeze(-2)


# ---- what is kept between two calls


class MemoryState(NamedTuple):
    """The keys and values that later queries may need, the number of positions read so far, and
    where the document of each sequence begins."""

    cache: KeyValueCache
    length: int
    begins: Int[Tensor, "b"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "MemoryState":
        """The state after the end of a document in those sequences where ``ended`` is True: later
        tokens attend to nothing of what was read so far."""
        if ended.dtype != torch.bool or ended.shape != self.begins.shape:
            raise ValueError(
                f"ended should be one bool for each of the {len(self.begins)} sequences, got "
                f"{ended.dtype} of shape {tuple(ended.shape)}"
            )
        return self._replace(begins=self.begins.masked_fill(ended, self.length))

    def extended(self, k: Tensor, v: Tensor) -> "MemoryState":
        """With the keys and values of new positions."""
        cache = KeyValueCache.extended(self.cache, k, v)
        return self._replace(cache=cache, length=self.length + k.shape[2])

    @property
    def first(self) -> int:
        """The position of the first key that is kept."""
        return self.length - self.cache.length

    @property
    def seen(self) -> Bool[Tensor, "b m"]:
        """Which keys are of the present document."""
        at = torch.arange(self.first, self.length, device=self.begins.device)
        return at >= self.begins[:, None]

    def trimmed(self, options: Memory) -> "MemoryState":
        """Without what no later query needs; earlier segments without their gradients."""
        start = options.start(self.length)
        drop = max(0, start - options.reach - self.first)
        kept = (_detached(x[:, :, drop:], start - self.first - drop) for x in self.cache)
        return self._replace(cache=KeyValueCache(*kept))
