r"""The spectrum of attention maps: how many singular directions carry most of a map?

An n × m map is a sum of rank-one maps weighted by its singular values, $P = \sum_i \sigma_i u_i
v_i^\top$, largest first. The first r of them are the nearest map of rank r, and what they leave out
is the rest of the squares: $\lVert P - P_r \rVert_F^2 = \sum_{i > r} \sigma_i^2$ (Eckart and Young,
1936). If few of them carry nearly all, k summaries can serve n keys; that is what Linformer rests
on (Wang et al. 2020, arXiv:2006.04768, Figure 1, which sums the singular values themselves).
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.shapes import checked
from attnlab.core.suggest import choose

OF = {"energy": 2, "values": 1}
"""Shares of the sum of squares, or of the singular values themselves (the paper's figure)."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """``singular_values`` (…, min(n, m)) in float64, largest first, one row per map.

    ``size`` is (n, m) of the maps. Rounding leaves singular values of about max(n, m) · ε · σ₁ that
    would be 0 in exact arithmetic.
    """

    singular_values: np.ndarray
    size: tuple[int, int]

    def cumulative(self, of: str = "energy") -> np.ndarray:
        """(…, min(n, m)): the share that the first 1, 2, … directions carry, up to 1.

        ``of`` is "energy" (squares) or "values". For a map of zeros it is 1.
        """
        left = self._left(of)
        total = left[..., :1]
        kept = 1 - left[..., 1:] / np.where(total == 0, 1, total)
        return np.clip(kept, 0, 1)

    def rank(self, share: float = 0.9, of: str = "energy") -> np.ndarray:
        """(…): how many directions carry at least ``share``; with 1, the numerical rank."""
        if isinstance(share, bool) or not isinstance(share, Real):
            raise TypeError(f"share should be a number, got {share!r}")
        if not 0 < share <= 1:
            raise ValueError(f"share is a part of the whole, 0 < share ≤ 1, got {share}")
        left = self._left(of)
        noise = max(self.size) * np.finfo(np.float64).eps * self.singular_values[..., :1]
        slack = self.singular_values.shape[-1] * noise ** OF[of]
        allowed = (1 - share) * (1 + 1e-12) * left[..., :1]  # 1 - 0.8 is a little less than 0.2
        enough = left <= np.maximum(allowed, slack)
        return np.asarray(enough.argmax(axis=-1))

    def _left(self, of: str) -> np.ndarray:
        """(…, 1 + min(n, m)): what the first 0, 1, 2, … directions leave out; summed from the
        smallest, so that a small rest is exact."""
        powers = self.singular_values ** choose("kind of share", of, OF)
        rest = np.flip(np.cumsum(np.flip(powers, -1), axis=-1), -1)
        return np.concatenate([rest, np.zeros_like(rest[..., :1])], axis=-1)


@checked
@torch.no_grad()
def spectrum(
    maps: Float[Tensor, "... n m"], *, padding: Bool[Tensor, "b m"] | None = None
) -> Spectrum:
    """The singular values of every map: weights (b, h, n, m), a ``mixing_matrix``, one map alone.

    ``padding`` (True = a real token, (b, m) for maps (b, …, n, m)) takes out columns of padding,
    and its rows where n = m; the singular values are those of the rest, followed by zeros. Computed
    in float64.
    """
    wide = maps.detach().double()
    if padding is not None:
        wide = _without_padding(wide, padding)
    if not torch.isfinite(wide).all():
        raise ValueError("the maps hold NaN or infinity, which have no singular values")
    values = torch.linalg.svdvals(wide).clamp_min(0)
    return Spectrum(values.cpu().numpy(), (int(maps.shape[-2]), int(maps.shape[-1])))


def _without_padding(maps: Tensor, padding: Tensor) -> Tensor:
    """Zero rows and columns add nothing but zeros to the singular values."""
    if maps.dim() < 3 or len(padding) != len(maps) or padding.shape[1] != maps.shape[-1]:
        raise ValueError(
            f"padding {tuple(padding.shape)} does not fit maps {tuple(maps.shape)}: "
            "it is (b, m) for maps (b, …, n, m)"
        )
    real = padding.view(len(padding), *[1] * (maps.dim() - 3), 1, -1)
    maps = maps.masked_fill(~real, 0)
    return maps.masked_fill(~real.mT, 0) if maps.shape[-2] == maps.shape[-1] else maps
