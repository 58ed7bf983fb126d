r"""T5's relative biases: a learned number for each head and each bucket of distances.

The model learns how much each head prefers a distance. Near distances have a number of their own;
far ones share, in buckets that grow by a constant ratio:

$$s_{ij} = q_i \cdot k_j + b_{h,\,\beta(j - i)}$$

Let S be the number of buckets for one side, the past or the future, and D the largest distance. The
first E = S/2 buckets hold one distance each; the bucket of a distance t ≥ 0 is

$$\beta(t) = \begin{cases} t & t < E \\ \min\!\left(S - 1,\; E + \left\lfloor \frac{\log(t/E)}
{\log(D/E)} (S - E) \right\rfloor\right) & t \ge E \end{cases}$$

In a causal layer all B buckets are for the past: S = B. Otherwise each side has half of them, S =
B/2, and those of later keys come after those of the past. All distances of D or more share one
bucket, so the model can be run at lengths that it was not trained on.

Cost: B parameters per head; one bias for each head and each of n + m distances.

``naive``   the equation, for each pair of positions.

The paper's letters: num_buckets is B (both sides together), relative_attention_max_distance is D.

The traps: the distance is key minus query; in a layer that is not causal B counts both sides;
bucket 0 is distance 0, the token itself, and is counted among the buckets of the past.

Readings. Where buckets begin is computed in whole numbers; the released code takes a logarithm in
float32, and has the same buckets wherever that is exact enough.

Departures.
- the layer divides its scores by √d, which T5 does not: its initialisation makes up for that. Full
  attention with ``scale=1`` is T5's, and ``attnlab.models.t5`` builds the whole model

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, section 2.1.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.options import Options, Size
from attnlab.core.positions import DistanceBias
from attnlab.core.probe import note
from attnlab.core.shapes import checked


@dataclass(frozen=True, kw_only=True)
class T5BiasOptions(Options):
    """How distances share biases: ``buckets`` in all, the last for ``max_distance`` and beyond."""

    buckets: Size = 32
    max_distance: Size = 128
    begins: ClassVar[tuple[tuple[int, ...], ...]]  # of the buckets: no option, follows from these

    def check(self) -> None:
        if self.buckets < 4 or self.buckets % 4:
            raise ValueError(f"buckets should be a multiple of 4, got {self.buckets}")
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"max_distance={self.max_distance} should be above buckets / 2 = "
                f"{self.buckets // 2}, the distances that have a bucket of their own"
            )
        counts = (self.buckets // 2, self.buckets)  # of both sides, of the past alone
        begins = tuple(_begins(count, self.max_distance) for count in counts)
        object.__setattr__(self, "begins", begins)  # here, as its powers are too large to be traced

    def of(self, distance: Int[Tensor, "..."], *, causal: bool) -> Int[Tensor, "..."]:
        """The bucket of each distance j - i."""
        count = self.buckets if causal else self.buckets // 2
        far = -distance.clamp(max=0) if causal else distance.abs()
        begins = torch.tensor(self.begins[int(causal)], device=far.device)
        bucket = torch.bucketize(far, begins, right=True)
        return bucket if causal else bucket + count * (distance > 0)


@functools.cache
def _begins(count: int, largest: int) -> tuple[int, ...]:
    """The first distance of each bucket from 1 to ``count`` - 1, of E = count / 2 exact ones.

    Bucket E + s begins at the least t with log(t / E) / log(D / E) ≥ s / E, which is a question
    about whole numbers: $t^E \\ge E^{E - s} D^s$.
    """
    exact = count // 2
    found = list(range(1, exact + 1))
    for s in range(1, exact):
        goal = exact ** (exact - s) * largest**s
        t = math.floor(exact * (largest / exact) ** (s / exact))
        while t**exact >= goal:
            t -= 1
        while t**exact < goal:
            t += 1
        found.append(t)
    return tuple(found)


# ---- naive


@checked
def naive(
    i: Int[Tensor, "... n"], j: Int[Tensor, "... m"], weight: Float[Tensor, "B h"], *,
    causal: bool = False, options: T5BiasOptions = T5BiasOptions(),
) -> Float[Tensor, "... h n m"]:  # fmt: skip
    """The number of the bucket of each pair (Raffel et al., section 2.1)."""
    if len(weight) != options.buckets:
        raise ValueError(f"weight has {len(weight)} buckets, expected {options.buckets}")
    bucket = note("buckets", options.of(j[..., None, :] - i[..., :, None], causal=causal))
    return weight[bucket].movedim(-1, -3)


FORMS = {"naive": naive}

# ---- module


class BucketBiases(DistanceBias):
    """Learned biases of ``heads`` heads, zero at first: buckets · heads parameters."""

    @checked
    def __init__(
        self, heads: Size, *, causal: bool = False, options: T5BiasOptions = T5BiasOptions()
    ) -> None:
        super().__init__()
        self.heads, self.causal, self.options = heads, causal, options
        self.reach = options.max_distance
        self.weight = nn.Parameter(torch.zeros(options.buckets, heads))
        self.needs_causal = "its buckets are all for the past" if causal else ""

    @checked
    def forward(
        self, i: Int[Tensor, "... n"], j: Int[Tensor, "... m"]
    ) -> Float[Tensor, "... h n m"]:
        return naive(i, j, self.weight, causal=self.causal, options=self.options)


# ---- card

h, n, m = letters("h n m")

CARD = Card(
    __doc__,
    name="t5_bias",
    family="positions",
    role="bias",
    forms=FORMS,
    causal="optional",
    options=T5BiasOptions,
    time=h * n * m,
    memory=h * n * m,
    notes={"naive": ("buckets",)},
    variants=({"buckets": 8, "max_distance": 20},),
    build=BucketBiases,
    aliases=("t5",),
)
