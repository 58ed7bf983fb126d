r"""How differently two heads attend, and all heads as points in a plane.

The distance of two heads is the Jensen–Shannon divergence of their rows, in the mean over queries:

$$d(h, h') = \frac{1}{n} \sum_i JS(A^h_i \,\|\, A^{h'}_i),\qquad
  JS(p \| q) = H\!\left(\tfrac{p + q}{2}\right) - \tfrac{1}{2} H(p) - \tfrac{1}{2} H(q)$$

with H the entropy in nats. It is 0 for heads with the same map and ln 2 for two that never attend
to the same key. The mean per query gives each text the weight of its length; a plain sum over the
rows of each text, as in the paper, would do the same and grow with the amount of text.

Heads of one layer often lie near each other. ``plane`` draws them: points whose distances in the
plane are as near as possible to the distances of the heads (metric multidimensional scaling, by
SMACOF of scikit-learn). The divergence itself breaks the triangle inequality, its square root does
not, so it is the square roots that are drawn. ``stress`` says what two dimensions could not show.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341,
section 6.1. Endres, Schindelin. A New Metric for Probability Distributions. IEEE Transactions on
Information Theory 2003.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.heads import check_weights, real_keys
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of


class Plane(NamedTuple):
    """Heads as points."""

    points: np.ndarray
    """(heads, 2)."""
    stress: float
    """Kruskal's stress: 0 if the plane shows all distances exactly; above 0.2 it shows them
    poorly."""


class HeadDistances(NamedTuple):
    """The distances of all heads of a model, in order of layers."""

    heads: list[tuple[int, int]]
    """(layer, head)."""
    divergence: np.ndarray
    """(heads, heads), nats: 0 on the diagonal, at most ln 2."""
    queries: int
    """The number of rows over which it is a mean."""

    def nearest(self, layer: int, head: int) -> list[tuple[int, int]]:
        """The other heads, the one that attends most alike first."""
        if (layer, head) not in self.heads:
            raise ValueError(f"there is no head {head} in layer {layer} among these")
        own = self.heads.index((layer, head))
        order = np.argsort(self.divergence[own], kind="stable")
        return [self.heads[other] for other in order if other != own]

    def plane(self) -> Plane:
        """The heads as points of a plane. Needs scikit-learn.

        It starts from classical scaling, so the same distances give the same picture.
        """
        from sklearn.manifold import smacof

        distances = np.sqrt(self.divergence)
        whole = (distances**2).sum()
        if whole == 0:  # all heads attend alike
            return Plane(np.zeros((len(distances), 2)), 0.0)
        points, _ = smacof(
            distances, init=_classical(distances), n_init=1, max_iter=1000, eps=1e-9,
            normalized_stress=False, random_state=0,
        )  # fmt: skip
        shown = np.linalg.norm(points[:, None] - points[None], axis=-1)
        stress = np.sqrt(((shown - distances) ** 2).sum() / whole)
        return Plane(points - points.mean(0), float(stress))


def head_distances(
    seen: Seen | Mapping[str, Tensor], *, padding: Tensor | None = None
) -> HeadDistances:
    """The distances of the heads in one batch.

    ``seen``     what ``attnlab.watch`` recorded, or weights as {layer's name: (b, h, n, m)}. All
                 layers have the same queries and the same keys; leave others (cross-attention) out
                 by ``watch(model, only=…)``
    ``padding``  (b, n) bool, True = a real token: rows of padding are left out

    Rows in which a head may attend to nothing are left out for all heads. Memory: (heads, b, n, m)
    in float64. Raises a ValueError where layers differ in their queries and keys.
    """
    layers = [(name, weights) for name, weights, _ in layers_of(seen)]
    shapes = {(len(weights), *weights.shape[2:]) for _, weights in layers}
    if len(shapes) > 1:
        raise ValueError(
            "the layers should have the same queries and keys, got maps (b, n, m) of "
            f"{sorted(shapes)}; take layers of one kind by watch(model, only=…)"
        )
    maps = torch.cat([weights.detach().double() for _, weights in layers], dim=1)
    if padding is not None and padding.shape != (len(maps), maps.shape[2]):
        raise ValueError(
            f"padding should be (b, n) = {(len(maps), maps.shape[2])}, got {tuple(padding.shape)}"
        )
    real = real_keys(padding, *maps.shape[2:])
    if padding is not None:
        maps = maps.masked_fill(~padding[:, None, :, None], 0)
    if real is not None:
        maps = maps.masked_fill(~real[:, None, None, :], 0)
    check_weights(maps)
    rows = maps.transpose(0, 1).flatten(1, 2)  # (heads, rows, m)
    rows = rows[:, (rows.sum(-1) > 0).all(dim=0)]
    if not rows.shape[1]:
        raise ValueError("no query is left: all rows are padding or attend to nothing")
    rows = rows / rows.sum(-1, keepdim=True)
    entropy = _entropy(rows)
    means = [
        (_entropy((rows + own) / 2) - (entropy + entropy[head]) / 2).mean(-1)
        for head, own in enumerate(rows)
    ]
    found = torch.stack(means).clamp_min(0)
    found = ((found + found.mT) / 2).fill_diagonal_(0)
    heads = [(layer, h) for layer, (_, w) in enumerate(layers) for h in range(w.shape[1])]
    return HeadDistances(heads, found.cpu().numpy(), rows.shape[1])


def _entropy(rows: Tensor) -> Tensor:
    return -torch.special.xlogy(rows, rows).sum(-1)


def _classical(distances: np.ndarray) -> np.ndarray:
    """Torgerson's scaling: exact where the distances are those of points in a plane."""
    centred = distances**2
    centred = centred - centred.mean(0) - centred.mean(1)[:, None] + centred.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    found = np.zeros((len(distances), 2))
    for column, place in enumerate(range(len(values) - 1, max(len(values) - 3, -1), -1)):
        vector = vectors[:, place]
        sign = np.sign(vector[np.argmax(np.abs(vector))])
        found[:, column] = sign * vector * np.sqrt(max(values[place], 0))
    return found
