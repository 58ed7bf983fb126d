"""Maps of queries and keys as bytes, a block for each head that is inflated on its own.

A coordinate takes 11 bits, counted from the middle of the head's box. Of the keys that a query
attends to at most the four strongest are kept, those with at least a quarter of the largest weight,
as their distances in the sequence with the square roots of their weights in 31 steps. Norms take 8
steps. The low and the high bytes of a block lie apart, which is what deflates best.
``space.js`` reads them.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlab.figures.labels import visible
from attnlab.lens.query_key.points import LayerPoints, Tokens

KEPT = 4
"""Strongest keys kept of each query, at most."""
LEAST = 0.25
"""Of the largest weight: weaker keys are left out."""
WEIGHT_STEPS = 31
STEPS = 1023
"""Steps from the middle of a head's box to its end."""
NORM_STEPS = 7
POSITIONS = 32
_FULL = 160


@dataclass
class Blocks:
    """Deflated blocks one after another; ``add`` says where a block lies: [start, size]."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, *arrays: np.ndarray) -> list[int]:
        part = zlib.compress(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays), 9)
        place = [self.size, len(part)]
        self.parts.append(part)
        self.size += len(part)
        return place

    def bytes(self) -> bytes:
        return b"".join(self.parts)


def planes(whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The low bytes of 16-bit numbers, then the high ones."""
    words = whole.astype(np.uint16)
    return (words & 255).astype(np.uint8), (words >> 8).astype(np.uint8)


def label_of(token: Any) -> list[str]:
    """A token's short visible label and, where it differs, its longer text."""
    text = token if isinstance(token, str) else visible(token)
    short = visible(token)
    if text == short:
        return [short]
    more = text if len(text) <= _FULL else f"{text[:_FULL]}… ({len(text):,} characters)"
    return [short, more.encode("utf-8", "replace").decode()]


def pack_tokens(tokens: Tokens, blocks: Blocks) -> dict[str, Any]:
    """Texts once each, then where each token stands; its class and its images where given."""
    texts, at = np.unique(np.asarray(tokens.texts, dtype=object), return_inverse=True)
    wide = np.uint32 if len(texts) > 65535 else np.uint16
    place = blocks.add(
        at.astype(wide), tokens.sequence.astype(np.uint16), tokens.position.astype(np.uint16)
    )
    found = {
        "n": len(tokens.texts),
        "texts": [label_of(text) for text in texts],
        "at": place,
        "labels": None,
        "images": None,
    }
    if tokens.labels is not None:
        names, at = np.unique(np.asarray(tokens.labels, dtype=object), return_inverse=True)
        found["labels"] = {
            "names": [visible(x) for x in names],
            "at": blocks.add(at.astype(np.uint16)),
        }
    if tokens.images is not None and tokens.grid is not None:
        found["images"] = _pack_images(tokens, blocks)
    return found


def _pack_images(tokens: Tokens, blocks: Blocks) -> dict[str, Any]:
    """Grey or in three colours, a byte each."""
    levels = np.rint(255 * np.asarray(tokens.images, np.float32)).clip(0, 255).astype(np.uint8)
    return {
        "at": blocks.add(levels),
        "size": list(levels.shape[1:3]),
        "colours": 3 if levels.ndim == 4 else 1,
        "grid": [int(side) for side in tokens.grid or (1, 1)],
    }


def box_of(clouds: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
    """The middle of all points and the distance from it to the end of the widest axis."""
    low = np.min([cloud.min(0) for cloud in clouds], 0)
    high = np.max([cloud.max(0) for cloud in clouds], 0)
    half = float((high - low).max()) / 2
    return (low + high) / 2, half or 1.0


def pack_places(
    queries: np.ndarray, keys: np.ndarray, box: tuple[np.ndarray, float], blocks: Blocks
) -> list[int]:
    """Axis by axis, the queries before the keys."""
    middle, half = box
    places = (np.concatenate([queries, keys]) - middle) / half
    return blocks.add(*planes(np.rint(places.T * STEPS) + STEPS + 1))


def ranks(sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's place among the rows of its sequence, and the rows sorted by sequence."""
    order = np.argsort(sequence, kind="stable")
    starts = np.searchsorted(sequence[order], sequence[order])
    found = np.empty(len(sequence), np.int64)
    found[order] = np.arange(len(sequence)) - starts
    return found, order


def kept(layer: LayerPoints, head: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, 4) rows of the strongest keys, and the steps of their weights; 0 steps where none is."""
    rows = np.asarray(layer.strongest[head])[:, :KEPT]
    weights = np.nan_to_num(np.asarray(layer.weights[head], np.float32)[:, :KEPT]).clip(0, 1)
    weights = np.where((rows < 0) | (weights < LEAST * weights[:, :1]), 0, weights)
    return rows, np.rint(WEIGHT_STEPS * np.sqrt(weights)).astype(np.uint8)


def pack_attention(layer: LayerPoints, head: int, blocks: Blocks) -> dict[str, Any]:
    """For each query its strongest keys: how far before it in the sequence, and their weights.

    The distance is counted in the rows that were collected of the sequence.
    """
    rows, steps = kept(layer, head)
    query_rank, _ = ranks(layer.query_tokens.sequence)
    key_rank, _ = ranks(layer.key_tokens.sequence)
    low, high = planes(np.where(steps > 0, query_rank[:, None] - key_rank[rows], 0).T & 65535)
    return {"at": blocks.add(low, high, steps.T), "k": rows.shape[1]}


def pack_norms(layer: LayerPoints, head: int, blocks: Blocks) -> dict[str, Any]:
    """Norms of queries, keys and values; beyond the 1st and 99th percentile all are alike."""
    coded, ranges = [], []
    for norms in (_norms(layer.queries[head]), _norms(layer.keys[head]), layer.value_norms[head]):
        low, high = np.percentile(norms, (1, 99))
        steps = np.rint(NORM_STEPS * (norms - low) / ((high - low) or 1))
        coded.append(steps.clip(0, NORM_STEPS).astype(np.uint8))
        ranges.append([float(f"{low:.4g}"), float(f"{high:.4g}")])
    return {"at": blocks.add(*coded), "ranges": ranges}


def _norms(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.asarray(vectors, np.float32), axis=-1)


def pack_by_position(weights: np.ndarray, blocks: Blocks) -> dict[str, Any]:
    """Mean attention (query position, key position), its square root in 255 steps."""
    some = np.nan_to_num(weights[:POSITIONS, :POSITIONS]).clip(0, 1)
    levels = np.rint(255 * np.sqrt(some)).astype(np.uint8)
    return {"at": blocks.add(levels), "shape": list(levels.shape)}
