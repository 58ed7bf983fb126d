"""Maps of the wall as bytes: one byte per weight, one float per row.

A masked cell has code 0. A weight w of a row whose largest is s has the code c = 1 + round(254 ·
√(w/s)), and is read back as s · ((c − 1)/254)²; signed maps keep c = 128 ± round(127 · √(|w|/s)).
The error is at most √(|w| · s)/254 + s/(4 · 254²), and twice that for signed maps.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlab.lens.side_by_side import Map

Floats = NDArray[np.float32]


def encode(found: Map) -> tuple[bytes, dict[str, Any]]:
    """The scales (h, n) as floats and the codes (h, n, m), with what is needed to read them."""
    weights = found.weights.numpy().astype(np.float32)
    masked = found.masked.numpy()
    signed = bool((weights < 0).any())
    scales = np.abs(weights).max(axis=-1)
    share = weights / np.where(scales > 0, scales, 1)[..., None]
    size = np.sqrt(np.abs(share))
    codes = 128 + np.rint(127 * np.sign(share) * size) if signed else 1 + np.rint(254 * size)
    codes = np.where(masked, 0, codes).astype(np.uint8)
    h, n, m = weights.shape
    data = scales.astype("<f4").tobytes() + codes.tobytes()
    header = {"h": h, "n": n, "m": m, "signed": signed, "exact": found.exact, "how": found.how}
    return data + bytes(-len(data) % 4), header


def decode(data: bytes | bytearray, header: dict[str, Any]) -> tuple[Floats, NDArray[np.bool_]]:
    """Weights (h, n, m) as the front end reads them, and which cells are masked."""
    h, n, m = (header[name] for name in "hnm")
    at = header["at"]
    scales = np.frombuffer(data, "<f4", h * n, at).reshape(h, n, 1)
    codes = np.frombuffer(data, np.uint8, h * n * m, at + 4 * h * n).reshape(h, n, m)
    signed = header["signed"]
    share = (codes.astype(np.float32) - 128) / 127 if signed else (codes - np.float32(1)) / 254
    weights = np.sign(share) * share**2 * scales
    return np.where(codes == 0, 0, weights).astype(np.float32), codes == 0
