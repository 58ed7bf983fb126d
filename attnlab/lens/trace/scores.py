"""What scaling, adding and masking do to scores."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.lens.axes import Layout, aligned, size
from attnlab.lens.held import BLOCKED, Held, History

POINTWISE = {
    "tanh", "clamp", "clip", "clamp_min", "clamp_max", "sigmoid", "relu", "softplus", "nan_to_num",
    "exp", "log", "square", "pow", "abs", "neg", "maximum", "minimum", "max", "min", "setitem",
}  # fmt: skip
"""Functions of the scores that are no scaling, adding or masking, but keep their places."""

AFFINE: dict[str, Callable[..., bool]] = {}
"""What scaling, adding and masking do to a history: (history, layout, which argument the scores
are, args, kwargs) → whether it is understood."""


def _affine(*names: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def enter(rule: Callable[..., bool]) -> Callable[..., bool]:
        AFFINE.update(dict.fromkeys(names, rule))
        return rule

    return enter


def rescored(
    name: str,
    first: int,
    history: History,
    layout: Layout,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    rule = AFFINE.get(name)
    return rule is not None and rule(history, layout, first, args, kwargs)


def _second(args: tuple[Any, ...], kwargs: dict[str, Any], first: int) -> Any:
    return args[1 - first] if len(args) > 1 else kwargs.get("other")


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return float(value.detach())
    return None


def _held(value: Tensor, layout: Layout) -> Held | None:
    if value.dim() > len(layout):
        return None
    tail = layout[len(layout) - value.dim() :]
    fits = all(n in (1, size(axes)) for n, axes in zip(value.shape, tail, strict=True))
    return Held(value, aligned(value.shape, layout)) if fits else None


def add(history: History, value: Any, by: float, layout: Layout) -> bool:
    number = _number(value)
    if number is not None and math.isfinite(number):
        return True  # the same shift everywhere: the softmax does not feel it
    held = _held(value, layout) if isinstance(value, Tensor) else None
    if held is not None:
        history.addends.append((held, float(by)))
    return held is not None


@_affine("mul")
def _mul(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    return _multiply(history, layout, _second(args, kwargs, first), inverse=False)


@_affine("div")
def _div(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    if first == 1 or kwargs.get("rounding_mode"):
        return False
    return _multiply(history, layout, _second(args, kwargs, first), inverse=True)


def _multiply(history: History, layout: Layout, other: Any, inverse: bool) -> bool:
    number = _number(other)
    if number:
        history.times(1 / number if inverse else number)
        return True
    held = _held(other, layout) if isinstance(other, Tensor) and not history.addends else None
    if held is None:
        return False
    history.factors.append(Held(held.tensor.reciprocal(), held.layout) if inverse else held)
    return True


@_affine("add")
def _plus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    alpha = kwargs.get("alpha", 1)
    if first == 1 and alpha != 1:
        return False
    return add(history, _second(args, kwargs, first), alpha, layout)


@_affine("sub")
def _minus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    alpha = kwargs.get("alpha", 1)
    if first == 0:
        return add(history, _second(args, kwargs, first), -alpha, layout)
    if alpha != 1:
        return False
    history.times(-1)
    return add(history, _second(args, kwargs, first), 1, layout)


@_affine("rsub")
def _from(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    history.times(-1)
    return add(history, _second(args, kwargs, first), 1, layout)


@_affine("masked_fill")
def _fill(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    mask = args[1] if len(args) > 1 else kwargs.get("mask")
    value = args[2] if len(args) > 2 else kwargs.get("value")
    return first == 0 and _block(history, mask, value, layout, allowed=False)


@_affine("setitem")
def _set(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    every = isinstance(args[1], Tensor) and args[1].dtype == torch.bool
    same = every and args[1].dim() == len(layout)
    return same and _block(history, args[1], args[2], layout, allowed=False)


@_affine("where")
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
    held = _held(mask, layout) if isinstance(mask, Tensor) else None
    if number is None or number > BLOCKED or held is None:
        return False
    history.masks.append(
        (held if mask.dtype == torch.bool else Held(mask != 0, held.layout), allowed)
    )
    return True


@_affine("max", "maximum", "clamp_min", "clamp", "clip")
def _floor(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    """A lower bound at which weights are zero anyway changes nothing."""
    low = args[1 - first] if len(args) > 1 else kwargs.get("other", kwargs.get("min"))
    high = args[2] if len(args) > 2 else kwargs.get("max")
    number = _number(low)
    return high is None and number is not None and number <= BLOCKED
