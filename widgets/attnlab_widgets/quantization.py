"""Maps as bytes: one byte per weight, two floats per row.

Weights spread over orders of magnitude, so a row keeps for each weight w the code
c = round(255·√(w/s)) and reads it back as s·(c/255)². Attention to the first key is often nearly
all there is (a sink) and would drown the rest, so it is kept apart, as a float; s is the row's
largest weight beyond it. The error is at most √(w·s)/255 + s/(4·255²): below 0.4 % of s, and
smaller for small weights. Signed maps (a Jacobian, a difference) keep
c = 128 ± round(127·√(|w|/s)).

Maps too large to send whole are kept in two parts: tiles, each the largest weight of its block, and
for each row its largest weights beyond the first key.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
TILES = 256
KEPT = 32


def encode(rows: Floats, signed: bool = False) -> tuple[NDArray[np.uint8], Floats]:
    """Codes of the shape of ``rows`` (…, m), scales (…): the largest |weight| of each row."""
    scales = np.abs(rows).max(axis=-1).astype(np.float32)
    share = rows / np.where(scales > 0, scales, 1)[..., None]
    if signed:
        codes = 128 + np.rint(127 * np.sign(share) * np.sqrt(np.abs(share)))
    else:
        codes = np.rint(255 * np.sqrt(share))
    return codes.astype(np.uint8), scales


def decode(codes: NDArray[np.uint8], scales: Floats, signed: bool = False) -> Floats:
    """The weights as the front end reads them."""
    share = (codes.astype(np.float32) - 128) / 127 if signed else codes / np.float32(255)
    return (np.sign(share) * share**2 * scales[..., None]).astype(np.float32)


def error_bound(weights: Any, largest: Any, signed: bool = False) -> Any:
    """How far a weight read back may be from the one that was written, given its row's largest."""
    levels = 127 if signed else 255
    weights, largest = np.abs(np.asarray(weights, float)), np.asarray(largest, float)
    return np.sqrt(weights * largest) / levels + largest / (4 * levels**2) + 1e-6 * largest


@dataclass(frozen=True)
class Block:
    """One layer as bytes, with what the front end must know to read them."""

    data: bytes
    header: dict[str, Any]


def block(maps: Floats, norms: Floats | None, complete: bool) -> Block:
    """A layer's maps (h, n, m), with the norms of its values (h, m) where they are known."""
    signed = bool((maps < 0).any())
    header: dict[str, Any] = {"signed": signed, "norms": norms is not None, "whole": complete}
    parts = _whole(maps, signed) if complete else _kept(maps, norms, signed, header)
    if norms is not None:
        parts.insert(0, norms.astype("<f4"))
    return Block(b"".join(_aligned(part.tobytes()) for part in parts), header)


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _whole(maps: Floats, signed: bool) -> list[NDArray[Any]]:
    codes, scales = encode(_beyond_first(maps), signed)
    return [maps[..., 0].astype("<f4"), scales.astype("<f4"), codes]


def _beyond_first(maps: Floats) -> Floats:
    rest = maps.copy()
    rest[..., 0] = 0
    return rest


def _kept(
    maps: Floats, norms: Floats | None, signed: bool, header: dict[str, Any]
) -> list[NDArray[Any]]:
    """First column, row sums (plain; weighted by norms); beyond the first: kept weights, tiles."""
    m = maps.shape[-1]
    k = min(KEPT, m)
    side = -(-max(maps.shape[1:]) // TILES)
    header |= {"kept": k, "side": side}
    sums = maps.sum(axis=-1)
    weighted = sums if norms is None else np.einsum("hnm,hm->hn", maps, norms)
    rest = _beyond_first(maps)
    columns = np.stack([_largest(rows, k) for rows in rest])
    codes, scales = encode(np.take_along_axis(rest, columns, axis=-1), signed)
    tiles, tile_scales = encode(np.stack([_tiled(rows, side) for rows in rest]), signed)
    floats = [maps[..., 0], sums, weighted, scales, tile_scales]
    return [*(part.astype("<f4") for part in floats), columns.astype("<u4"), codes, tiles]


def _largest(rows: Floats, k: int) -> NDArray[np.int64]:
    """The columns of each row's k largest |weights|, largest first."""
    return np.asarray(torch.from_numpy(np.abs(rows)).topk(k, dim=-1).indices.numpy())


def _tiled(rows: Floats, side: int) -> Floats:
    """The weight of largest size in each block of side × side."""
    n, m = rows.shape
    padded = np.pad(rows, ((0, -n % side), (0, -m % side)))
    blocks = padded.reshape(-(-n // side), side, -(-m // side), side)
    high, low = blocks.max(axis=(1, 3)), blocks.min(axis=(1, 3))
    return np.where(-low > high, low, high)
