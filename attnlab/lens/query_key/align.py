"""Turn one map towards another, so that they can be compared (orthogonal Procrustes analysis).

Distances on a map mean something, directions do not: a map may be turned, mirrored, moved and
resized. Aligned maps of the same tokens (other training steps, seeds, layers, machines) differ only
where their shapes differ.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Alignment:
    """places → (places - centre) · turn · size + target."""

    centre: np.ndarray
    turn: np.ndarray
    size: float
    target: np.ndarray

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """(P, k) -> (P, k)."""
        return np.asarray((places - self.centre) @ self.turn * self.size + self.target)


def alignment(places: np.ndarray, reference: np.ndarray) -> Alignment:
    """How ``places`` (P, k) are turned, mirrored, resized and moved to come nearest to a reference.

    Nearest in the sum of squared distances between equal rows. If all points of either map lie in
    one place, the other is only moved.
    """
    from scipy.linalg import orthogonal_procrustes

    if places.shape != reference.shape:
        raise ValueError(
            "maps are aligned point by point, so both need the same points and dimensions; got "
            f"{places.shape} and {reference.shape}"
        )
    centre, target = places.mean(axis=0), reference.mean(axis=0)
    moved, wanted = places - centre, reference - target
    spread = float((moved**2).sum())
    if spread == 0 or not (wanted**2).any():
        return Alignment(centre, np.eye(places.shape[1]), 1.0, target)
    turn, agreement = orthogonal_procrustes(moved, wanted)
    return Alignment(centre, turn, float(agreement) / spread, target)


def align(places: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """``places`` (P, k), aligned to ``reference``."""
    return alignment(places, reference)(places)
