"""The segments of a whole text: one after the other, or many at once."""

import torch
from torch import Tensor

from attnlab.core.chunks import cut
from attnlab.core.probe import listening
from attnlab.core.segments_together import at_once, before
from attnlab.core.tracing import on_cpu
from attnlab.mechanisms.learned.memorizing_transformer.segments import (
    LocalBias,
    MemorizingOptions,
    Past,
    Piece,
    joined,
    piece,
    refuse_twice,
)


def attend(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, scale: Tensor, *,
    at: Tensor, seen: Tensor | None, local_bias: LocalBias, options: MemorizingOptions,
) -> Tensor:  # fmt: skip
    """All segments of a text: one after the other, or off the CPU many at once, since the memory
    holds keys and waits for no output.

    q and k are as ``unit`` makes them. ``at`` (b or 1, n) counts positions for the biases; keys
    that are not ``seen`` (b, n) are never attended to.
    """
    refuse_twice(gate, options)
    if options.search == "exact" and not on_cpu(q) and not listening():
        return _together(q, k, v, gate, scale, at, seen, local_bias, options)
    pieces: list[Piece] = []
    for start in range(0, q.shape[2], options.segment):
        low, end = max(0, start - options.reach), start + options.segment
        visible = None if seen is None else seen[:, low:end]
        before = (k[:, :, low:start], v[:, :, low:start])
        past = Past.of(*before, None if visible is None else visible[:, : start - low], options)
        own = [x[:, :, start:end] for x in (q, k, v)]
        pieces.append(
            piece(
                *own, past=past, gate=gate, scale=scale,
                at=at[:, low:end], first=low, seen=visible, local_bias=local_bias, options=options,
            )
        )  # fmt: skip
    return joined(pieces, gate, options)


def _together(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, scale: Tensor,
    at: Tensor, seen: Tensor | None, local_bias: LocalBias, options: MemorizingOptions,
) -> Tensor:  # fmt: skip
    """Many segments as if they were sequences of one segment each, with the positions before it."""
    (b, h, n, d), c = q.shape, min(options.segment, q.shape[2])
    N, e = -(-n // c), v.shape[3]
    p = min(options.reach, (N - 1) * c)
    there = torch.ones(b, n, dtype=torch.bool, device=q.device) if seen is None else seen
    past = [before(x.detach(), p, c, N) for x in (k, v)]
    rows = [*(cut(x, c) for x in (q, k, v)), *past]
    places, known = (
        torch.cat((before(x, p, c, N), cut(x, c)), dim=3)[:, 0, ..., 0]
        for x in (x[:, None, :, None] for x in (at.expand(b, n), there))
    )
    out = []
    for some in at_once(N, b * h * c * (p + c + options.neighbours * (d + e))):
        *own, old_k, old_v = (x[:, :, some].transpose(1, 2).flatten(0, 1) for x in rows)
        positions, visible = (x[:, some].flatten(0, 1) for x in (places, known))
        found = piece(
            *own, past=Past.of(old_k, old_v, visible[:, :p], options), gate=gate, scale=scale,
            at=positions, first=0, seen=visible, local_bias=local_bias, options=options,
        )  # fmt: skip
        out.append(found.out.unflatten(0, (b, -1)).transpose(1, 2).flatten(2, 3))
    return torch.cat(out, dim=2)[:, :, :n]
