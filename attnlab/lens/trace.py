"""Where a tensor came from: recognises attention in code that names nothing.

Hand-written attention is a product of two tensors, perhaps scaled, biased and masked, a softmax
over it, perhaps dropout, and a second product that sums over the softmax's axis. A ``Trace`` is
told of every torch function that is called and keeps, for as long as such a tensor lives, what it
is: ``Scores``, ``Weights`` or the ``Mixed`` result. No model-specific code, no module names.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from attnlab.lens.axes import Axis, Layout, aligned, fresh, leaves, permuted, size, viewed
from attnlab.lens.record import BLOCKED, Attention, Held, History, Keep, Roles, version


@dataclass
class Product:
    """Two operands and their summed axes."""

    left: Held
    right: Held
    out: Layout
    summed: tuple[Axis, ...]


@dataclass
class Scores:
    """A product, or something made of it by scaling, adding and masking."""

    product: Product
    layout: Layout
    history: History


@dataclass
class Weights:
    """A softmax over scores, or something made of it. ``used`` is what the model mixes with, except
    that dropout has not been applied."""

    roles: Roles
    queries: Held
    keys: Held
    layout: Layout
    used: Held
    history: History
    dropout: float = 0.0
    mixed: bool = False


@dataclass
class Mixed:
    """The result of mixing values: its later views may tell batch from heads."""

    layout: Layout


@dataclass
class Scaled:
    """A tensor times a number: queries that were scaled before the product."""

    base: Held
    factor: float
    version: int


@dataclass
class Found:
    """Everything that is known about one attention call."""

    form: str
    roles: Roles
    queries: Held
    keys: Held
    values: Held
    history: History
    weights: Held | None = None
    dropout: float = 0.0
    log_sum_exp: Held | None = None
    missing: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(size, self.roles.groups()))

    def record(self, name: str, keep: Keep) -> Attention:
        def kept(held: Held | None) -> Held | None:
            return None if held is None else held.kept(keep)

        return Attention(
            name,
            self.form,
            self.roles,
            self.queries.kept(keep),
            self.keys.kept(keep),
            self.values.kept(keep),
            self.history.kept(keep),
            weights=kept(self.weights),
            dropout=self.dropout,
            log_sum_exp=kept(self.log_sum_exp),
            missing=self.missing,
        )


Arguments = tuple[tuple[Any, ...], dict[str, Any]]

VIEWS = {
    "view", "reshape", "flatten", "unflatten", "contiguous", "squeeze", "unsqueeze", "view_as",
    "reshape_as", "detach", "clone", "alias",
}  # fmt: skip
CASTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"}
PERMUTATIONS = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "mT"}
PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm", "rmatmul"}
SOFTMAX = {"softmax", "special_softmax"}
DROPOUT = {"dropout", "alpha_dropout"}
POINTWISE = {
    "tanh", "clamp", "clip", "clamp_min", "clamp_max", "sigmoid", "relu", "softplus", "nan_to_num",
    "exp", "log", "square", "pow", "abs", "neg", "maximum", "minimum", "setitem",
}  # fmt: skip
ALIASES = {"multiply": "mul", "divide": "div", "true_divide": "div", "truediv": "div",
           "rtruediv": "rdiv", "subtract": "sub", "imul": "mul", "iadd": "add", "isub": "sub",
           "itruediv": "div", "radd": "add", "rmul": "mul"}  # fmt: skip


class Trace:
    """Knows of living tensors what they are; forgets them when they die."""

    def __init__(self) -> None:
        self._known = WeakTensorKeyDictionary()

    def of(self, value: Any) -> Any:
        return self._known.get(value) if isinstance(value, Tensor) else None

    def learn(self, tensor: Tensor, meaning: Any) -> None:
        self._known[tensor] = meaning

    def clear(self) -> None:
        self._known = WeakTensorKeyDictionary()

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save what an in-place dropout is about to overwrite."""
        if name in DROPOUT and args and isinstance(self.of(args[0]), Weights):
            weights = self.of(args[0])
            if name != "dropout" or kwargs.get("inplace") or args[3:4] == (True,):
                weights.used = weights.used.kept("copy")

    def after(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Found | None:
        """Follow one call; what was found if it completed an attention."""
        if name == "scaled_dot_product_attention":
            found, layout = fused(*args, **kwargs)
            self.learn(out, Mixed(layout))
            return found
        if name in PRODUCTS and isinstance(out, Tensor):
            return self._product(name, args, kwargs, out)
        first, meaning = self._subject(args)
        if meaning is None:
            if name in ("mul", "div") and isinstance(out, Tensor):
                self._scaled(name, args, out)
            return None
        if name == "setitem":
            out = args[0]
        if isinstance(out, Tensor):
            self._follow(name, func, first, meaning, (args, kwargs), out)
        return None

    def _subject(self, args: tuple[Any, ...]) -> tuple[int, Any]:
        """The first argument whose origin is known, and its meaning."""
        for index, value in enumerate(args[:3]):
            meaning = self.of(value)
            if meaning is not None and not isinstance(meaning, Scaled):
                return index, meaning
        return 0, None

    def _scaled(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """A tensor times a number, either way round (Python hands the tensor over first)."""
        if len(args) != 2 or not isinstance(args[0], Tensor):
            return
        tensor, factor = args
        if isinstance(factor, int | float) and factor and tensor is not out and out.dim() > 2:
            by = factor if name == "mul" else 1 / factor
            self.learn(out, Scaled(Held(tensor, ()), float(by), version(out)))

    # ---- products

    def _product(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> Found | None:
        history = History()
        operands = _operands(name, args, kwargs)
        if operands is None:
            return None
        left, right, letters = operands
        for side, other in ((left, right), (right, left)):
            if isinstance(self.of(side), Weights):
                return self._mix(self.of(side), side, other, letters, side is left, out)
        meanings = []
        for side in (left, right):
            scaled = self.of(side)
            if isinstance(scaled, Scaled) and scaled.version == version(side):
                history.times(scaled.factor)
                side = scaled.base.tensor
            meanings.append(side)
        product = _align(meanings[0], meanings[1], letters, out)
        if product is None:
            return None
        if name == "baddbmm" and not _add(history, args[0], kwargs.get("beta", 1), product.out):
            return None
        if name == "baddbmm":
            history.factor *= kwargs.get("alpha", 1)
        self.learn(out, Scores(product, product.out, history))
        return None

    def _mix(
        self, weights: Weights, own: Tensor, values: Tensor, letters: Any, leads: bool, out: Tensor
    ) -> Found | None:
        """The second product: values summed with the weights over the softmax's axis."""
        product = _align(own, values, letters, out) if leads else _align(values, own, letters, out)
        if product is None or weights.mixed:
            return None
        mine, theirs = (product.left, product.right) if leads else (product.right, product.left)
        same = {
            axis: merged
            for new, merged in zip(mine.layout, weights.layout, strict=True)
            for axis in new
        }
        layout = _renamed(theirs.layout, same)
        keys = set(leaves(weights.roles.keys))
        summed = leaves(axis for a in product.summed for axis in same.get(a, (a,)))
        if {axis for axis in summed if axis.size > 1} != {a for a in keys if a.size > 1}:
            return None
        inside = leaves(axis for axes in layout for axis in axes)
        if any(a.size > 1 and a in inside for a in leaves(weights.roles.queries)):
            return None  # each query has values of its own: a gate, not attention
        weights.mixed = True
        self.learn(out, Mixed(_renamed(product.out, same)))
        roles = copy.copy(weights.roles)
        known = {*leaves(roles.batch), *leaves(roles.heads), *keys}
        result = leaves(axis for axes in product.out for axis in axes)
        free = [axis for axis in inside if axis not in known]
        shared = [a for a in free if _index(product.out, a) < len(product.out) - 1]
        width = [axis for axis in free if axis not in shared and axis in result]
        roles = Roles(
            (*shared, *roles.batch), roles.heads, roles.queries, roles.keys, roles.width,
            tuple(width),
        )  # fmt: skip
        return Found(
            "softmax", roles, weights.queries, weights.keys, Held(values, layout), weights.history,
            weights.used, weights.dropout,
        )  # fmt: skip

    # ---- everything else

    def _follow(
        self, name: str, func: Any, first: int, meaning: Any, call: Arguments, out: Tensor
    ) -> None:
        args, _ = call
        layout = _moved(name, func, meaning.layout, call, out)
        if layout is not None:
            self._moved_to(layout, name, meaning, out)
        elif isinstance(meaning, Scores):
            self._follow_scores(name, first, meaning, call, out)
        elif isinstance(meaning, Weights) and tuple(out.shape) == tuple(args[first].shape):
            weights = copy.copy(meaning)
            if name in DROPOUT:
                weights.dropout = _dropout(call)
            else:
                weights.used = Held(out, weights.layout)
            self.learn(out, weights)

    def _moved_to(self, layout: Layout, name: str, meaning: Any, out: Tensor) -> None:
        new = copy.copy(meaning)
        new.layout = layout
        if isinstance(new, Weights) and name in CASTS:
            new.used = Held(out, layout)
        self.learn(out, new)

    def _follow_scores(
        self, name: str, first: int, scores: Scores, call: Arguments, out: Tensor
    ) -> None:
        args, kwargs = call
        if name in SOFTMAX:
            weights = softmax_of(scores, _dim(args, kwargs, out), Held(out, scores.layout))
            if weights is not None:
                self.learn(out, weights)
            return
        if tuple(out.shape) != tuple(args[first].shape):
            return
        in_place = out is args[first]
        history = scores.history if in_place else scores.history.copy()
        if not _rescored(name, first, history, scores.layout, args, kwargs):
            if not in_place and name not in (*POINTWISE, *AFFINE, *DROPOUT):
                return
            history.through.append(name)
        self.learn(out, Scores(scores.product, scores.layout, history))


def _index(layout: Layout, axis: Axis) -> int:
    return next((i for i, axes in enumerate(layout) if axis in leaves(axes)), len(layout))


def _renamed(layout: Layout, same: dict[Axis, tuple[Axis, ...]]) -> Layout:
    return tuple(tuple(new for axis in axes for new in same.get(axis, (axis,))) for axes in layout)


def _dropout(call: Arguments) -> float:
    args, kwargs = call
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(p) if training else 0.0


def _dim(args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> int:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return (out.dim() - 1 if dim is None else int(dim)) % out.dim()


def _moved(name: str, func: Any, layout: Layout, call: Arguments, out: Tensor) -> Layout | None:
    """The layout after a call that only moves numbers about; None if it does more."""
    args, kwargs = call
    if name in PERMUTATIONS:
        return permuted(layout, lambda meta: func(meta, *args[1:], **kwargs))
    if name in CASTS:
        return layout
    if name in VIEWS or (name == "getitem" and _only_new_axes(args[1])):
        return viewed(layout, tuple(out.shape))
    return None


def _only_new_axes(index: Any) -> bool:
    index = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or (isinstance(part, slice) and part == slice(None))
        for part in index
    )


# ---- the two products


def _operands(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, tuple[str, str, str] | None] | None:
    """The two tensors of a product and, for einsum, the letters of both and of the result."""
    letters = None
    tensors: Sequence[Any] = args[1:3] if name == "baddbmm" else args[:2]
    if name == "einsum":
        if not args or not isinstance(args[0], str):
            return None
        tensors = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        letters = _letters(args[0])
    elif len(tensors) < 2:
        names = ("batch1", "batch2") if name == "baddbmm" else ("other", "mat2")
        tensors = [*tensors, *(kwargs[key] for key in names if key in kwargs)]
    if name == "rmatmul":
        tensors = tensors[::-1]
    if len(tensors) != 2 or not all(isinstance(t, Tensor) and t.dim() > 1 for t in tensors):
        return None
    if name == "einsum" and letters is None:
        return None
    return tensors[0], tensors[1], letters


def _letters(equation: str) -> tuple[str, str, str] | None:
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    sides = inputs.split(",")
    if (
        len(sides) != 2
        or not arrow
        or any(len(set(side)) != len(side.replace("...", ".")) for side in sides)
    ):
        return None
    return sides[0], sides[1], result


def _align(
    left: Tensor, right: Tensor, letters: tuple[str, str, str] | None, out: Tensor
) -> Product | None:
    if letters is not None:
        return _align_letters(left, right, letters, out)
    lead = fresh(out.shape[:-2])
    rows, columns, inner = (
        (Axis(left.shape[-2]),),
        (Axis(right.shape[-1]),),
        (Axis(left.shape[-1]),),
    )
    return Product(
        Held(left, (*aligned(left.shape[:-2], lead), rows, inner)),
        Held(right, (*aligned(right.shape[:-2], lead), inner, columns)),
        (*lead, rows, columns),
        inner,
    )


def _align_letters(
    left: Tensor, right: Tensor, letters: tuple[str, str, str], out: Tensor
) -> Product | None:
    named = [
        _spelt(side, tensor.dim()) for side, tensor in zip(letters, (left, right, out), strict=True)
    ]
    lengths: dict[str, int] = {}
    for side, tensor in zip(named, (left, right, out), strict=True):
        for letter, length in zip(side, tensor.shape, strict=True):
            lengths[letter] = max(length, lengths.get(letter, 1))
    axes = {letter: Axis(length) for letter, length in lengths.items()}
    a, b, c = (
        tuple((axes[x],) if t.shape[i] == axes[x].size else () for i, x in enumerate(side))
        for side, t in zip(named, (left, right, out), strict=True)
    )
    summed = [x for x in axes if x not in named[2]]
    if not all(x in named[0] and x in named[1] for x in summed):
        return None
    return Product(Held(left, a), Held(right, b), c, tuple(axes[x] for x in summed))


def _spelt(side: str, dims: int) -> list[str]:
    """One letter per dimension; those under an ellipsis are numbered from the right."""
    before, dots, after = side.partition("...")
    hidden = dims - len(before) - len(after) if dots else 0
    return [*before, *(f"~{i}" for i in range(hidden, 0, -1)), *after]


# ---- from scores to weights


def softmax_of(scores: Scores, dim: int, used: Held) -> Weights | None:
    """Who is query and who is key: the softmax runs over the keys."""
    product = scores.product
    keys = leaves(scores.layout[dim])
    left, right = (
        leaves(axis for axes in held.layout for axis in axes)
        for held in (product.left, product.right)
    )
    if all(axis in right and axis not in left for axis in keys):
        queries, held_queries, held_keys = left, product.left, product.right
        others = right
    elif all(axis in left and axis not in right for axis in keys):
        queries, held_queries, held_keys = right, product.right, product.left
        others = left
    else:
        return None
    summed = set(leaves(product.summed))
    shown = leaves(axis for axes in product.out for axis in axes)
    if any(a in others and a not in queries and a not in keys and a.size > 1 for a in shown):
        return None
    shared = [a for a in shown if a in queries and a in others and a not in summed]
    alone = [a for a in shown if a in queries and a not in others]
    batch, heads, rows = _roles(shared, alone)
    roles = Roles(batch, heads, rows, tuple(keys), product.summed)
    return Weights(roles, held_queries, held_keys, scores.layout, used, scores.history.copy())


def _roles(shared: list[Axis], alone: list[Axis]) -> tuple[tuple[Axis, ...], ...]:
    """Batch, heads, queries. The last axis that only the queries have is theirs; others are heads
    that share a key head. Of the axes that both have the last is heads, if there are two."""
    rows, extra = alone[-1:], alone[:-1]
    if not shared and extra:
        shared, extra = extra[:1], extra[1:]
    if len(shared) > 1:
        return tuple(shared[:-1]), (*shared[-1:], *extra), tuple(rows)
    return tuple(shared), tuple(extra), tuple(rows)


AFFINE: dict[str, Callable[..., bool]] = {}
"""What scaling, adding and masking do to a history: (history, layout, which argument the scores
are, args, kwargs) → whether it is understood."""


def _affine(*names: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def enter(rule: Callable[..., bool]) -> Callable[..., bool]:
        AFFINE.update(dict.fromkeys(names, rule))
        return rule

    return enter


def _rescored(
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


def _add(history: History, value: Any, by: float, layout: Layout) -> bool:
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
    return _add(history, _second(args, kwargs, first), alpha, layout)


@_affine("sub")
def _minus(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    alpha = kwargs.get("alpha", 1)
    if first == 0:
        return _add(history, _second(args, kwargs, first), -alpha, layout)
    if alpha != 1:
        return False
    history.times(-1)
    return _add(history, _second(args, kwargs, first), 1, layout)


@_affine("rsub")
def _from(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    history.times(-1)
    return _add(history, _second(args, kwargs, first), 1, layout)


@_affine("masked_fill")
def _fill(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    mask = args[1] if len(args) > 1 else kwargs.get("mask")
    value = args[2] if len(args) > 2 else kwargs.get("value")
    return first == 0 and _block(history, mask, value, layout, allowed=False)


@_affine("setitem")
def _set(history: History, layout: Layout, first: int, args: Any, kwargs: Any) -> bool:
    whole = isinstance(args[1], Tensor) and args[1].dtype == torch.bool
    same = whole and args[1].dim() == len(layout)
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


# ---- PyTorch's own


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Found, Layout]:
    """A call of ``scaled_dot_product_attention``, and the layout of its result."""
    shape = torch.broadcast_shapes(
        *(t.shape[: -3 if enable_gqa else -2] for t in (query, key, value))
    )
    lead = fresh(shape)
    if enable_gqa:
        shared = Axis(key.shape[-3])
        lead = (*lead, (shared, Axis(query.shape[-3] // key.shape[-3])))
        if value.shape[-3] != key.shape[-3]:
            value = value.repeat_interleave(key.shape[-3] // value.shape[-3], dim=-3)
    rows, keys, width, value_width = (
        (Axis(n),) for n in (query.shape[-2], key.shape[-2], query.shape[-1], value.shape[-1])
    )

    def lay(tensor: Tensor, *tail: tuple[Axis, ...]) -> Held:
        own = lead
        if enable_gqa and tensor is not query:
            own = (*lead[:-1], (shared,))
        return Held(tensor, (*aligned(tensor.shape[:-2], own), *tail))

    batch, heads = (lead[:-1], lead[-1]) if len(lead) > 1 else (lead, ())
    roles = Roles(tuple(a for axes in batch for a in axes), heads, rows, keys, width, value_width)
    history = History(factor=query.shape[-1] ** -0.5 if scale is None else scale, causal=is_causal)
    if attn_mask is not None:
        mask = Held(attn_mask, aligned(attn_mask.shape, (*lead, rows, keys)))
        if attn_mask.dtype == torch.bool:
            history.masks.append((mask, True))
        else:
            history.addends.append((mask, 1.0))
    found = Found(
        "fused", roles, lay(query, rows, width), lay(key, keys, width),
        lay(value, keys, value_width), history, dropout=dropout_p,
    )  # fmt: skip
    return found, (*lead, rows, value_width)
