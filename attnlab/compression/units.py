"""Which rows and columns of a module belong together: a hidden unit, or a head.

A hidden unit is what one linear layer writes, an elementwise curve changes and the next reads: row
j of the first matrices, with its bias, and column j of the last. A head is its rows of the query,
key and value projections and its columns of the output projection. Query heads that share keys and
values are one unit, as a layer of heads keeps equally many for each of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.compression.matrices import mask_on, put_mask
from attnlab.core.heads import Heads
from attnlab.core.positions import DistanceBias

CURVES = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Identity)
"""What may stand between two linear layers of an ``nn.Sequential``."""


@dataclass(frozen=True, eq=False)
class Part:
    """What units own of one matrix: ``width`` rows (axis 0) or columns (axis 1) each."""

    layer: nn.Linear
    axis: int
    width: int

    def by_unit(self, x: Tensor) -> Tensor:
        """(units, width, …) of the matrix, or of the bias of its rows."""
        return x.movedim(self.axis if x.dim() > 1 else 0, 0).unflatten(0, (-1, self.width))

    def spread(self, kept: Tensor) -> Tensor:
        """Which rows or columns are left, of which units are."""
        return kept.repeat_interleave(self.width)


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one place of a module.

    ``name``   of the module they stand in; ``kind``, "hidden" or "heads"
    ``parts``  what they own of each matrix
    ``heads``  the layer of heads, whose numbers change when some are removed
    ``together``  how many query heads a unit has
    ``stuck``  why none can be removed, though they can be masked; empty where they can
    """

    name: str
    kind: str
    parts: tuple[Part, ...]
    heads: Heads | None = None
    together: int = 1
    stuck: str = ""

    @property
    def count(self) -> int:
        first = self.parts[0]
        return int(first.layer.weight.shape[first.axis]) // first.width

    def squares(self) -> Tensor:
        """(units,) the sum of the squares of all that each owns."""
        owned = [part.by_unit(part.layer.weight.detach()).flatten(1) for part in self.parts]
        return torch.stack([each.double().square().sum(1) for each in owned]).sum(0)

    def mask(self, kept: Tensor) -> None:
        """Masks the units that are not kept, with their biases."""
        for part in self.parts:
            rows = part.spread(kept)
            W = part.layer.weight
            put_mask(part.layer, (rows if part.axis else rows[:, None]).expand(W.shape).clone())
            if part.axis == 0 and part.layer.bias is not None:
                put_mask(part.layer, rows, "bias")

    def left(self) -> Tensor:
        """(units,) True at the units that their masks have left."""
        masks = [(part, mask_on(part.layer)) for part in self.parts]
        home = self.parts[0].layer.weight.device
        found = torch.ones(self.count, dtype=torch.bool, device=home)
        for part, mask in masks:
            if mask is not None:
                found &= part.by_unit(mask.mask).flatten(1).any(1)
        return found


def units_of(module: nn.Module) -> list[Units]:
    """All units of a module, in the order in which it names its parts."""
    found = []
    for name, part in module.named_modules():
        if isinstance(part, nn.Sequential):
            found += list(_between(name, part))
        elif _is_feed(part):
            found.append(_hidden(name, part))
        elif isinstance(heads := getattr(part, "heads", None), Heads) and heads.values_called:
            found.append(_of_heads(name, part))
    return found


def _is_linear(layer: object) -> bool:
    return type(layer) is nn.Linear or (isinstance(layer, nn.Linear) and mask_on(layer) is not None)


def _between(name: str, module: nn.Sequential) -> Iterator[Units]:
    before: Any = None
    layer: Any
    for layer in module:
        if _is_linear(layer):
            if before is not None and before is not layer:
                yield Units(name, "hidden", (Part(before, 0, 1), Part(layer, 1, 1)))
            before = layer
        elif not isinstance(layer, CURVES):
            before = None


def _is_feed(part: Any) -> bool:
    return _is_linear(getattr(part, "expand", None)) and _is_linear(getattr(part, "contract", None))


def _hidden(name: str, feed: Any) -> Units:
    reads = [feed.expand, *([feed.opens] if _is_linear(getattr(feed, "opens", None)) else [])]
    return Units(
        name, "hidden", (*(Part(layer, 0, 1) for layer in reads), Part(feed.contract, 1, 1))
    )


PROJECTIONS = ("query", "key", "value", "output")


def _of_heads(name: str, attention: Any) -> Units:
    heads: Heads = attention.heads
    share = heads.heads // heads.kv_heads
    d, e = heads.head_dim, heads.value_dim
    parts = [Part(heads.value, 0, e), Part(heads.output, 1, share * e)]
    if hasattr(heads, "query"):
        q, k = _rows(heads.query, heads.heads, d), _rows(heads.key, heads.kv_heads, d)
        parts = [Part(heads.query, 0, share * q), Part(heads.key, 0, k), *parts]
    return Units(name, "heads", tuple(parts), heads, share, _stuck(attention))


def _rows(layer: nn.Module, heads: int, d: int) -> int:
    """How many rows each head has, which may have more than one query, or key, of width d."""
    return layer.out_features // heads if isinstance(layer, nn.Linear) else d


def _stuck(attention: nn.Module) -> str:
    heads: Any = attention.heads
    if isinstance(heads.positions, DistanceBias):
        return f"its {type(heads.positions).__name__} has something for each head"
    projections = [getattr(heads, name) for name in PROJECTIONS if hasattr(heads, name)]
    own = {id(p) for part in projections for p in (*part.parameters(), *part.buffers())}
    others = [n for n, p in attention.named_parameters() if id(p) not in own]
    others += [n for n, p in attention.named_buffers() if id(p) not in own]
    return f"it has more than its projections: {', '.join(others[:3])}" if others else ""


def shrink(units: Units, kept: Tensor) -> None:
    """Removes all units but these from matrices without masks, which get smaller."""
    for part in units.parts:
        layer, rows = part.layer, part.spread(kept).nonzero()[:, 0]
        layer.weight = nn.Parameter(layer.weight.detach().index_select(part.axis, rows))
        if part.axis == 0:
            layer.out_features = len(rows)
            if layer.bias is not None:
                layer.bias = nn.Parameter(layer.bias.detach()[rows])
        else:
            layer.in_features = len(rows)
    if units.heads is not None:
        left = int(kept.sum())
        units.heads.heads, units.heads.kv_heads = left * units.together, left
