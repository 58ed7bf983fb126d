"""The sources that AttentionView takes, converted to one form: layers of maps.

A source is a recording of ``attnlab.watch`` (``Seen``, a list of ``Attention`` or a single one),
the outputs of a Hugging Face model or of its ``generate``, an ``ActivationCache`` of
TransformerLens (or any mapping with keys such as ``blocks.0.attn.hook_pattern``), mixing matrices
of ``attnlab.lens.mixing``, or arrays: one map (n, m), one layer (heads, n, m), several
(layers, heads, n, m), or a list with one (n, m), (heads, n, m) or (b, heads, n, m) per layer.
"""

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.lens.heads import head_statistics
from attnlab.lens.mixing import Mixing
from attnlab.lens.record import Attention, Seen
from attnlab.lens.sources.joined import Call, Decoded, Weights, Windowed, decoded
from attnlab.lens.sources.layer_names import Outline, order, titles

_HUGGING_FACE = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
_PATTERN = re.compile(r"\.hook_pattern$")
MANY = 1024
"""With more queries, the statistics are those of so many rows, evenly spread."""

_HELD = 4_000_000
"""Numbers of a recording that a layer keeps in memory; a larger one it only knows."""
Held = Callable[[], Attention | None]
"""A way to a record; None once nobody keeps it."""


def held(record: Attention) -> Held:
    """A way to the record; a large one is not kept alive, for a notebook forgets no widget."""
    b, h, n, m = record.shape
    if b * h * (n + 2 * m) * record.queries.shape[-1] <= _HELD:
        return lambda: record
    return weakref.ref(record)


