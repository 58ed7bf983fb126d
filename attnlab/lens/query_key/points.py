"""The queries and keys of many sequences, per layer and head, and what is known of their tokens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np

STRONGEST = 8
"""How many of the strongest keys of each query are kept."""
POSITIONS = 64
"""Mean attention by position is kept for so many positions."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """What is known of N tokens, in the order of their sequences and of their positions in them.

    ``texts``     (N) as the model reads them
    ``sequence``  (N,) integers: the sequence of each token, from 0
    ``position``  (N,) integers: its place among the tokens of its sequence that are no padding
    ``labels``    (N) a class of each token (that of its image, say), or None
    ``images``    (S, height, width) or (S, height, width, 3), values from 0 to 1, one per sequence,
                  or None
    ``grid``      (rows, columns) of patches, for images: the last rows · columns tokens of each
                  sequence are the patches in reading order, and those before them are special
    """

    texts: tuple[str, ...]
    sequence: np.ndarray
    position: np.ndarray
    labels: tuple[str, ...] | None = None
    images: np.ndarray | None = None
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def starts(self) -> np.ndarray:
        """(S + 1,): the tokens of sequence s are those from starts[s] to starts[s + 1]."""
        count = int(self.sequence[-1]) + 1 if len(self) else 0
        return np.searchsorted(self.sequence, np.arange(count + 1))

    @cached_property
    def frequency(self) -> np.ndarray:
        """(N,): how many of the N tokens have the same text."""
        counts = Counter(self.texts)
        return np.array([counts[text] for text in self.texts], dtype=np.int64)

    @property
    def sequences(self) -> int:
        return len(self.starts) - 1

    def of(self, sequence: int) -> slice:
        """The rows of one sequence."""
        return slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys of one sequence its queries may attend to, in one bit per pair."""

    packed: np.ndarray
    keys: int

    @classmethod
    def of(cls, allowed: np.ndarray) -> "Mask":
        """``allowed`` is bool, (n, m) or (h, n, m)."""
        return cls(np.packbits(allowed, axis=-1), allowed.shape[-1])

    def __getitem__(self, head: int) -> np.ndarray:
        """(n, m), of one head."""
        own = self.packed[head] if self.packed.ndim == 3 else self.packed
        return np.unpackbits(own, axis=-1, count=self.keys).astype(bool)


@dataclass(frozen=True, eq=False)
class LayerPoints:
    """The queries and keys of one attention layer (of one attention call) over all sequences.

    ``name``          the path of the module that attended
    ``queries``       (h, N, d), as they meet the keys: after a rotation by RoPE, for example
    ``keys``          (h, M, d); keys that several query heads share are repeated for each
    ``value_norms``   (h, M): the length of each key's value vector
    ``scale``         (h,): what q·k was multiplied by; NaN where that is not one number
    ``strongest``     (h, N, 8) rows of the keys with the largest weights, largest first; -1: none
    ``weights``       (h, N, 8) their weights
    ``masks``         one per sequence; None where every query may attend to every key of its
                      sequence
    ``by_position``   (h, P, P): mean attention from query position to key position, P ≤ 64;
                      NaN where no sequence has both
    ``statistics``    of each head (h,), by the names of ``attnlab.lens.heads.HeadStatistics``
    ``outside``       None, or a sentence about what the model adds to the scores outside q·k
    ``query_tokens``, ``key_tokens``   the same in self-attention
    """

    name: str
    queries: np.ndarray
    keys: np.ndarray
    value_norms: np.ndarray
    scale: np.ndarray
    strongest: np.ndarray
    weights: np.ndarray
    masks: tuple[Mask | None, ...]
    by_position: np.ndarray
    statistics: dict[str, np.ndarray]
    outside: str | None
    query_tokens: Tokens
    key_tokens: Tokens

    @property
    def heads(self) -> int:
        return len(self.queries)

    def allowed(self, sequence: int, head: int) -> np.ndarray:
        """(n, m) bool: which keys of a sequence its queries may attend to."""
        mask = self.masks[sequence]
        if mask is not None:
            return mask[head]
        rows, columns = self.query_tokens.of(sequence), self.key_tokens.of(sequence)
        return np.ones((rows.stop - rows.start, columns.stop - columns.start), dtype=bool)

    def scores(self, sequence: int, head: int) -> np.ndarray:
        """(n, m) float32: q·k of one sequence, times the scale where it is known."""
        rows, columns = self.query_tokens.of(sequence), self.key_tokens.of(sequence)
        q = self.queries[head, rows].astype(np.float32)
        k = self.keys[head, columns].astype(np.float32)
        scale = self.scale[head]
        return np.asarray(q @ k.T * (1 if np.isnan(scale) else scale), dtype=np.float32)

    def __repr__(self) -> str:
        h, n, d = self.queries.shape
        return (
            f"<LayerPoints {self.name!r}: {h} heads, {n} queries and {self.keys.shape[1]} keys "
            f"of width {d}, of {self.query_tokens.sequences} sequences>"
        )


@dataclass(frozen=True, eq=False)
class Points(Sequence[LayerPoints]):
    """One ``LayerPoints`` per attention layer, in the order of the calls.

    ``sampled`` is None, or a sentence that says which part of the tokens was kept.
    """

    layers: tuple[LayerPoints, ...]
    sampled: str | None = None
    heads: tuple[tuple[int, int], ...] = field(init=False)
    """Every head as (layer, head)."""

    def __post_init__(self) -> None:
        pairs = ((at, head) for at, one in enumerate(self.layers) for head in range(one.heads))
        object.__setattr__(self, "heads", tuple(pairs))

    @property
    def size(self) -> int:
        """Bytes that the vectors take, the largest part of the whole."""
        return sum(layer.queries.nbytes + layer.keys.nbytes for layer in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerPoints]:
        return iter(self.layers)

    @overload
    def __getitem__(self, which: int) -> LayerPoints: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[LayerPoints, ...]: ...
    def __getitem__(self, which: int | slice) -> LayerPoints | tuple[LayerPoints, ...]:
        return self.layers[which]

    def __repr__(self) -> str:
        lines = "".join(f"\n  {layer!r}" for layer in self.layers)
        return f"<Points: {len(self)} layers, {self.size / 2**20:.1f} MiB of vectors{lines}\n>"
