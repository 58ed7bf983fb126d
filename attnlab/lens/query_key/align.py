"""Turn one map towards another, so that they can be compared (orthogonal Procrustes analysis).

Distances on a map mean something, directions do not: a map may be turned, mirrored and moved.
Aligned maps of the same tokens (other training steps, seeds, layers, machines) differ only where
their shapes differ. Their sizes stay what they are: in a chain of maps, each resized to fit
the one before it as well as possible, every map would be smaller than the last.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Alignment:
    """places → (places - centre) · turn + target."""

    centre: np.ndarray
    turn: np.ndarray
    target: np.ndarray

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """(P, k) -> (P, k)."""
        return np.asarray((places - self.centre) @ self.turn + self.target)


def alignment(places: np.ndarray, reference: np.ndarray) -> Alignment:
    """How ``places`` (P, k) are turned or mirrored, and moved, to come nearest to a reference.

    Nearest in the sum of squared distances between equal rows.
    """
    from scipy.linalg import orthogonal_procrustes

    if places.shape != reference.shape:
        raise ValueError(
            "maps are aligned point by point, so both need the same points and dimensions, got "
            f"{places.shape} and {reference.shape}"
        )
    centre, target = places.mean(axis=0), reference.mean(axis=0)
    turn, _ = orthogonal_procrustes(places - centre, reference - target)
    return Alignment(centre, turn, target)


def align(places: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """``places`` (P, k), aligned to ``reference``."""
    return alignment(places, reference)(places)
