"""A whole text at once: keys and values of inputs, of the memory and of compressed vectors; and the
loss by which a compression is trained."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.mechanisms.memory.compressive_transformer.compression import (
    CompressiveOptions,
    compressed,
    compressed_for_task,
    mean,
    reconstruction_loss,
    windows,
)
from attnlab.mechanisms.memory.compressive_transformer.places import regular_places


class Prepared(NamedTuple):
    """What the forms take of the inputs of a text."""

    q: Tensor
    k: Tensor
    v: Tensor
    memory_k: Tensor
    memory_v: Tensor
    short_k: Tensor
    short_v: Tensor


def prepared(
    heads: Heads, x: Tensor, padding: Tensor | None, kernel: nn.Conv1d | None,
    options: CompressiveOptions,
) -> Prepared:  # fmt: skip
    """What the forms take of the inputs x (b, n, dim): q, k, v, keys and values without gradient of
    the inputs, and those of the compressed vectors, each at the first place of its window."""
    x, there = zero_nonfinite_padding(x, padding), _there(x, padding)
    n, of_inputs = x.shape[1], _of_inputs(x, there, kernel, options)
    q, k, v = heads.project(x, torch.cat((x, of_inputs), dim=1))
    (k, short_k), (v, short_v) = (each.split((n, of_inputs.shape[1]), 2) for each in (k, v))
    old_k, old_v = k, v
    if x.requires_grad and n > options.segment:
        _, old_k, old_v = heads.project(x[:, :1], x.detach())
    if options.linear:
        short_k, short_v = (_of_heads(heads, each, there, options) for each in (old_k, old_v))
    places = regular_places(n, options, x.device)
    short_k, short_v = (
        each if each.shape[2] == n else torch.zeros_like(like).index_copy(2, places, each)
        for each, like in ((short_k, k), (short_v, v))
    )
    return Prepared(q, k, v, old_k, old_v, short_k, short_v)


def _there(x: Tensor, padding: Tensor | None) -> Tensor:
    """(b, n): which inputs are tokens."""
    return x.new_ones(x.shape[:2], dtype=torch.bool) if padding is None else padding


def _of_inputs(
    x: Tensor, there: Tensor, kernel: nn.Conv1d | None, options: CompressiveOptions
) -> Tensor:
    """The vectors (b, C, dim) of all whole segments, of which keys are to be made."""
    if options.linear or x.shape[1] < options.segment:
        return x[:, :0]
    segments, seen = (_whole_segments(each, options) for each in (x.detach(), there))
    short = compressed_for_task(segments, seen, kernel, options)
    return _of_sequences(short, len(x), x.shape[1], options)


def _of_heads(heads: Heads, old: Tensor, there: Tensor, options: CompressiveOptions) -> Tensor:
    """The compressed keys or values of a compression that commutes with the projections."""
    if options.compression == "most_used" or old.shape[2] < options.segment:
        return old if options.compression == "most_used" else old[:, :, :0]
    rows = heads.join(old)
    short = mean(_whole_segments(rows, options), _whole_segments(there, options), options)
    return heads.split(_of_sequences(short, len(rows), rows.shape[1], options), old.shape[3])


def _whole_segments(x: Tensor, options: CompressiveOptions) -> Tensor:
    """(b, n, …) → (b · segments, segment, …)."""
    c = options.segment
    whole = x.shape[1] // c
    return x[:, : whole * c].unflatten(1, (whole, c)).flatten(0, 1)


def _of_sequences(x: Tensor, b: int, n: int, options: CompressiveOptions) -> Tensor:
    """(b · segments, r, …) → (b, segments · r, …), of sequences of n tokens."""
    return x.unflatten(0, (b, n // options.segment)).flatten(1, 2)


# ---- what the compression is trained by


def lost(
    heads: Heads, x: Tensor, padding: Tensor | None, kernel: nn.Conv1d | None,
    options: CompressiveOptions,
) -> Tensor:  # fmt: skip
    """The attention-reconstruction loss of the inputs x (b, n, dim). Its gradient reaches the
    kernel alone."""
    if options.compression == "most_used":
        raise ValueError(
            "which inputs are most used is known only while they are attended to, and there is "
            "nothing to train; the loss is for the other compressions"
        )
    if x.shape[1] < options.memory + options.segment:
        raise ValueError(
            f"x has {x.shape[1]} tokens, but the first inputs leave the memory after "
            f"memory + segment = {options.memory + options.segment}; give a longer x"
        )
    x, there = zero_nonfinite_padding(x, padding).detach(), _there(x, padding)
    segments, seen = (_whole_segments(each, options) for each in (x, there))
    short = compressed(segments, seen, kernel, options)
    later = options.memory // options.segment  # segments until a segment is driven out
    read, by = (_of_each(part, len(x), slice(later, None)) for part in (segments, seen))
    old, new, kept = (
        _of_each(part, len(x), slice(None, -later)) for part in (segments, short, seen)
    )
    q = _constant(heads, heads.query, read)
    before, after = (
        (_constant(heads, heads.key, part), _constant(heads, heads.value, part))
        for part in (old, new)
    )
    found = windows(kept, options).any(dim=2)
    return reconstruction_loss(q, before, after, (kept, found), by)


def _constant(heads: Heads, projection: nn.Linear, x: Tensor) -> Tensor:
    """(b, s, dim) → (b, h, s, d), without a gradient of the projection."""
    return heads.split(F.linear(x, projection.weight.detach()), heads.head_dim)


def _of_each(x: Tensor, b: int, which: slice) -> Tensor:
    """Some of the segments of every sequence, of (b · segments, …)."""
    return x.unflatten(0, (b, len(x) // max(1, b)))[:, which].flatten(0, 1)
