"""What is kept of one attention call on one sequence, and how pieces become ``LayerPoints``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.heads import head_statistics
from attnlab.lens.query_key.outside import outside_products
from attnlab.lens.query_key.points import POSITIONS, STRONGEST, LayerPoints, Mask, Tokens
from attnlab.lens.query_key.texts import Text
from attnlab.lens.record import Attention

_LARGEST_HALF = 65_504.0
_ANY_LENGTHS = ("entropy", "normalised_entropy", "first", "delimiter")
"""The statistics that have a meaning where queries and keys are different texts."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One layer and one sequence; letters as in ``LayerPoints``, keys counted in this sequence."""

    queries: np.ndarray
    keys: np.ndarray
    value_norms: np.ndarray
    strongest: np.ndarray
    weights: np.ndarray
    mask: Mask | None
    by_position: np.ndarray
    statistics: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call with everything read once: tensors (b, h, …)."""

    name: str
    kind: str
    queries: Tensor
    keys: Tensor
    values: Tensor
    weights: Tensor
    mask: Tensor | None
    scale: np.ndarray
    outside: str | None

    @classmethod
    def of(cls, record: Attention, kind: str) -> "Call":
        queries, keys, values = record.queries, record.keys, record.values
        for what, tensor in ("queries", queries), ("keys", keys):
            if not bool(tensor.isfinite().all()):
                raise ValueError(f"the {what} of {record.name!r} hold NaN or infinity")
        h = queries.shape[1]
        return cls(
            record.name,
            kind,
            queries.detach(),
            keys.detach().repeat_interleave(h // keys.shape[1], dim=1),
            values.detach().repeat_interleave(h // values.shape[1], dim=1),
            record.weights.detach().float().nan_to_num(),
            record.mask,
            _scale(record.scale, h),
            outside_products(record),
        )

    @property
    def heads(self) -> int:
        return int(self.weights.shape[1])

    def described(self) -> "Call":
        """The same without its tensors' content: what stays known of a layer between batches."""
        names = ("queries", "keys", "values", "weights")
        empty = {name: getattr(self, name)[:0].clone() for name in names}
        return replace(self, **empty, mask=None)

    def piece(self, row: int, own: Text, other: Text) -> Piece:
        """What is kept of the sequence in one row; ``own`` are its queries, ``other`` its keys."""
        n, m = (torch.from_numpy(text.columns) for text in (own, other))
        rows, columns = (torch.from_numpy(text.kept) for text in (own, other))
        weights = self.weights[row].cpu()[:, n][:, :, m]
        mask = self._allowed(row, n, m)
        kept = weights[:, rows][:, :, columns]
        count = min(STRONGEST, kept.shape[-1])
        best = kept.topk(count, dim=-1)
        strongest = np.full((*kept.shape[:2], STRONGEST), -1, dtype=np.int32)
        strongest[..., :count] = best.indices.masked_fill(best.values <= 0, -1).numpy()
        shares = np.zeros(strongest.shape, dtype=np.float16)
        shares[..., :count] = best.values.numpy()
        return Piece(
            queries=_stored(self.queries[row].cpu()[:, n[rows]]),
            keys=_stored(self.keys[row].cpu()[:, m[columns]]),
            value_norms=self.values[row].cpu()[:, m[columns]].float().norm(dim=-1).numpy(),
            strongest=strongest,
            weights=shares,
            mask=None if mask is None else _mask(mask[:, rows][:, :, columns]),
            by_position=_corner(weights),
            statistics=self._statistics(weights, mask, other.texts),
        )

    def _allowed(self, row: int, n: Tensor, m: Tensor) -> Tensor | None:
        """(h or 1, n, m): True = may attend, None where all may."""
        if self.mask is None:
            return None
        whole = self.mask.expand(*self.mask.shape[:2], *self.weights.shape[2:])
        own = whole[row if whole.shape[0] > 1 else 0].cpu()[:, n][:, :, m]
        return None if bool(own.all()) else own

    def _statistics(
        self, weights: Tensor, mask: Tensor | None, texts: Sequence[str]
    ) -> dict[str, np.ndarray]:
        whole = None if mask is None else mask[None]
        found = vars(head_statistics(weights[None], list(texts), mask=whole))
        names = _ANY_LENGTHS if self.kind == "cross" else tuple(found)
        return {name: found[name] for name in names}


