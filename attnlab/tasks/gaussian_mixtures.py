"""Mixtures of Gaussians: points of the plane, in no order, and the clusters that they came from.

Each set has clusters of its own: their number between `fewest` and `clusters`, their weights from a
flat Dirichlet distribution, their centres from the square from -4 to 4, all of standard deviation
0.3 along both axes. Lee, Lee, Kim, Kosiorek, Choi, Teh, "Set Transformer", ICML 2019,
arXiv:1810.00825, section 5.3, train a network that reads the points and writes the parameters of a
mixture of four; the loss is minus the log likelihood of the points (the ranges are those of their
released code). ``mixtures`` gives the parameters that the points were drawn with. As a classifier
the answer is how many clusters there are, from `fewest` on; one of small weight may lack points.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from torch import Tensor, from_numpy

from attnlab.tasks import Batch, Example, Task

FARTHEST, WIDTH = 4.0, 0.3


class Mixture(NamedTuple):
    """A mixture of k Gaussians with axes along the coordinates, for each of b sets.

    ``weights`` (b, k) sum to one, 0 where a set has fewer clusters; ``means`` and standard
    deviations ``widths`` are (b, k, 2).
    """

    weights: Tensor
    means: Tensor
    widths: Tensor

    def log_likelihood(self, points: Tensor) -> Tensor:
        """log p of each point (b, n, 2), in nats: (b, n)."""
        away = (points[:, :, None] - self.means[:, None]) / self.widths[:, None]
        normal = away.square() / 2 + self.widths[:, None].log() + math.log(2 * math.pi) / 2
        return (self.weights.log()[:, None] - normal.sum(-1)).logsumexp(-1)


@dataclass(frozen=True)
class GaussianMixtures(Task):
    """`points` points (b, n, 2) from `fewest` to `clusters` clusters."""

    clusters: int = 4
    fewest: int = 1
    points: int = 100
    name: ClassVar[str] = "gaussian_mixtures"
    kind: ClassVar[str] = "classifier"
    features: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self._check_sizes(clusters=1, fewest=1, points=1)
        if self.clusters < self.fewest:
            raise ValueError(f"clusters={self.clusters} should be at least fewest={self.fewest}")

    @property
    def length(self) -> int:
        return self.points

    @property
    def classes(self) -> int:
        return self.clusters - self.fewest + 1

    def mixtures(self, split: str, size: int, seed: int) -> tuple[Tensor, Mixture]:
        """The points of `batch`, and the mixture that each set was drawn from."""
        points, mixture, _ = self._sets(*self._begin(split, size, seed))
        return points, mixture

    def _sets(self, size: int, generator: np.random.Generator) -> tuple[Tensor, Mixture, Tensor]:
        counts = generator.integers(self.fewest, self.clusters, size, endpoint=True)
        shares = generator.exponential(size=(size, self.clusters))
        shares *= np.arange(self.clusters) < counts[:, None]
        weights = shares / shares.sum(1, keepdims=True)
        means = generator.uniform(-FARTHEST, FARTHEST, (size, self.clusters, 2))
        drawn = generator.random((size, self.points, 1)) < weights.cumsum(1)[:, None]
        of = drawn.argmax(-1)  # the first cluster whose cumulative weight exceeds the draw
        noise = generator.standard_normal((size, self.points, 2))
        points = np.take_along_axis(means, of[..., None], 1) + WIDTH * noise
        mixture = (weights, means, np.full_like(means, WIDTH))
        parts = [from_numpy(each.astype(np.float32)) for each in (points, *mixture)]
        return parts[0], Mixture(*parts[1:]), from_numpy(counts - self.fewest)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        points, _, counts = self._sets(size, generator)
        return Batch(points, counts)

    def _describe(self, batch: Batch) -> Example:
        count = self.fewest + int(batch.targets[0])
        clusters = "one cluster" if count == 1 else f"{count} clusters"
        middle = " and ".join(f"{x:.2f}" for x in batch.inputs[0].mean(0).tolist())
        return Example(
            title=f"{self.points} points from {clusters}",
            description=f"{self.points} points of the plane from {clusters}; the mean of the "
            f"points is {middle}.",
            labels=[str(int(batch.targets[0]))],
        )
