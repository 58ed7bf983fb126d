"""The form that takes one segment after the other."""

import torch

from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.relative import DistanceWeight, HeadVector, past_keys
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues, TokenPadding, checked
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
    """``naive`` with the columns that each segment attends to only, and the relative shift."""
    (b, _, n, _), c = q.shape, options.segment
    there = torch.ones(b, n, dtype=torch.bool, device=q.device) if padding is None else padding
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