def assemble(
    call: Call, pieces: Sequence[Piece], lengths: Sequence[int], sides: tuple[Tokens, Tokens]
) -> LayerPoints:
    """The pieces of one layer, one per sequence, as one ``LayerPoints``.

    ``lengths`` are those of the sequences, which weigh their statistics; ``sides`` the tokens of
    queries and keys.
    """

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(piece, name) for piece in pieces], axis=1)

    starts = sides[1].starts[:-1].repeat(np.diff(sides[0].starts))[:, None]
    strongest = joined("strongest")
    return LayerPoints(
        name=call.name,
        queries=joined("queries"),
        keys=joined("keys"),
        value_norms=joined("value_norms"),
        scale=call.scale,
        strongest=np.where(strongest < 0, -1, strongest + starts).astype(np.int32),
        weights=joined("weights"),
        masks=tuple(piece.mask for piece in pieces),
        by_position=_mean_corner([piece.by_position for piece in pieces]),
        statistics={
            name: _mean([piece.statistics[name] for piece in pieces], np.asarray(lengths))
            for name in pieces[0].statistics
        },
        outside=call.outside,
        query_tokens=sides[0],
        key_tokens=sides[1],
    )


def _scale(scale: float | Tensor | None, heads: int) -> np.ndarray:
    if scale is None:
        return np.full(heads, np.nan)
    if isinstance(scale, Tensor):
        each = scale.detach().float().cpu()
        if each.numel() not in (1, heads):
            return np.full(heads, np.nan)
        return np.broadcast_to(each.numpy().reshape(-1), heads).copy()
    return np.full(heads, float(scale))


def _stored(vectors: Tensor) -> np.ndarray:
    """float16, or float32 where a number is too large for it."""
    values = vectors.float()
    half = values.numel() == 0 or float(values.abs().max()) < _LARGEST_HALF
    return np.asarray(values.numpy().astype(np.float16 if half else np.float32))


def _mask(allowed: Tensor) -> Mask | None:
    if bool(allowed.all()):
        return None
    return Mask.of((allowed[0] if len(allowed) == 1 else allowed).numpy())


def _corner(weights: Tensor) -> np.ndarray:
    """(h, P, P): the weights between the first P positions, NaN beyond the sequence."""
    h, n, m = weights.shape
    corner = np.full((h, POSITIONS, POSITIONS), np.nan, dtype=np.float32)
    corner[:, :n, :m] = weights[:, :POSITIONS, :POSITIONS].numpy()
    return corner


def _mean_corner(corners: list[np.ndarray]) -> np.ndarray:
    total, count = np.zeros_like(corners[0]), np.zeros(corners[0].shape[1:], dtype=np.int64)
    for corner in corners:
        total += np.nan_to_num(corner)
        count += ~np.isnan(corner[0])
    longest = [int((count > 0).any(axis=axis).sum()) for axis in (1, 0)]
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean[:, : longest[0], : longest[1]].astype(np.float32)


def _mean(values: list[np.ndarray], counts: np.ndarray) -> np.ndarray:
    """Over sequences, each counting as often as it has queries; those without a value left out."""
    stacked = np.stack(values)
    weight = counts[:, None] * np.isfinite(stacked)
    total = weight.sum(axis=0)
    mean = (np.nan_to_num(stacked) * weight).sum(axis=0) / np.where(total > 0, total, 1)
    return np.where(total > 0, mean, np.nan)
