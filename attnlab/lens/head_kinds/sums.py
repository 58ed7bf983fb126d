"""Sums over the queries of a layer's heads, of several batches if need be."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.head_kinds.kinds import SHARES, STATISTICS, Head
from attnlab.lens.head_kinds.positional import by_place, positional_share
from attnlab.lens.heads import Sum, head_sums, share, summed

Sums = dict[str, Sum]
_ROWS = "delimiter_from_others", "delimiter_from_delimiters"


@dataclass(frozen=True, eq=False)
class LayerSums:
    """Sums over one layer: its weights' statistics, those of uniform attention, and by place.

    ``by_place`` is (4, h, PLACES, PLACES): number of pairs, sum of weights, of their squares, and
    of the squares of their differences from uniform attention.
    """

    own: Sums
    uniform: Sums
    by_place: np.ndarray

    @property
    def count(self) -> int:
        """How many heads."""
        return int(self.by_place.shape[1])

    def __add__(self, other: "LayerSums") -> "LayerSums":
        return LayerSums(
            _added(self.own, other.own),
            _added(self.uniform, other.uniform),
            self.by_place + other.by_place,
        )

    def heads(self, layer: int, name: str) -> list[Head]:
        own, even = _means(self.own, self.count), _means(self.uniform, self.count)
        queries = {n: np.broadcast_to(self.own[n][1], self.count) for n in self.own}
        positional = positional_share(*self.by_place)
        return [
            Head(
                layer=layer,
                name=name,
                head=head,
                shares={n: float(own[n][head]) if n in own else np.nan for n in SHARES},
                uniform={n: float(even[n][head]) if n in even else np.nan for n in SHARES},
                queries={n: int(queries[n][head]) if n in queries else 0 for n in SHARES},
                positional=float(positional[head]),
                **{n: float(own[n][head]) for n in (*STATISTICS, *_ROWS) if n in own},
            )
            for head in range(self.count)
        ]


def _added(ours: Sums, theirs: Sums) -> Sums:
    zero = (np.zeros(1), np.zeros(1))
    pairs = {n: (ours.get(n, zero), theirs.get(n, zero)) for n in {**ours, **theirs}}
    return {n: (a[0] + b[0], a[1] + b[1]) for n, (a, b) in pairs.items()}


def _means(sums: Sums, heads: int) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):  # no query at all: NaN
        return {n: np.broadcast_to(total / rows, heads) for n, (total, rows) in sums.items()}


def measure(
    weights: Tensor,
    mask: Tensor | None,
    numbers: Tensor,
    padding: Tensor | None,
    texts: list[list[str]] | None,
    delimiters: frozenset[str],
) -> LayerSums:
    b, _, n, _ = weights.shape
    numbers = numbers.to(weights.device)
    real = torch.ones(b, n, dtype=torch.bool) if padding is None else padding
    real = real.to(weights.device)
    allowed = real[:, None, None, :] & real[:, None, :, None]
    if mask is not None:
        allowed = allowed & mask.to(weights.device)
    some = allowed.any(dim=-1, keepdim=True)  # a row of NaN that may attend to nothing is no row
    w = torch.where(some, weights.detach().double(), 0)
    u = allowed / allowed.sum(dim=-1, keepdim=True).clamp_min(1).double()
    places = real.cumsum(dim=-1) - 1
    given = None if padding is None else real
    columns = _repeats(numbers, places, real)
    own, uniform = (
        head_sums(x, texts, delimiters, mask=allowed, padding=given)
        | {name: _to(x, found[:, None] & allowed) for name, found in columns.items()}
        for x in (w, u)
    )
    return LayerSums(own, uniform, by_place(w, u, allowed, places))


def _repeats(numbers: Tensor, places: Tensor, real: Tensor) -> dict[str, Tensor]:
    """(b, n, n): the keys that hold an earlier occurrence of the query's token, and the keys that
    come right after one, before the query."""
    earlier = (places[:, None, :] < places[:, :, None]) & real[:, None, :]
    duplicate = (numbers[:, None, :] == numbers[:, :, None]) & earlier
    after = torch.nn.functional.pad(duplicate[..., :-1], (1, 0)) & earlier
    return {"duplicate": duplicate, "induction": after}


def _to(w: Tensor, columns: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The share that goes to ``columns``, over the rows that have some."""
    return summed(share(w, columns), columns.any(dim=-1) & (w.sum(dim=-1) > 0))