@dataclass
class Layer:
    """One attention call: its maps (h, n, m), and the norms of its values (h, m) if known."""

    name: str
    maps: np.ndarray
    norms: np.ndarray | None = None
    mask: Tensor | None = None
    broken: int = 0
    """How many rows held NaN (nothing to attend to, say); they are drawn empty."""
    kind: str | None = None
    """ "self", "cross" or "encoder"; see `tokens.Tokens.settle`."""
    title: str | None = None
    """What it is called in a model with several sides: "cross 1"."""
    named: bool = True
    """Whether the name comes from a model, so that it can be interpreted."""
    record: Held | None = None
    """The way to the queries, keys and values, in row ``row`` of the batch."""
    row: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        h, n, m = self.maps.shape
        return h, n, m

    def left_over(self) -> np.ndarray | None:
        """(h, n): what the weights of each row leave of one: for a sink, for a gate, or because
        other weights were subtracted. A row without any weight leaves nothing. None where nothing
        is left, and where weights are no shares: some are negative, or sum to more than one."""
        sums = self.maps.sum(axis=-1, dtype=np.float64)
        if (self.maps < 0).any() or (sums > 1 + ROUNDED).any():
            return None
        left: np.ndarray = np.where(sums > 0, np.maximum(1 - sums, 0), 0)
        return left if (left > ROUNDED).any() else None

    def statistics(self) -> dict[str, list[float | None]]:
        """``head_statistics``, rounded; those of positions only where queries are keys. Where rows
        leave something, ``sink`` is its mean; where weights are negative, ``negative`` is the mean
        size of their sum."""
        _, n, m = self.shape
        if n > MANY:
            found = self._sampled(np.linspace(0, n - 1, MANY).round().astype(int))
        else:
            weights = torch.from_numpy(self.maps[None]).clamp_min(0)
            found = vars(head_statistics(weights, mask=self.mask))
        names = _FREE if self.kind == "cross" or n > m else STATISTICS
        told = {name: [_rounded(value) for value in found[name]] for name in names}
        left = self.left_over()
        if left is not None:
            told["sink"] = [_rounded(value) for value in left.mean(axis=-1)]
        if (self.maps < 0).any():
            below = -np.minimum(self.maps, 0).sum(axis=-1, dtype=np.float64).mean(axis=-1)
            told["negative"] = [_rounded(value) for value in below]
        return told

    def _sampled(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The statistics from a sample of the rows; all of a long input take seconds per head."""
        h, n, m = self.shape
        choices = np.full((h, len(rows)), float(m))
        if self.mask is not None:
            mask = self.mask.expand(1, h, n, m)[0, :, torch.from_numpy(rows)]
            choices = mask.sum(dim=-1).double().cpu().numpy()
        parts = [self._of_head(head, rows, choices[head]) for head in range(h)]
        return {name: np.array([part[name] for part in parts]) for name in STATISTICS}

    def _of_head(self, head: int, rows: np.ndarray, choices: np.ndarray) -> dict[str, float]:
        w = np.maximum(self.maps[head, rows], 0).astype(np.float64)
        i = rows + self.shape[2] - self.shape[1]
        offset = np.arange(self.shape[2]) - i[:, None]
        entropy = -(w * np.log(np.where(w > 0, w, 1))).sum(axis=-1)
        counts = w.sum(axis=-1) > 0

        def mean(value: np.ndarray, where: np.ndarray | bool = True) -> float:
            kept = value[counts & where]
            return float(kept.mean()) if kept.size else float("nan")

        def share(by: int) -> float:
            hit = offset == by
            return mean((w * hit).sum(axis=-1), hit.any(axis=-1))

        several = choices > 1
        return {
            "entropy": mean(entropy),
            "normalised_entropy": mean(entropy / np.log(np.maximum(choices, 2)), several),
            "distance": mean((w * np.abs(offset)).sum(axis=-1)),
            "previous": share(-1),
            "next": share(1),
            "same": share(0),
            "first": mean(w[:, 0]),
        }


def _rounded(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None


STATISTICS = (
    "entropy",
    "normalised_entropy",
    "distance",
    "previous",
    "next",
    "same",
    "first",
)
SOMETIMES = ("sink", "negative")
"""Statistics that a layer has only where its weights do not sum to one, or are negative."""
ROUNDED = 0.01
"""How far the weights of a row may sum from one by rounding, half precisions included."""
_FREE = ("entropy", "normalised_entropy", "first")


def layers_of(source: Any, batch: int = 0) -> Iterator[Layer]:
    """The layers of a source, one at a time (large maps are freed as soon as they are encoded)."""
    batch = check_integer("`batch`", batch)
    if isinstance(source, Mixing):
        source = [source]
    calls = calls_of(source)
    if calls is not None:
        yield from _recorded(calls, batch)
    elif _all(source, Mixing):
        yield from (_mixed(at, mixing, batch) for at, mixing in enumerate(source))
    else:
        yield from _arrays(source, batch)


def calls_of(source: Any) -> list[Call] | None:
    """The attention calls of a source, side by side as `layer_names.order` has them, or None where
    it has none with names (arrays, mixing matrices)."""
    if isinstance(source, Attention):
        source = [source]
    if isinstance(source, Seen) or _all(source, Attention | Decoded | Windowed):
        if not source:
            raise ValueError("the recording is empty: no attention call was seen inside the block")
        calls = decoded(source)
    elif has_attentions(source):
        calls = _hugging_face(source)
    elif has_patterns(source):
        calls = _patterns(source)
    else:
        return None
    return [calls[at] for at in order([call.name for call in calls])]


def outline(source: Any) -> list[Outline]:
    """Name and lengths of every layer that has a name, before any weights are computed."""
    calls = calls_of(source) or []
    return [Outline(call.name, *call.shape[2:]) for call in calls]


def has_attentions(source: Any) -> bool:
    """Whether it is the outputs of a Hugging Face model (which are a mapping, too)."""
    return any(hasattr(source, name) for name in _HUGGING_FACE)


def has_patterns(source: Any) -> bool:
    """Whether it is a cache as TransformerLens has it: a mapping from hooks to tensors."""
    return any(isinstance(key, str) and _PATTERN.search(key) for key in _keys(source))


def is_cache(source: Any) -> bool:
    """Whether its keys are hooks, attention patterns or others."""
    return any(isinstance(key, str) and "hook_" in key for key in _keys(source))


def _keys(source: Any) -> list[Any]:
    is_mapping = isinstance(source, Mapping) or (
        hasattr(source, "keys") and hasattr(source, "__getitem__")
    )
    return list(source.keys()) if is_mapping and not isinstance(source, type) else []


def cells(source: Any) -> int:
    """How many weights one row of the batch holds, computed from the shapes alone."""
    return sum(h * n * m for h, n, m in shapes(source))


def shapes(source: Any) -> list[tuple[int, ...]]:
    """(h, n, m) of each layer of a source, as far as it says them."""
    if isinstance(source, Mixing):
        source = [source]
    calls = calls_of(source)
    if calls is not None:
        return [call.shape[-3:] for call in calls]
    if isinstance(source, Tensor | np.ndarray):
        source = list(source) if source.ndim == 4 else [source]
    found = (
        layer.matrix.shape if isinstance(layer, Mixing) else getattr(layer, "shape", None)
        for layer in (source if isinstance(source, Sequence) else ())
    )
    return [(1, 1, 1, *shape)[-3:] for shape in found if shape is not None]


def _all(source: Any, kind: Any) -> bool:
    return (
        isinstance(source, Sequence) and bool(source) and all(isinstance(x, kind) for x in source)
    )


def _recorded(calls: Sequence[Call], batch: int) -> Iterator[Layer]:
    for call, title in zip(calls, titles([call.name for call in calls]), strict=True):
        row = _row(call.shape[0], batch, call.name)
        norms = None
        if call.values is not None:
            norms = call.values.detach()[row].float().norm(dim=-1)
            norms = norms.repeat_interleave(call.shape[1] // norms.shape[0], dim=0).cpu().numpy()
        mask = call.mask
        if mask is not None:
            mask = mask[row : row + 1] if mask.shape[0] > 1 else mask
        layer = _layer(call.name, call.weights[row], norms, mask)
        layer.title = title
        layer.record, layer.row = held(call) if isinstance(call, Attention) else None, row
        yield layer


def _mixed(at: int, mixing: Mixing, batch: int) -> Layer:
    matrix = mixing.matrix[_row(mixing.matrix.shape[0], batch, "the mixing matrix")]
    name = f"layer {at} ({mixing.how})"
    return _layer(name, matrix if matrix.dim() == 3 else matrix[None])


def _hugging_face(outputs: Any) -> list[Call]:
    found: list[Call] = []
    for kind in _HUGGING_FACE:
        maps = getattr(outputs, kind, None)
        if maps is None:
            continue
        title = {"attentions": "layer", "cross_attentions": "cross"}.get(kind, kind[:7])
        if any(isinstance(weights, tuple | list) for weights in maps):
            found += _generated(title, maps, outputs)
            continue
        for at, weights in enumerate(maps):
            if weights is None:
                raise ValueError(_NOT_COMPUTED)
            found.append(Weights(f"{title}.{at}", weights))
    if not found:
        raise ValueError(_NOT_COMPUTED)
    return decoded(found)


def _generated(title: str, steps: Any, outputs: Any) -> list[Call]:
    """The calls of ``generate``, which holds a tuple of layers for each token."""
    if getattr(outputs, "beam_indices", None) is not None:
        raise ValueError(
            "these outputs come from beam search, whose rows change places from token to token, so "
            "their maps cannot be put together; generate with num_beams=1, or call the model once "
            "on the finished sequence inside attnlab.watch"
        )
    if any(weights is None for step in steps for weights in step):
        raise ValueError(_NOT_COMPUTED)
    return [
        Weights(f"{title}.{at}" + (f"#{number + 1}" if number else ""), weights)
        for number, step in enumerate(steps)
        for at, weights in enumerate(step)
    ]


_NOT_COMPUTED = (
    "these outputs hold no attention weights: the model used a fused kernel. Either call it inside "
    "`with attnlab.watch(model) as seen:` and give `seen`, or load it with "
    'attn_implementation="eager" and call it with output_attentions=True'
)


def _patterns(cache: Any) -> list[Call]:
    """The weights of each `hook_pattern` of a cache, and the values of the `hook_v` beside it."""
    found: list[Call] = []
    for key in _keys(cache):
        name = _PATTERN.sub("", key) if isinstance(key, str) else key
        if name == key:
            continue
        weights, values = cache[key], None
        if f"{name}.hook_v" in _keys(cache):
            values = cache[f"{name}.hook_v"]  # (b, m, g, e), without b where it was removed
            values = values.transpose(-2, -3) if isinstance(values, Tensor) else None
        weights = _numbers(weights)
        if weights.dim() == 3:
            weights, values = weights[None], None if values is None else values[None]
        if weights.dim() != 4:
            raise ValueError(
                f"{key!r} should hold a tensor (b, heads, n, m), got the shape "
                f"{tuple(weights.shape)}"
            )
        found.append(Weights(name, weights, values))
    return found


def _arrays(source: Any, batch: int) -> Iterator[Layer]:
    layers = _listed(source)
    for at, value in enumerate(layers):
        maps = _numbers(value)
        if maps.dim() == 4:
            maps = maps[_row(maps.shape[0], batch, f"layer {at}")]
        elif batch:
            raise ValueError(f"`batch` is {batch}, but layer {at} (heads, n, m) has no batch axis")
        maps = maps[None] if maps.dim() == 2 else maps
        if maps.dim() != 3:
            raise ValueError(
                "`source` should be an array (n, m), (heads, n, m) or (layers, heads, n, m), or a "
                f"list of them, one per layer; layer {at} has the shape {tuple(maps.shape)}"
            )
        layer = _layer(f"layer.{at}", maps)
        layer.named = False
        yield layer


def _numbers(value: Any) -> Tensor:
    if isinstance(value, Tensor) and (value.is_meta or value.layout != torch.strided):
        raise TypeError(
            "`source` should hold dense tensors with values, got one of layout "
            f"{value.layout} on {value.device}"
        )
    found = value if isinstance(value, Tensor) else np.asarray(value)
    kind = str(found.dtype)
    if "complex" in kind or (isinstance(found, np.ndarray) and found.dtype.kind not in "biuf"):
        raise TypeError(f"`source` should hold real numbers, got {kind.replace('<U', 'str of ')}")
    return found if isinstance(found, Tensor) else torch.as_tensor(found)


def _listed(source: Any) -> list[Any]:
    if isinstance(source, Tensor | np.ndarray):
        if source.ndim not in (2, 3, 4):
            raise ValueError(
                "`source` should have the axes (n, m), (heads, n, m) or (layers, heads, n, m), got "
                f"the shape {tuple(source.shape)}"
            )
        layers = list(source) if source.ndim == 4 else [source]
    elif isinstance(source, Sequence) and not isinstance(source, str | bytes):
        layers = list(source)
    elif is_cache(source):
        raise ValueError(
            "this cache holds no attention weights, which are under `blocks.0.attn.hook_pattern` "
            "and so on: run the model with a `names_filter` that keeps them"
        )
    else:
        raise TypeError(
            "`source` should be a recording of attnlab.watch, the outputs of a Hugging Face model, "
            "an ActivationCache of TransformerLens, or an array (layers, heads, n, m), got "
            f"{type(source).__name__}"
        )
    if not layers:
        raise ValueError("`source` holds no layer")
    return layers


def _row(size: int, batch: int, what: str) -> int:
    if not 0 <= batch < size:
        raise ValueError(
            f"`batch` should be from 0 to {size - 1} ({what} has {size} rows), got {batch}"
        )
    return batch


def _layer(
    name: str, maps: Tensor, norms: np.ndarray | None = None, mask: Tensor | None = None
) -> Layer:
    values = np.ascontiguousarray(maps.detach().to(torch.float32).cpu().numpy())
    if values.size == 0:
        raise ValueError(f"layer {name!r} is empty: its maps have the shape {values.shape}")
    broken = np.isnan(values).any(axis=-1)
    if broken.any():
        values = np.where(broken[..., None], np.float32(0), values)
    if not np.isfinite(values).all():
        raise ValueError(f"layer {name!r} holds infinite weights")
    return Layer(name, values, norms, mask, int(broken.sum()))
