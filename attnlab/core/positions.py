"""How attention layers are told where their tokens stand.

Attention itself treats its keys as a set. A position scheme enters at one of three places:

- at the embedding, before the first layer (role ``embed``): any mechanism can follow;
- at queries and keys (role ``encode``): a ``Rotation`` turns both by angles that grow with the
  position, and the dot product of the two depends on their distance;
- at the scores (role ``bias``): a ``DistanceBias`` adds a number per head and distance.

The last two belong to a layer. It takes them as ``positions=…``, and the annotation of that
parameter says which of the two it can take.

A distance is that of the key from the query, j − i: negative for keys of the past. The queries are
the last n of m positions.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import exact_dtype
from attnlab.core.shapes import checked

Positions: TypeAlias = Int[Tensor, "n"] | Int[Tensor, "b n"]
"""The position of each token, counted from 0; the same for all sequences or one row for each."""


@dataclass(frozen=True)
class BoundedBias:
    """A bias by distance that is constant beyond a reach D, on each side.

    ``near`` (h, 2D + 1) holds the distances from -D to D; a pair that is further apart has the
    number of the end on its side.
    """

    near: Float[Tensor, "h r"]

    def __post_init__(self) -> None:
        if self.near.ndim != 2 or self.near.shape[1] % 2 == 0:
            raise ValueError(
                "a bounded bias has a row of 2D + 1 numbers for each head, got the shape "
                f"{tuple(self.near.shape)}"
            )

    @property
    def reach(self) -> int:
        """D, from which on the bias is constant."""
        return self.near.shape[1] // 2

    def by_distance(self, n: int, m: int) -> Float[Tensor, "h r"]:
        """The n + m - 1 distances of n queries and m keys."""
        distances = torch.arange(1 - m, n, device=self.near.device)
        return self.near[:, distances.clamp(-self.reach, self.reach) + self.reach]


Bias: TypeAlias = Float[Tensor, "h r"] | Float[Tensor, "b h n m"] | BoundedBias | None
"""What is added to the scaled scores: a number per head and distance (r = n + m - 1, from
-(m - 1) to n - 1), or per pair."""


class PositionScheme(Layer):
    """What an attention layer takes as ``positions``: a ``Rotation`` or a ``DistanceBias``."""

    needs_causal: str = ""
    """Why only a causal layer can take it; empty where any can."""

    def check_layer(self, heads: int, head_dim: int, *, causal: bool) -> None:
        """Raise a ValueError unless a layer with these heads can take this scheme."""
        if self.needs_causal and not causal:
            raise ValueError(f"only a causal layer can take {self}: {self.needs_causal}")


class Rotation(PositionScheme):
    """Turns queries and keys of width ``head_dim`` by their positions."""

    head_dim: int
    keeps_lengths: bool = True
    """Whether a turned vector is as long as before."""

    @abstractmethod
    def queries(self, q: Tensor, positions: Tensor) -> Tensor:
        """Queries (b, h, n, d) at ``positions``, turned."""

    @abstractmethod
    def keys(self, k: Tensor, positions: Tensor) -> Tensor:
        """Keys (b, g, n, d) at ``positions``, turned."""

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of the same tokens, turned."""
        return self.queries(q, positions), self.keys(k, positions)

    def of_width(self, head_dim: int) -> "Rotation":
        """This scheme for heads of another width; a ValueError where it cannot be another's."""
        if head_dim == self.head_dim:
            return self
        raise ValueError(
            f"{self} was made for heads of width {self.head_dim} and has none of width {head_dim}, "
            "which is what this layer turns; build the layer with another scheme"
        )

    def check_layer(self, heads: int, head_dim: int, *, causal: bool) -> None:
        super().check_layer(heads, head_dim, causal=causal)
        if self.head_dim != head_dim:
            raise ValueError(
                f"the rotation was built for heads of width {self.head_dim}, but those of the "
                f"layer have width {head_dim}; build it with the layer's dim and heads"
            )

    def of_features(self, count: int) -> "Rotation":
        """This scheme for ``count`` features of a query or key; a ValueError where they are odd."""
        if count % 2:
            raise ValueError(
                f"a rotation turns pairs of features, but there are {count}: odd; choose another "
                "number of features, or another width of heads"
            )
        return self.of_width(count)


