"""The form that takes one segment after the other, or many at once."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.chunks import cut
from attnlab.core.precision import upcast
from attnlab.core.probe import listening, note
from attnlab.core.relative import DistanceWeight, HeadVector, past_keys
from attnlab.core.segments_together import before, weighed
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, TokenPadding, checked
from attnlab.core.tracing import on_cpu
from attnlab.mechanisms.memory.compressive_transformer.compression import (
    CompressiveOptions,
    most_used,
)
from attnlab.mechanisms.memory.compressive_transformer.places import (
    regular_places,
    rows_at,
    seen_after,
)
from attnlab.mechanisms.memory.compressive_transformer.state import attended, used


@checked
def chunked(
    q: Queries, k: SelfKeys, v: SelfValues, memory_k: SelfKeys, memory_v: SelfValues,
    short_k: SelfKeys, short_v: SelfValues, u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    padding: TokenPadding = None, options: CompressiveOptions = CompressiveOptions(),
) -> Outputs:  # fmt: skip
    """``naive`` with the columns that each segment attends to only, and the relative shift; off the
    CPU many segments at once, unless those before them choose what is kept."""
    (b, _, n, _), c = q.shape, options.segment
    there = torch.ones(b, n, dtype=torch.bool, device=q.device) if padding is None else padding
    if options.compression != "most_used" and not on_cpu(q) and not listening():
        rows = (k, v), (memory_k, memory_v), (short_k, short_v)
        return _together(q, *rows, u, t, weight, there, options)
    places = torch.zeros(b, 0, dtype=torch.int64, device=q.device)  # of the compressed vectors
    regular = regular_places(n, options, q.device).view(-1, options.each)
    usage, out, short_seen = upcast(q).new_zeros(b, n), [], seen_after(there, options)
    r = past_keys(weight, min(2 * n, options.columns))
    for start in range(0, n, c):
        end, oldest = min(n, start + c), start - options.memory
        low = max(0, oldest)
        keys, values = (
            torch.cat((rows_at(short, places), old[:, :, low:start], new[:, :, start:end]), dim=2)
            for short, old, new in ((short_k, memory_k, k), (short_v, memory_v, v))
        )
        seen = torch.cat((short_seen.gather(1, places), there[:, low:end]), dim=1)
        query = q[:, :, start:end]
        mixed, weights = attended(query, keys, values, u, t, r, seen)
        out.append(mixed)
        if options.compression == "most_used":
            by = there[:, start:end]
            usage[:, low:start] += used(weights, places.shape[1], start - low, by)
        if oldest >= 0 and end - start == c:
            chosen = regular[low // c].expand(b, -1)
            if options.compression == "most_used":
                chosen = most_used(usage[:, low : low + c], options) + low
            places = torch.cat((places, chosen), dim=1)[:, -options.compressed :]
    note("kept", places)
    return torch.cat(out, dim=2)


Pair = tuple[Tensor, Tensor]


def _together(
    q: Tensor, own: Pair, memory: Pair, short: Pair, u: Tensor, t: Tensor, weight: Tensor,
    there: Tensor, options: CompressiveOptions,
) -> Tensor:  # fmt: skip
    """All segments, where the places of compressed vectors are known: keys and values of a segment,
    those before it, and those of compressed vectors are given."""
    n, c = q.shape[2], min(options.segment, q.shape[2])
    N, regular = -(-n // c), regular_places(n, options, q.device)
    M, later = min(options.memory, (N - 1) * c), options.memory // options.segment
    K = min(options.compressed, max(0, N - 1 - later) * options.each)

    def columns(own: Tensor, memory: Tensor, short: Tensor) -> Tensor:
        """(b, h, N, K + M + c, d); a segment is compressed as many segments later as fit in the
        memory."""
        vectors = F.pad(short[:, :, regular], (0, 0, options.each * later, 0))
        parts = before(vectors, K, options.each, N), before(memory, M, c, N), cut(own, c)
        return torch.cat(parts, dim=3)

    keys, values = (columns(*each) for each in zip(own, memory, short, strict=True))
    real, kept = (x[:, None, :, None] for x in (there, seen_after(there, options)))
    seen = columns(real, real, kept)[:, 0, ..., 0]
    causal = seen.new_ones(c, K + M + c).tril(K + M)
    return weighed(q, keys, values, seen[:, :, None] & causal, u, t, weight)
