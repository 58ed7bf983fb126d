"""The sources that AttentionView takes, converted to one form: layers of maps with their tokens.

A source is a recording of ``attnlab.watch`` (``Seen``, a list of ``Attention`` or a single one),
the outputs of a Hugging Face model, mixing matrices of ``attnlab.lens.mixing``, or arrays: one
(layers, heads, n, m), or a list with one (heads, n, m) or (b, heads, n, m) per layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.lens.heads import head_statistics
from attnlab.lens.mixing import Mixing
from attnlab.lens.record import Attention, Seen
from attnlab.lens.sides import kind_of
from attnlab_widgets.vectors import Held, held

_HUGGING_FACE = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
MANY = 1024
"""With more queries, the statistics are those of so many rows, evenly spread."""


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
    """ "self", "cross" or "encoder"; see `Tokens.settle`."""
    named: bool = True
    """Whether the name comes from a model, so that it can be interpreted."""
    record: Held | None = None
    """The way to the queries, keys and values, in row ``row`` of the batch."""
    row: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        h, n, m = self.maps.shape
        return h, n, m

    def statistics(self) -> dict[str, list[float | None]]:
        """``head_statistics``, rounded; those of positions only where queries are keys."""
        _, n, m = self.shape
        if n > MANY:
            found = self._sampled(np.linspace(0, n - 1, MANY).round().astype(int))
        else:
            weights = torch.from_numpy(self.maps[None]).clamp_min(0)
            found = vars(head_statistics(weights, mask=self.mask))
        names = _FREE if self.kind == "cross" or n > m else STATISTICS
        return {name: [_rounded(value) for value in found[name]] for name in names}

    def _sampled(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The same from a sample of the rows; all of a long input take seconds per head."""
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
_FREE = ("entropy", "normalised_entropy", "first")


@dataclass
class Tokens:
    """The token lists of a view, and which layer reads which."""

    queries: list[Any] | None
    source: list[Any] | None
    sets: list[list[Any]] = field(default_factory=list)
    read: bool = False
    """Whether a layer has read the source."""

    def settle(self, layer: Layer) -> None:
        """The tokens that the layer reads: by its name or, if that is unclear, by the lengths."""
        if layer.kind is None:
            own, source = (None if x is None else len(x) for x in (self.queries, self.source))
            _, n, m = layer.shape
            layer.kind = kind_of(layer.name, n, m, own, source, named=layer.named)

    def place(self, layer: Layer) -> dict[str, dict[str, int]]:
        """Which list (``set``) and from which token on (``start``) queries and keys are named."""
        self.settle(layer)
        _, n, m = layer.shape
        queries, keys = self._lists(layer)
        # In a decoding step the queries are the last positions.
        decoding = queries is keys and queries is not None and n < m <= len(queries)
        start = m - n if decoding else 0
        self._fit(layer, "queries", queries, start + n)
        self._fit(layer, "keys", keys, m)
        q = self._set(queries, n, "query")
        return {
            "q": {"set": q, "start": start},
            "k": {"set": self._set(keys, m, "key"), "start": 0},
        }

    def _lists(self, layer: Layer) -> tuple[list[Any] | None, list[Any] | None]:
        if self.source is None or layer.kind == "self":
            return self.queries, self.queries
        self.read = True
        if layer.kind == "encoder":
            return self.source, self.source
        return self.queries, self.source

    def all_read(self) -> None:
        """Refuse a source that no layer has read."""
        if self.source is not None and not self.read:
            raise ValueError(
                "no layer reads `source_tokens`: queries and keys are the same text in all of "
                "them; leave them out"
            )

    def _fit(self, layer: Layer, what: str, tokens: list[Any] | None, count: int) -> None:
        if tokens is None or len(tokens) == count or (len(tokens) > count and "#" in layer.name):
            return
        given = "source_tokens" if tokens is self.source else "tokens"
        raise ValueError(
            f"layer {layer.name!r} has {count} {what}, but `{given}` holds {len(tokens)} tokens; "
            + self._advice(layer, what)
        )

    def _advice(self, layer: Layer, what: str) -> str:
        _, n, m = layer.shape
        if self.source is None and n != m:
            where = "if queries and keys are different texts, "
            return where + "give the keys' tokens as `source_tokens`"
        if n != m and (len(self.queries or ()), len(self.source or ())) == (m, n):
            return "the two are the other way round: `tokens` are those of the queries"
        return f"give one for each of the {what}"

    def _set(self, tokens: list[Any] | None, count: int, what: str) -> int:
        found = [str(i) for i in range(count)] if tokens is None else tokens
        for at, known in enumerate(self.sets):
            if known is found or known == found:
                return at
        self.sets.append(found)
        return len(self.sets) - 1


def layers_of(source: Any, batch: int = 0) -> Iterator[Layer]:
    """The layers of a source, one at a time (large maps are freed as soon as they are encoded)."""
    batch = check_integer("`batch`", batch)
    if isinstance(source, Attention | Mixing):
        source = [source]
    if isinstance(source, Seen) or _all(source, Attention):
        yield from _recorded(source, batch)
    elif _all(source, Mixing):
        yield from (_mixed(at, mixing, batch) for at, mixing in enumerate(source))
    elif has_attentions(source):
        yield from _hugging_face(source, batch)
    else:
        yield from _arrays(source, batch)