@dataclass(frozen=True)
class Turn:
    r"""A rotation and where it turns, for forms that make what they compare themselves.

    ``at`` are the positions of the m keys; the queries are the last n of them. With features
    in place of the softmax, the numerator takes turned features and the denominator those that are
    not, so that weights are divided by a sum of positive numbers (Su et al. 2021, section 3.3):

    $$o_i = \frac{\sum_j (R_i\, \phi(q_i)) \cdot (R_j\, \phi(k_j))\; v_j}{\sum_j \phi(q_i)
    \cdot \phi(k_j)}$$
    """

    rotation: Rotation
    at: Positions

    @classmethod
    def of(
        cls, scheme: Rotation | None, x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None, *, start: int | Int[Tensor, "b"] = 0,
    ) -> "Turn | None":  # fmt: skip
        """The turn of tokens x, the first of which stands at ``start``; None without a scheme."""
        if scheme is None:
            return None
        return cls(scheme, positions_of(x.shape[1], x.device, padding=padding, start=start))

    def queries(self, x: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n d"]:
        """What is made of queries, turned."""
        return self.rotation.queries(x, self.at[..., self.at.shape[-1] - x.shape[2] :])

    def keys(self, x: Float[Tensor, "b h m d"]) -> Float[Tensor, "b h m d"]:
        """What is made of keys, turned."""
        return self.rotation.keys(x, self.at)


class DistanceBias(PositionScheme):
    """Adds to the scaled score of each pair a number that depends on its distance alone."""

    heads: int
    reach: int | None = None
    """The distance from which on the biases of a side are equal, if there is one."""

    @abstractmethod
    def forward(self, i: Tensor, j: Tensor) -> Tensor:
        """The biases (…, h, n, m) of queries at positions i (…, n) and keys at j (…, m)."""

    def by_distance(self, n: int, m: int, device: torch.device) -> Float[Tensor, "h r"]:
        """The biases of the n + m - 1 distances between the last n of m positions and all m."""
        return self._of(torch.arange(1 - m, n, device=device))

    def in_layer(self, n: int, m: int, device: torch.device) -> Bias:
        """The biases by distance, or those within the reach alone where it is shorter."""
        if self.reach is None or self.reach >= max(n, m):
            return self.by_distance(n, m, device)
        return BoundedBias(self._of(torch.arange(-self.reach, self.reach + 1, device=device)))

    def _of(self, distances: Tensor) -> Tensor:
        found: Tensor = self(distances.new_zeros(1), distances)
        return found.squeeze(-2)

    def check_layer(self, heads: int, head_dim: int, *, causal: bool) -> None:
        super().check_layer(heads, head_dim, causal=causal)
        if self.heads != heads:
            raise ValueError(
                f"the biases were built for {self.heads} heads, but the layer has {heads}; "
                f"build them with heads={heads}"
            )


def positions_of(
    n: int, device: torch.device, *, padding: Bool[Tensor, "b n"] | None = None,
    start: int | Int[Tensor, "b"] = 0,
) -> Positions:  # fmt: skip
    """start, start + 1, …; with ``padding`` only valid tokens are counted. A ``start`` for each
    sequence gives a row for each."""
    start = start if isinstance(start, int) else start[:, None]
    if padding is None:
        return start + torch.arange(n, device=device)
    return (padding.cumsum(1) - 1).clamp(min=0) + start


@checked
def sinusoids(positions: Positions, dim: Size) -> Float[Tensor, "... dim"]:
    """The vector of each position: sin(i ω_k) and cos(i ω_k) in turn, with ω_k = 10000^(-2k/dim)
    (Vaswani et al. 2017, section 3.5)."""
    k = torch.arange(0, dim, 2, device=positions.device, dtype=exact_dtype(positions.device))
    angles = positions[..., None] * 10000.0 ** (-k / dim)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :dim]


def of_pairs(bias: Tensor | BoundedBias, n: int, m: int) -> Tensor:
    """A bias as (h, n, m) or (b, h, n, m)."""
    check_distances(bias, n, m)
    if isinstance(bias, BoundedBias):
        bias = bias.by_distance(n, m)
    return bias if bias.ndim == 4 else reversed_rows(bias, m).flip(-2)


def check_distances(bias: Tensor | BoundedBias, n: int, m: int) -> None:
    """A ValueError for a bias by distance that has not a number for each of n + m - 1."""
    if isinstance(bias, Tensor) and bias.ndim == 2 and bias.shape[-1] != n + m - 1:
        raise ValueError(
            f"a bias by distance needs n + m - 1 = {n + m - 1} distances, got {bias.shape[-1]}"
        )


def reversed_rows(bias: Float[Tensor, "h r"], m: int) -> Float[Tensor, "h n m"]:
    """A bias by distance, the last query first: a view, whose row s starts at number s.

    The distance of key j from query i is number j - i + n - 1 of the r; with s = n - 1 - i that is
    j + s.
    """
    return bias.unfold(-1, m, 1)


def biased(scores: Float[Tensor, "b h n m"], bias: Bias) -> Float[Tensor, "b h n m"]:
    """The scores with the bias added."""
    return scores if bias is None else scores + of_pairs(bias, *scores.shape[-2:]).to(scores.dtype)
