"""Maps as bytes: one byte per weight, two floats per row.

Weights spread over orders of magnitude, so a row keeps for each weight w the code
c = round(255·√(w/s)) and reads it back as s·(c/255)². Attention to the first key is often nearly
all there is (a sink) and would drown the rest, so it is kept apart, as a float; s is the row's
largest weight beyond it. The error is at most √(w·s)/255 + s/(4·255²): below 0.4 % of s, and
smaller for small weights. Signed maps (a Jacobian, a difference) keep
c = 128 ± round(127·√(|w|/s)).

Maps too large to send whole are kept in two parts: tiles, each the largest weight of its block, and
for each row its largest weights beyond the first key, largest first.

A mask is a rule where one fits (causal, some keys hidden from all queries), else bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
TILES = 256
KEPT = 32
MOST_TILES = 2_400_000  # of all heads together


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
    bits: bytes = b""
    """Of its mask; ``header["mask"]["at"]`` is to say where they are, None where there are none."""


def block(
    maps: Floats,
    norms: Floats | None,
    complete: bool,
    mask: torch.Tensor | None = None,
    tiles: int = TILES,
) -> Block:
    """A layer's maps (h, n, m), with the norms of its values (h, m) where they are known.

    ``mask`` (bool, True = may attend) is broadcastable to (1, h, n, m); ``tiles`` are at most so
    many along the side of a map that is not sent whole.
    """
    signed = bool(maps.min() < 0)
    header: dict[str, Any] = {"signed": signed, "norms": norms is not None, "whole": complete}
    coded = [] if norms is None else [norms.astype("<f4")]
    if complete:
        coded += _whole(maps, signed)
    else:
        coded += _kept(maps, norms, signed, min(tiles, TILES), header)
    bits = b""
    if mask is not None:
        header["mask"], bits = masked(mask, maps.shape)
    return Block(b"".join(_aligned(part.tobytes()) for part in coded), header, bits)


def masked(mask: torch.Tensor, shape: tuple[int, ...]) -> tuple[dict[str, Any], bytes]:
    """A mask as a rule and bits.

    ``causal`` is the largest j - i that is allowed, or None; ``heads`` is how many bitmaps (n, m)
    follow: 0 where one row of m bits holds for all queries, which is left out if all are 1.
    """
    n, m = shape[1:]
    found = mask.detach().cpu().expand(1, mask.shape[1], n, m)[0]
    if found.shape[0] > 1 and bool((found == found[:1]).all()):
        found = found[:1]
    keys = found.any(dim=(0, 1)) if found.ndim == 3 else found
    for causal in (None, 0, m - n):
        rule = keys if causal is None else keys & torch.ones(n, m, dtype=torch.bool).tril(causal)
        if bool((found == rule).all()):
            bits = b"" if bool(keys.all()) else _bits(keys)
            return {"causal": causal, "heads": 0, "at": None}, bits
    return {"causal": None, "heads": found.shape[0], "at": None}, _bits(found)


def _bits(allowed: torch.Tensor) -> bytes:
    return _aligned(np.packbits(allowed.numpy().reshape(-1)).tobytes())


def allowed(header: dict[str, Any], data: bytes, head: int, n: int, m: int) -> NDArray[np.bool_]:
    """The mask (n, m) of one head, from what `masked` gave; its bits are in ``data`` at "at"."""
    rule = np.ones((n, m), bool)
    if header["causal"] is not None:
        rule = np.tril(rule, header["causal"])
    if header["at"] is None:
        return rule
    count = header["heads"] * n * m or m
    packed = np.frombuffer(data, np.uint8, -(-count // 8), header["at"])
    flat = np.unpackbits(packed, count=count).astype(bool)
    if not header["heads"]:
        return rule & flat
    return rule & flat.reshape(-1, n, m)[min(head, header["heads"] - 1)]


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
    maps: Floats, norms: Floats | None, signed: bool, tiles: int, header: dict[str, Any]
) -> list[NDArray[Any]]:
    """First column, row sums (plain; weighted by norms); beyond the first: kept weights, tiles.

    Columns are written byte by byte, all low bytes first, and codes as the steps down from one to
    the next, because both are deflated better so.
    """
    m = maps.shape[-1]
    k = min(KEPT, m)
    side = -(-max(maps.shape[1:]) // tiles)
    planes = 1 + (m > 256) + (m > 65_536)
    header |= {"kept": k, "side": side, "planes": planes}
    floats = [maps[..., 0], maps.sum(axis=-1)]
    if norms is not None:
        floats.append(np.einsum("hnm,hm->hn", maps, norms))
    rest = _beyond_first(maps)
    columns = np.stack([_largest(rows, k, signed) for rows in rest])
    codes, scales = encode(np.take_along_axis(rest, columns, axis=-1), signed)
    tiled, tile_scales = encode(np.stack([_tiled(rows, side, signed) for rows in rest]), signed)
    places = [(columns >> 8 * plane).astype(np.uint8) for plane in range(planes)]
    steps = -np.diff(codes, axis=-1, prepend=np.uint8(0))
    floats += [scales, tile_scales]
    return [*(part.astype("<f4") for part in floats), *places, steps, tiled]


def unkept(places: list[NDArray[np.uint8]], steps: NDArray[np.uint8]) -> tuple[Any, Any]:
    """Columns and codes, from how `_kept` writes them."""
    columns = sum(part.astype(np.int64) << 8 * plane for plane, part in enumerate(places))
    return columns, (-np.cumsum(steps, axis=-1, dtype=np.uint8)).astype(np.uint8)


def _largest(rows: Floats, k: int, signed: bool) -> NDArray[np.int64]:
    """The columns of each row's k largest |weights|, largest first."""
    found = torch.from_numpy(np.abs(rows) if signed else rows).topk(k, dim=-1)
    return np.asarray(found.indices.numpy())


def _tiled(rows: Floats, side: int, signed: bool) -> Floats:
    """The weight of largest size in each block of side × side."""
    n, m = rows.shape
    padded = np.pad(rows, ((0, -n % side), (0, -m % side)))
    high = _blockwise(padded, side, np.maximum)
    if not signed:
        return high
    low = _blockwise(padded, side, np.minimum)
    return np.where(-low > high, low, high)


def _blockwise(rows: Floats, side: int, larger: Any) -> Floats:
    """Row by row, then column by column: whole arrays at a time, which is faster than an axis."""
    for _ in range(2):
        rows = np.ascontiguousarray(rows.T)
        first, *others = (rows[at::side] for at in range(side))
        rows = first.copy()
        for other in others:
            larger(rows, other, out=rows)
    return rows
