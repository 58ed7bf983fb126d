"""A trained model after pruning and rounding: which numbers are left, their bytes, what is right.

    how = Settings(cut="all weights", kept=0.3, bits=4)
    smaller = compressed(model, how)
    size_of(model, how), right_answers(smaller, inputs, labels).mean()

Everything is done by the pages of ``attnlab.compression``; heads go in the order of their
importance. What has been cut stays zero in matrices of the same size, so that they can be compared
entry by entry.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.compression import head_importance
from attnlab.compression.levels import UNCHANGED, Levels, Per
from attnlab.compression.magnitude_pruning import MagnitudePruning
from attnlab.compression.matrices import count, linear_layers, mask_on, without_masks
from attnlab.compression.quantization import Quantization
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.compression.units import Units, units_of
from attnlab.core.modes import mode
from attnlab.core.options import Options, check_share

Cut = Literal["all weights", "each matrix", "hidden units", "heads"]
CUTS: tuple[Cut, ...] = ("all weights", "each matrix", "hidden units", "heads")
Head = tuple[int, int]
Z = 1.96  # standard errors of an interval of 95 %
_SCALE = 5  # bytes of a scale of four and a zero point of one


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """cut: what goes: the smallest of "all weights" together, the smallest of "each matrix", the
    "hidden units" of the smallest norms of each layer, or the "heads" of the smallest importance.
    kept: the share of them that is left. bits, per: of what is left, as ``Levels``."""

    cut: Cut = "all weights"
    kept: float = 1.0
    bits: int = UNCHANGED
    per: Per = "tensor"

    def check(self) -> None:
        check_share("kept", self.kept)
        Levels(bits=self.bits)


def cuts_of(model: nn.Module) -> list[Cut]:
    """What can be cut of a model: weights of linear layers always, hidden units and heads where it
    has them.

    Raises TypeError for what is no module, ValueError for one without linear layers, and for
    weights that are NaN.
    """
    linear_layers(model)
    kinds = {place.kind for place in units_of(model)}
    found: list[Cut] = ["all weights", "each matrix"]
    found += ["hidden units"] if "hidden" in kinds else []
    return found + (["heads"] if "heads" in kinds else [])


def pruned(model: nn.Module, how: Settings, order: Sequence[Head] = ()) -> nn.Module:
    """A copy with masks on what is cut. ``order`` are the heads, the least important first."""
    if how.cut in ("all weights", "each matrix"):
        scope: Any = "global" if how.cut == "all weights" else "local"
        return MagnitudePruning(how.kept, scope)(model)
    if how.cut == "hidden units":
        return StructuredPruning(how.kept, "hidden")(model)
    gone = list(order[: len(order) - count(len(order), how.kept)])
    return StructuredPruning(units="heads", cut=gone)(model)


def compressed(model: nn.Module, how: Settings, order: Sequence[Head] = ()) -> nn.Module:
    """A copy, called as the model is: what is cut is zero, and what is left is rounded."""
    smaller = without_masks(pruned(model, how, order))
    return Quantization(Levels(bits=how.bits, per=how.per))(smaller)


def size_of(model: nn.Module, how: Settings, order: Sequence[Head] = ()) -> int:
    """The bytes of all numbers of the compressed model, stored as they need to be.

    Of a matrix the numbers that are left with their bits, and for each scale its four bytes and one
    of the zero point. Where single weights are cut, a bit for each weight says which; where units
    are, a bit for each of them in every matrix. All other numbers take four bytes.
    """
    smaller = pruned(model, how, order)
    return size_of_masks(smaller, how)


def size_of_masks(smaller: nn.Module, how: Settings) -> int:
    """``size_of`` for a model with masks."""
    units = how.cut in ("hidden units", "heads")
    total = numbers = 0
    seen: set[int] = set()
    matrices: list[Any] = [x for x in smaller.modules() if isinstance(x, nn.Linear | nn.Embedding)]
    for layer in matrices:
        mask = mask_on(layer)
        W = layer.weight if mask is None else layer.parametrizations.weight.original
        if id(W) in seen:
            continue
        seen.add(id(W))
        numbers += W.numel()
        left = W.numel() if mask is None else int(mask.mask.sum())
        total += math.ceil(left * how.bits / 8)
        if how.bits != UNCHANGED:
            rows = int(mask.mask.any(1).sum()) if units and mask is not None else len(W)
            total += _SCALE * (rows if how.per == "channel" else 1)
        if mask is not None and not units:
            total += math.ceil(W.numel() / 8)
        bias = mask_on(layer, "bias")
        total -= 0 if bias is None else 4 * int((~bias.mask).sum())
    places = [place for place in units_of(smaller) if not place.left().all()] if units else []
    total += sum(math.ceil(p.count * part.width / 8) for p in places for part in p.parts)
    return total + 4 * (sum(p.numel() for p in smaller.parameters()) - numbers)


def units_by_name(model: nn.Module) -> list[tuple[str, str, list[tuple[str, int, int]]]]:
    """The places of hidden units and of heads: their kind, their name, and of each matrix that they
    own rows (axis 0) or columns (axis 1) of, its name, the axis, and how many a unit has."""
    names = {id(layer): name for name, layer in model.named_modules()}

    def parts(place: Units) -> list[tuple[str, int, int]]:
        return [(names[id(part.layer)], part.axis, part.width) for part in place.parts]

    return [(place.kind, place.name, parts(place)) for place in units_of(model)]


# ---- what is right


@torch.no_grad()
def right_answers(model: nn.Module, inputs: Tensor, labels: Tensor, at_once: int = 256) -> Tensor:
    """The share of right answers of each row, (b,): 0 or 1 where a row has one label."""
    with mode(model, training=False):
        found = [
            (model(x).argmax(-1) == y).double()
            for x, y in zip(inputs.split(at_once), labels.split(at_once), strict=True)
        ]
    right = torch.cat(found)
    return right if right.dim() == 1 else right.mean(1)


def interval(right: int, n: int) -> tuple[float, float]:
    """Wilson's interval of 95 % of a share: where a true share may lie of which n independent
    answers have so many right."""
    share, spread = right / n, Z * Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def half_width(right: Tensor) -> float:
    """Half of the interval of 95 % of a mean over rows (b,): 1.96 standard errors."""
    return Z * float(right.double().std()) / math.sqrt(len(right))


def importance_order(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Head]:
    """All heads as (layer, head), the least important for these answers first."""
    with mode(model, training=False):
        found = head_importance.importance(model, [_Rows(inputs, labels)], _summed)
    return head_importance.order(found)


@dataclass(frozen=True)
class _Rows:
    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


def _summed(model: Any, batch: Any, _: object) -> tuple[Tensor, int]:
    logits = model(batch.inputs).float()
    loss = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), reduction="sum")
    return loss, batch.targets.numel()


# ---- maps


def maps_of(model: nn.Module, x: Tensor, watch: Any) -> list[Tensor]:
    """The attention weights of each layer for one input, (h, n, n); ``watch`` is
    ``attnlab.watch``."""
    with mode(model, training=False), torch.no_grad(), watch(model) as seen:
        model(x)
        return [call.weights[0].float().cpu() for call in seen]


def tensors_of(model: nn.Module) -> Mapping[str, Tensor]:
    """Name → numbers of every parameter, each once."""
    return {name: p.detach().cpu() for name, p in model.named_parameters()}
