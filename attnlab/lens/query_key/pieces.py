"""What is kept of one attention call on one sequence, and how pieces become ``LayerPoints``."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlab.lens.heads import head_statistics
from attnlab.lens.query_key.points import POSITIONS, STRONGEST, LayerPoints, Mask, Tokens
from attnlab.lens.query_key.texts import Text
from attnlab.lens.record import Attention

_LARGEST_HALF, _SMALLEST_HALF = 65_504.0, 1e-4
"""Between them the largest number of a head keeps three digits in float16."""
_ANY_LENGTHS = ("entropy", "normalised_entropy", "first", "delimiter")
"""The statistics that have a meaning where queries and keys are different texts."""
_KNOWN = (
    "entropy", "normalised_entropy", "distance", "previous", "next", "same", "first", "delimiter",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Piece:
    """One layer and one sequence; letters as in ``LayerPoints``, keys counted in this sequence.

    ``rows`` says over how many rows each of the ``statistics`` (h,) is a mean, (h,).
    """

    queries: np.ndarray
    keys: np.ndarray
    value_norms: np.ndarray
    strongest: np.ndarray
    weights: np.ndarray
    mask: Mask | None
    by_position: np.ndarray
    statistics: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


@dataclass(eq=False)
class Layer:
    """What stays known of an attention layer from batch to batch.

    ``kind`` is "self", "cross" (keys of the source) or "encoder" (both of the source).
    """

    name: str
    kind: str
    shape: tuple[int, int]
    """Heads and width."""
    scale: np.ndarray
    outside: str | None = None

    @classmethod
    def of(cls, record: Attention, kind: str) -> "Layer":
        heads, width = record.shape[1], record.queries.shape[-1]
        return cls(record.name, kind, (heads, width), _scale(record.scale, heads))


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

    @classmethod
    def of(cls, record: Attention, kind: str) -> "Call":
        h = record.shape[1]
        keys, values = record.keys.detach(), record.values.detach()
        return cls(
            record.name,
            kind,
            record.queries.detach(),
            keys.repeat_interleave(h // keys.shape[1], dim=1),
            values.repeat_interleave(h // values.shape[1], dim=1),
            _weights(record),
            record.mask,
        )

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
        values = self._real("values", self.values[row], m)[:, columns]
        statistics = self._statistics(weights, mask, other.texts)
        counts = _counts(weights, mask)
        return Piece(
            queries=_stored(self._real("queries", self.queries[row], n)[:, rows]),
            keys=_stored(self._real("keys", self.keys[row], m)[:, columns]),
            value_norms=values.norm(dim=-1).numpy(),
            strongest=strongest,
            weights=shares,
            mask=None if mask is None else _mask(mask[:, rows][:, :, columns]),
            by_position=weights[:, :POSITIONS, :POSITIONS].half().numpy(),
            statistics=statistics,
            rows={name: counts.get(name, counts["all"]) for name in statistics},
        )

    def _real(self, what: str, vectors: Tensor, columns: Tensor) -> Tensor:
        """(h, n, d) float32 at the real tokens, which must be finite."""
        found = vectors.cpu()[:, columns].float()
        if not bool(found.isfinite().all()):
            raise ValueError(
                f"the {what} of {self.name!r} hold NaN or infinity at tokens that are no padding; "
                "mend the model or its inputs, or leave the layer out by `only`"
            )
        return found

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
        names = _ANY_LENGTHS if self.kind == "cross" else _KNOWN
        return {name: found[name] for name in names}


def assemble(layer: Layer, pieces: Sequence[Piece], sides: tuple[Tokens, Tokens]) -> LayerPoints:
    """The pieces of one layer, one per sequence, as one ``LayerPoints``.

    ``sides`` are the tokens of queries and keys.
    """

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(piece, name) for piece in pieces], axis=1)

    starts = sides[1].starts[:-1].repeat(np.diff(sides[0].starts))[:, None]
    strongest = joined("strongest")
    return LayerPoints(
        name=layer.name,
        queries=joined("queries"),
        keys=joined("keys"),
        value_norms=joined("value_norms"),
        scale=layer.scale,
        strongest=np.where(strongest < 0, -1, strongest + starts).astype(np.int32),
        weights=joined("weights"),
        masks=tuple(piece.mask for piece in pieces),
        by_position=_mean_by_position([piece.by_position for piece in pieces]),
        statistics={name: _mean(pieces, name) for name in pieces[0].statistics},
        outside=layer.outside,
        query_tokens=sides[0],
        key_tokens=sides[1],
    )


def _weights(record: Attention) -> Tensor:
    others = "Collect the other layers: only=[…] takes patterns of their paths"
    try:
        weights = record.weights.detach().float().nan_to_num()
    except ValueError as error:
        raise ValueError(
            f"{record.name!r} has queries and keys, but its attention weights are not known: "
            f"{error}. {others}"
        ) from error
    if bool((weights < 0).any()):
        raise ValueError(
            f"{record.name!r} has negative weights, so large products of queries and keys do not "
            f"mean much attention. {others}"
        )
    return weights


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
    """(h, n, d) in float16, or in float32 where the numbers of a head are too large or small for
    it."""
    largest = vectors.abs().amax(dim=(1, 2))
    half = ((largest < _LARGEST_HALF) & (largest > _SMALLEST_HALF)) | (largest == 0)
    return np.asarray(vectors.numpy().astype(np.float16 if bool(half.all()) else np.float32))


def _mask(allowed: Tensor) -> Mask | None:
    if bool(allowed.all()):
        return None
    return Mask.of((allowed[0] if len(allowed) == 1 else allowed).numpy())


def _counts(weights: Tensor, mask: Tensor | None) -> dict[str, np.ndarray]:
    """(h,): the rows over which ``head_statistics`` takes its means, by the statistic."""
    some = weights.sum(dim=-1) > 0
    choices = torch.tensor(weights.shape[-1]) if mask is None else mask.sum(dim=-1)
    found = {
        "all": some,
        "previous": some[:, 1:],
        "next": some[:, :-1],
        "normalised_entropy": some & (choices > 1),
    }
    return {name: rows.sum(dim=-1).numpy() for name, rows in found.items()}


def _mean_by_position(corners: list[np.ndarray]) -> np.ndarray:
    """(h, P, P) of (h, n, m) each: the mean over those that have both positions."""
    n, m = (max(corner.shape[axis] for corner in corners) for axis in (1, 2))
    total = np.zeros((len(corners[0]), n, m), dtype=np.float32)
    count = np.zeros((n, m), dtype=np.int64)
    for corner in corners:
        here = slice(corner.shape[1]), slice(corner.shape[2])
        total[:, *here] += corner
        count[here] += 1
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return np.asarray(mean, dtype=np.float32)


def _mean(pieces: Sequence[Piece], name: str) -> np.ndarray:
    """(h,): over the rows of all sequences; NaN for a head without any."""
    values = np.stack([piece.statistics[name] for piece in pieces])
    rows = np.stack([piece.rows[name] for piece in pieces]) * np.isfinite(values)
    total = rows.sum(axis=0)
    mean = (np.nan_to_num(values) * rows).sum(axis=0) / np.maximum(total, 1)
    return np.where(total > 0, mean, np.nan)
