"""The meaning of a function's result, given that of its input; products and sums are elsewhere."""

import copy
from typing import Any

from torch import Tensor

from attnlab.lens.axes import Layout
from attnlab.lens.snapshots import Snapshot
from attnlab.lens.trace.meanings import Arguments, Mixed, Scores, Weights
from attnlab.lens.trace.scores import rescored
from attnlab.lens.trace.views import CASTS, moved, narrowed, only_new_axes
from attnlab.lens.trace.weights import SOFTMAX, heads_alone, softmax_of

DROPOUT = {"dropout", "alpha_dropout"}
CHANNELS = {"conv2d": 1, "linear": -1}
"""Functions that mix the entries of one dimension, and which dimension."""

POINTWISE_ON_RESULTS = {"add", "sub", "mul", "div", *DROPOUT}
"""What may be done to a result before its heads are merged: a relative term, a gate."""


def followed(
    name: str, func: Any, first: int, meaning: Any, call: Arguments, out: Tensor
) -> Any | None:
    """The meaning of ``out``, made by ``func`` of a tensor with ``meaning``; None if unknown.

    ``first`` is the position of that tensor among the arguments.
    """
    if name == "setitem" and first > 0 and not only_new_axes(call[0][1]):
        return None  # it was written to a part of another tensor
    layout = moved(name, func, meaning.layout, call, out)
    if layout is None and isinstance(meaning, Mixed) and name in POINTWISE_ON_RESULTS:
        layout = meaning.layout if out.shape == call[0][first].shape else None
    if layout is not None:
        return _moved_to(layout, name, meaning, out)
    if isinstance(meaning, Scores):
        return _from_scores(name, first, meaning, call, out)
    if isinstance(meaning, Weights):
        return _from_weights(name, func, meaning, call, call[0][first], out)
    return None


def _moved_to(layout: Layout, name: str, meaning: Any, out: Tensor) -> Any:
    new = copy.copy(meaning)
    new.layout = layout
    if isinstance(new, Weights) and name in CASTS:
        new.used = Snapshot(out, layout)
    return new


def _from_scores(
    name: str, first: int, scores: Scores, call: Arguments, out: Tensor
) -> Scores | Weights | None:
    args, kwargs = call
    if name in SOFTMAX:
        weights = softmax_of(scores, _dim(args, kwargs, out), Snapshot(out, scores.layout))
        if weights is not None:
            weights.logarithm = "log" in name
        return weights
    if tuple(out.shape) != tuple(args[first].shape):
        return None
    if name in CHANNELS:
        mixes = first == 0 and heads_alone(scores, scores.layout[CHANNELS[name]])
        return with_heads_mixed(scores, scores.layout, out) if mixes else None
    return rescored(name, first, scores, call, out)


def _from_weights(
    name: str, func: Any, meaning: Weights, call: Arguments, given: Tensor, out: Tensor
) -> Weights | None:
    weights = copy.copy(meaning)
    if name in ("getitem", "narrow"):
        layout = narrowed(func, meaning, call, given)
        if layout is None:
            return None
        weights.layout, weights.widened = layout, None
    elif tuple(out.shape) != tuple(given.shape):
        return None
    if name in DROPOUT:
        weights.dropout = _dropout(call)
    else:
        weights.used = Snapshot(out, weights.layout)
    weights.logarithm = weights.logarithm and name != "exp"
    return weights


def with_heads_mixed(
    meaning: Scores | Weights, layout: Layout, out: Tensor
) -> Scores | Weights | None:
    """Each head is now a mixture of heads. Scores that were masked before are not followed: what
    is blocked in a mixture is not known."""
    new = copy.copy(meaning)
    new.layout = layout
    if isinstance(new, Weights):
        new.used = Snapshot(out, layout)
    elif new.history.snapshots():
        return None
    else:
        new.history = new.history.copy()
        new.history.through.append("talking heads")
    return new


def _dropout(call: Arguments) -> float:
    args, kwargs = call
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(p) if training else 0.0


def _dim(args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> int:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return (out.dim() - 1 if dim is None else int(dim)) % out.dim()