def has_attentions(source: Any) -> bool:
    """Whether it is the outputs of a Hugging Face model (which are a mapping, too)."""
    return any(hasattr(source, name) for name in _HUGGING_FACE)


def cells(source: Any) -> int:
    """How many weights one row of the batch holds, computed from the shapes alone."""
    return sum(h * n * m for h, n, m in shapes(source))


def shapes(source: Any) -> list[tuple[int, ...]]:
    """(h, n, m) of each layer of a source, as far as it says them."""
    if isinstance(source, Attention | Mixing):
        source = [source]
    kinds = [getattr(source, name, None) or () for name in _HUGGING_FACE]
    layers = [layer for kind in kinds for layer in kind] or source
    found = (
        layer.matrix.shape if isinstance(layer, Mixing) else getattr(layer, "shape", None)
        for layer in (layers if isinstance(layers, Sequence | Tensor | np.ndarray) else ())
    )
    return [(1, 1, 1, *shape)[-3:] for shape in found if shape is not None]


def _all(source: Any, kind: type) -> bool:
    return (
        isinstance(source, Sequence) and bool(source) and all(isinstance(x, kind) for x in source)
    )


def _recorded(records: Sequence[Attention], batch: int) -> Iterator[Layer]:
    if not records:
        raise ValueError("the recording is empty: no attention call was seen inside the block")
    for record in records:
        row = _row(record.shape[0], batch, record.name)
        h = record.shape[1]
        norms = record.values.detach()[row].float().norm(dim=-1)
        norms = norms.repeat_interleave(h // norms.shape[0], dim=0)
        mask = record.mask
        if mask is not None:
            mask = mask[row : row + 1] if mask.shape[0] > 1 else mask
        layer = _layer(record.name, record.weights[row], norms.cpu().numpy(), mask)
        layer.record, layer.row = held(record), row
        yield layer


def _mixed(at: int, mixing: Mixing, batch: int) -> Layer:
    matrix = mixing.matrix[_row(mixing.matrix.shape[0], batch, "the mixing matrix")]
    name = f"layer {at} ({mixing.how})"
    return _layer(name, matrix if matrix.dim() == 3 else matrix[None])


def _hugging_face(outputs: Any, batch: int) -> Iterator[Layer]:
    found = False
    for kind in _HUGGING_FACE:
        maps = getattr(outputs, kind, None)
        if maps is None:
            continue
        title = {"attentions": "layer", "cross_attentions": "cross"}.get(kind, kind[:7])
        for at, weights in enumerate(maps):
            if isinstance(weights, tuple | list):
                raise TypeError(
                    f"`{kind}` holds one tuple per generated token; give the outputs of one "
                    "forward call, or a recording of attnlab.watch"
                )
            if weights is None:
                raise ValueError(_NOT_COMPUTED)
            found = True
            yield _layer(f"{title}.{at}", weights[_row(weights.shape[0], batch, kind)])
    if not found:
        raise ValueError(_NOT_COMPUTED)


_NOT_COMPUTED = (
    "these outputs hold no attention weights: the model used a fused kernel. Either call it inside "
    "`with attnlab.watch(model) as seen:` and give `seen`, or load it with "
    'attn_implementation="eager" and call it with output_attentions=True'
)


def _arrays(source: Any, batch: int) -> Iterator[Layer]:
    layers = _listed(source)
    for at, value in enumerate(layers):
        maps = _numbers(value)
        if maps.dim() == 4:
            maps = maps[_row(maps.shape[0], batch, f"layer {at}")]
        elif batch:
            raise ValueError(f"`batch` is {batch}, but layer {at} (heads, n, m) has no batch axis")
        if maps.dim() != 3:
            raise ValueError(
                "`source` must be an array (layers, heads, n, m) or a list of (heads, n, m) per "
                f"layer; layer {at} has the shape {tuple(maps.shape)}"
            )
        layer = _layer(f"layer.{at}", maps)
        layer.named = False
        yield layer


def _numbers(value: Any) -> Tensor:
    if isinstance(value, Tensor) and (value.is_meta or value.layout != torch.strided):
        raise TypeError(
            "`source` must hold dense tensors with values, got one of layout "
            f"{value.layout} on {value.device}"
        )
    found = value if isinstance(value, Tensor) else np.asarray(value)
    kind = str(found.dtype)
    if "complex" in kind or (isinstance(found, np.ndarray) and found.dtype.kind not in "biuf"):
        raise TypeError(f"`source` must hold real numbers, got {kind.replace('<U', 'str of ')}")
    return found if isinstance(found, Tensor) else torch.as_tensor(found)


def _listed(source: Any) -> list[Any]:
    if isinstance(source, Tensor | np.ndarray):
        if source.ndim != 4:
            raise ValueError(
                f"`source` must have the axes (layers, heads, n, m), got the shape "
                f"{tuple(source.shape)}"
            )
        layers = list(source)
    elif isinstance(source, Sequence) and not isinstance(source, str | bytes):
        layers = list(source)
    else:
        raise TypeError(
            "`source` must be a recording of attnlab.watch, the outputs of a Hugging Face model, "
            f"or an array (layers, heads, n, m); got {type(source).__name__}"
        )
    if not layers:
        raise ValueError("`source` holds no layer")
    return layers


def _row(size: int, batch: int, what: str) -> int:
    if not 0 <= batch < size:
        raise ValueError(
            f"`batch` must be from 0 to {size - 1} ({what} has {size} rows), got {batch}"
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
