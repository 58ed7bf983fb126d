"""How scaling, adding and masking change scores."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.lens.axes import Layout, aligned, size
from attnlab.lens.snapshots import BLOCKED, History, Snapshot
from attnlab.lens.trace.meanings import Arguments, Scores

POINTWISE = {
    "tanh", "clamp", "clip", "clamp_min", "clamp_max", "sigmoid", "relu", "softplus", "nan_to_num",
    "exp", "log", "square", "pow", "abs", "neg", "maximum", "minimum", "max", "min", "setitem",
    "dropout", "alpha_dropout",
}  # fmt: skip
"""Elementwise functions of the scores other than scaling, adding and masking."""


def _second(args: tuple[Any, ...], kwargs: dict[str, Any], first: int) -> Any:
    return args[1 - first] if len(args) > 1 else kwargs.get("other")


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return float(value.detach())
    return None


def _snapshot(value: Tensor, layout: Layout) -> Snapshot | None:
    if value.dim() > len(layout):
        return None
    tail = layout[len(layout) - value.dim() :]
    fits = all(n in (1, size(axes)) for n, axes in zip(value.shape, tail, strict=True))
    return Snapshot(value, aligned(value.shape, layout)) if fits else None


def add(history: History, value: Any, by: float, layout: Layout) -> bool:
    number = _number(value)
    if number is not None and math.isfinite(number):
        return True  # a constant shift does not change the softmax
    snapshot = _snapshot(value, layout) if isinstance(value, Tensor) else None
    if snapshot is not None:
        history.addends.append((snapshot, float(by)))
    return snapshot is not None


def _mul(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    return _multiply(history, layout, _second(args, kwargs, first), inverse=False)


def _div(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    if first == 1 or kwargs.get("rounding_mode"):
        return False
    return _multiply(history, layout, _second(args, kwargs, first), inverse=True)


def _multiply(history: History, layout: Layout, other: Any, inverse: bool) -> bool:
    number = _number(other)
    if number:
        history.times(1 / number if inverse else number)
        return True
    snapshot = (
        _snapshot(other, layout) if isinstance(other, Tensor) and not history.addends else None
    )
    if snapshot is None:
        return False
    history.factors.append(
        Snapshot(snapshot.tensor.reciprocal(), snapshot.layout) if inverse else snapshot
    )
    return True


def _plus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    alpha = kwargs.get("alpha", 1)
    if first == 1 and alpha != 1:
        return False
    return add(history, _second(args, kwargs, first), alpha, layout)


def _minus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    alpha = kwargs.get("alpha", 1)
    if first == 0:
        return add(history, _second(args, kwargs, first), -alpha, layout)
    if alpha != 1:
        return False
    history.times(-1)
    return add(history, _second(args, kwargs, first), 1, layout)


def _reversed_minus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    history.times(-1)
    return add(history, _second(args, kwargs, first), 1, layout)


def _fill(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    mask = args[1] if len(args) > 1 else kwargs.get("mask")
    value = args[2] if len(args) > 2 else kwargs.get("value")
    return first == 0 and _block(history, mask, value, layout, allowed=False)


def _set(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    every = isinstance(args[1], Tensor) and args[1].dtype == torch.bool
    same = every and args[1].dim() == len(layout)
    return same and _block(history, args[1], args[2], layout, allowed=False)


def _where(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    """torch.where(condition, x, y) and x.where(condition, y)."""
    if len(args) < 3:
        args = (*args, kwargs.get("other"))
    method = isinstance(args[1], Tensor) and args[1].dtype == torch.bool and first != 1
    condition = args[1] if method else args[0]
    position = {0: 0, 2: 2}[first] if method else first
    other = args[2] if (position == 0 if method else position == 1) else args[0 if method else 1]
    kept_where = (first == 0) if method else (first == 1)
    return _block(history, condition, other, layout, allowed=kept_where)


def _block(history: History, mask: Any, value: Any, layout: Layout, allowed: bool) -> bool:
    """Scores are replaced by ``value`` where ``mask`` is not ``allowed``."""
    number = _number(value)
    snapshot = _snapshot(mask, layout) if isinstance(mask, Tensor) else None
    if number is None or number > BLOCKED or snapshot is None:
        return False
    history.masks.append(
        (snapshot if mask.dtype == torch.bool else Snapshot(mask != 0, snapshot.layout), allowed)
    )
    return True


def _floor(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    """A lower bound at which weights are zero anyway changes nothing."""
    low = args[1 - first] if len(args) > 1 else kwargs.get("other", kwargs.get("min"))
    high = args[2] if len(args) > 2 else kwargs.get("max")
    number = _number(low)
    return high is None and number is not None and number <= BLOCKED


AFFINE: dict[str, Callable[..., bool]] = {
    "mul": _mul,
    "div": _div,
    "add": _plus,
    "sub": _minus,
    "rsub": _reversed_minus,
    "masked_fill": _fill,
    "setitem": _set,
    "where": _where,
    **dict.fromkeys(("max", "maximum", "clamp_min", "clamp", "clip"), _floor),
}
"""What scaling, adding and masking do to a history: (history, layout, which argument the scores
are, args, kwargs) → whether it is understood."""


def rescored(name: str, first: int, scores: Scores, call: Arguments, out: Tensor) -> Scores | None:
    """The scores after an elementwise function; None after any other function."""
    args, kwargs = call
    in_place = out is args[first]
    history = scores.history if in_place else scores.history.copy()
    rule = AFFINE.get(name)
    if rule is None or not rule(history, scores.layout, first, args, kwargs):
        if not in_place and name not in POINTWISE and rule is None:
            return None
        history.through.append(name)
    wide = scores.widened
    if wide is not None and any(snapshot.has([wide.axis]) for snapshot in history.snapshots()):
        return None  # masks and biases of other columns than the keys
    return Scores(scores.product, scores.layout, history, wide)
