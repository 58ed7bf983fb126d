"""Patterns: who may see whom, as predicates of positions.

A pattern answers ``(i, j) -> bool``: may the query at position i see the key at position j? One
object is drawn, masks the naive form and steers the fast ones. Patterns compose with ``&``, ``|``
and ``~``.

With fewer queries than keys (decoding with a cache) the queries are the *last* n of the m
positions, so that ``causal()`` is aligned at the bottom right: query row r stands at position ``i =
r + (m - n)``.

A pattern also tells for a block of rows by a block of columns whether it is full, empty or mixed,
without making the block (``cover``). Compositions follow Kleene's three-valued logic, so a tiled
form can skip what nobody may see at the price of a few comparisons.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.shapes import checked

Cover = bool | None
"""True: all pairs of a block are allowed. False: none. None: mixed, or not known unlooked."""


class Pattern(ABC):
    """Who may see whom. ``words`` says it in a sentence; the rest follows from ``allows``."""

    words: str

    @abstractmethod
    def allows(self, i: Int[Tensor, "n 1"], j: Int[Tensor, "1 m"]) -> Bool[Tensor, "... n m"]:
        """Whether the query at position i may see the key at position j (broadcast over both)."""

    def cover(self, rows: range, columns: range) -> Cover:
        """Full (True), empty (False) or mixed (None) on positions ``rows`` × ``columns``."""
        return None

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        """A ValueError if the pattern is made for other than m keys or b sequences."""
        return None

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of n queries, standing last among m keys (m = n unless said otherwise)."""
        m = n if m is None else m
        if n < 1 or m < 1:
            raise ValueError(f"a pattern needs at least one query and one key, got n={n}, m={m}")
        self.refuse_misfit(m)
        rows = range(m - n, m)
        allowed = self.allows(*_positions(rows, range(m), device))
        return allowed.expand(*allowed.shape[:-2], n, m)

    def block(
        self, rows: range, columns: range, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... n m"]:
        """The mask of the pairs ``rows`` × ``columns``, both given as positions."""
        return self.allows(*_positions(rows, columns, device))

    def __and__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return _both(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        if not isinstance(other, Pattern):
            return NotImplemented
        return FULL if FULL in (self, other) else Or(self, other)

    def __invert__(self) -> "Pattern":
        return Not(self)


def _positions(
    rows: range, columns: range, device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    i = torch.arange(rows.start, rows.stop, device=device)
    j = torch.arange(columns.start, columns.stop, device=device)
    return i[:, None], j[None, :]


def _both(left: Pattern, right: Pattern) -> Pattern:
    if isinstance(right, Full):
        return left
    return right if isinstance(left, Full) else And(left, right)


# eq=False: a padding pattern holds a tensor, so patterns are equal only when identical.
@dataclass(frozen=True, eq=False)
class And(Pattern):
    """Both patterns allow it."""

    left: Pattern
    right: Pattern

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"({self.left.words}) and ({self.right.words})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) & self.right.allows(i, j)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.left.refuse_misfit(m, b)
        self.right.refuse_misfit(m, b)

    def cover(self, rows: range, columns: range) -> Cover:
        left, right = self.left.cover(rows, columns), self.right.cover(rows, columns)
        if left is False or right is False:
            return False
        return True if left and right else None


@dataclass(frozen=True, eq=False)
class Or(Pattern):
    """At least one pattern allows it."""

    left: Pattern
    right: Pattern

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"({self.left.words}) or ({self.right.words})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allows(i, j) | self.right.allows(i, j)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.left.refuse_misfit(m, b)
        self.right.refuse_misfit(m, b)

    def cover(self, rows: range, columns: range) -> Cover:
        left, right = self.left.cover(rows, columns), self.right.cover(rows, columns)
        if left or right:
            return True
        return False if left is False and right is False else None


@dataclass(frozen=True, eq=False)
class Not(Pattern):
    """The pattern does not allow it."""

    pattern: Pattern

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"not ({self.pattern.words})"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return ~self.pattern.allows(i, j)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        self.pattern.refuse_misfit(m, b)

    def cover(self, rows: range, columns: range) -> Cover:
        inside = self.pattern.cover(rows, columns)
        return None if inside is None else not inside


@dataclass(frozen=True, eq=False)
class Full(Pattern):
    """Every position sees every position."""

    words = "every position sees every position"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones(i.shape[0], j.shape[1], dtype=torch.bool, device=i.device)

    def cover(self, rows: range, columns: range) -> Cover:
        return True


@dataclass(frozen=True, eq=False)
class Causal(Pattern):
    """j ≤ i."""

    words = "each position sees itself and those before it"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def cover(self, rows: range, columns: range) -> Cover:
        if columns[-1] <= rows[0]:
            return True
        return False if columns[0] > rows[-1] else None


@dataclass(frozen=True, eq=False)
class Padding(Pattern):
    """Key j is a real token of its sequence; the mask has a batch axis, (b, 1, n, m)."""

    real: Bool[Tensor, "b m"]
    words = "only real tokens are seen, not the padding"

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        real = self.real.to(j.device)[:, j[0]]
        return real[:, None, None, :].expand(-1, 1, i.shape[0], -1)

    def dense(
        self, n: int, m: int | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        return super().dense(n, m, self.real.device if device is None else device)

    def refuse_misfit(self, m: int, b: int | None = None) -> None:
        sequences, keys = self.real.shape
        if keys != m:
            raise ValueError(f"padding is for {keys} keys, but there are {m}")
        if b is not None and sequences not in (1, b):
            raise ValueError(f"padding is for {sequences} sequences, but there are {b}")


FULL = Full()


def full() -> Pattern:
    """Every position sees every position."""
    return FULL


def causal() -> Pattern:
    """Each position sees itself and those before it (j ≤ i)."""
    return Causal()


@checked
def padding(real: Bool[Tensor, "b m"] | None) -> Pattern:
    """Only real tokens are seen: ``real`` is True at a real token. None pads nothing."""
    return FULL if real is None else Padding(real)


def visible(
    causally: bool,
    padding_: Tensor | None = None,
    context: Tensor | None = None,
    context_padding: Tensor | None = None,
) -> Pattern:
    """What a layer's queries may see of itself or, if it is given one, of its context."""
    if context is None:
        if context_padding is not None:
            raise ValueError("context_padding was given without a context")
        # Not by `&`: torch.compile follows that operator between objects only from PyTorch 2.7 on.
        return _both(causal() if causally else full(), padding(padding_))
    if causally:
        raise ValueError("a causal layer cannot look at a context: build it with causal=False")
    if padding_ is not None:
        raise ValueError("with a context it is the context that is looked at: give context_padding")
    return padding(context_padding)


def is_causal(pattern: object) -> bool:
    """Whether ``pattern`` is exactly ``causal()``, for forms that have a faster way to say so."""
    return isinstance(pattern, Causal)


def as_mask(
    mask: Bool[Tensor, "... n m"] | Pattern | None,
    n: int,
    m: int,
    device: torch.device,
    b: int | None = None,
) -> Bool[Tensor, "... n m"] | None:
    """The dense mask of a mask, a pattern or None; None where everything is allowed.

    A pattern for other than m keys or b sequences is refused.
    """
    if not isinstance(mask, Pattern):
        return mask
    mask.refuse_misfit(m, b)
    return None if mask.cover(range(m - n, m), range(m)) else mask.dense(n, m, device)
