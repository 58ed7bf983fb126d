"""Where a tensor came from: recognises attention in any code, without knowing its names.

Hand-written attention is a product of two tensors, perhaps scaled, biased and masked, a softmax
over it, perhaps dropout, and a second product that sums over the softmax's axis. A ``Trace`` is
notified of every torch function that is called. For each tensor of such a computation it stores,
as long as the tensor exists, whether it is ``Scores``, ``Weights`` or the ``Mixed`` result. It uses
no model-specific code and no module names.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from attnlab.lens.axes import leaves
from attnlab.lens.snapshots import History, Snapshot
from attnlab.lens.trace.following import DROPOUT, followed, with_heads_mixed
from attnlab.lens.trace.meanings import (
    Arguments,
    Elementwise,
    Found,
    Mixed,
    Packed,
    Part,
    Product,
    Scaled,
    Scores,
    Weights,
)
from attnlab.lens.trace.products import PRODUCTS, align, broadcast, operands, summed
from attnlab.lens.trace.scores import add
from attnlab.lens.trace.sdpa import fused
from attnlab.lens.trace.views import JOINS, SPLITS, beside, heads_below, joined, parts, widened
from attnlab.lens.trace.weights import across_heads, mix, renamed, same_axes

ALIASES = {"multiply": "mul", "divide": "div", "true_divide": "div", "truediv": "div",
           "rtruediv": "rdiv", "subtract": "sub", "imul": "mul", "iadd": "add", "isub": "sub",
           "itruediv": "div", "radd": "add", "rmul": "mul"}  # fmt: skip

COMPOSED = (
    "its values were computed from attention weights: perhaps an inverse or a product of maps "
    "rather than attention"
)


class Trace:
    """The meaning of each tensor that still exists; entries vanish with their tensors.

    ``learned`` returns whether a tensor is a parameter of the model.
    """

    def __init__(self, learned: Callable[[Tensor], bool] = lambda tensor: False) -> None:
        self._known = WeakTensorKeyDictionary()
        self._composed = WeakTensorKeyDictionary()  # what was computed from weights alone
        self._learned = learned

    def of(self, value: Any) -> Any:
        return self._known.get(value) if isinstance(value, Tensor) else None

    def learn(self, tensor: Tensor, meaning: Any) -> None:
        """Store the meaning of ``tensor``; with None, delete it."""
        if isinstance(meaning, Mixed):
            meaning.roles.show_heads(meaning.layout)
        if meaning is None:
            self._known.pop(tensor, None)
        else:
            self._known[tensor] = meaning

    def clear(self) -> None:
        self._known = WeakTensorKeyDictionary()
        self._composed = WeakTensorKeyDictionary()

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save what an in-place dropout is about to overwrite."""
        args, kwargs = _positional(args, kwargs)
        if name in DROPOUT and args and isinstance(self.of(args[0]), Weights):
            weights = self.of(args[0])
            if name != "dropout" or kwargs.get("inplace") or args[3:4] == (True,):
                weights.used = weights.used.kept("copy")

    def after(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Found | None:
        """Follow one call; what was found if it completed an attention."""
        if name == "scaled_dot_product_attention":
            found, layout = fused(*args, **kwargs, packed=self._packed(*args[:2], **kwargs))
            self.learn(out, Mixed(layout, found.roles))
            return found
        args, kwargs = _positional(args, kwargs)
        if name not in PRODUCTS and isinstance(out, Tensor) and any(map(self._is_composed, args)):
            self._composed[out] = True
        if name in JOINS and isinstance(out, Tensor):
            self._join(name, (args, kwargs), out)
            return None
        if name in PRODUCTS and isinstance(out, Tensor):
            return self._product(name, args, kwargs, out)
        if name == "mul" and self._elementwise(args, out):
            return None
        first, meaning = self._subject(args)
        if meaning is None:
            if name in ("mul", "div") and isinstance(out, Tensor):
                self._scaled(name, args, out)
            self._pack(name, args, out)
            return None
        if name == "setitem":
            out = args[0]
        if name in SPLITS and isinstance(meaning, Mixed) and not isinstance(out, Tensor):
            found_parts = parts(name, meaning, args[0], out, (args, kwargs))
            for piece, part in zip(out, found_parts, strict=False):
                self.learn(piece, part)
        elif name == "sum" and isinstance(meaning, Elementwise):
            return self._sum(meaning, (args, kwargs), out)
        elif isinstance(out, Tensor):
            self.learn(out, followed(name, func, first, meaning, (args, kwargs), out))
        return None

    def _subject(self, args: tuple[Any, ...]) -> tuple[int, Any]:
        """The first argument whose origin is known, and its meaning."""
        for index, value in enumerate(args[:3]):
            meaning = self.of(value)
            if meaning is not None and not isinstance(meaning, Scaled | Packed):
                return index, meaning
        return 0, None

    def _scaled(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """A tensor times a number, either way round (Python hands the tensor over first)."""
        if len(args) != 2 or not isinstance(args[0], Tensor):
            return
        tensor, factor = args
        if isinstance(factor, int | float) and factor and tensor is not out and out.dim() > 2:
            by = factor if name == "mul" else 1 / factor
            self.learn(out, Scaled(Snapshot(tensor, ()), float(by), Snapshot(out, ())))

    def _unscaled(self, tensor: Tensor, history: History) -> Tensor:
        scaled = self.of(tensor)
        if not isinstance(scaled, Scaled) or not scaled.result.unchanged(tensor):
            return tensor
        history.times(scaled.factor)
        return scaled.base.tensor

    def _pack(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        given = args[0] if args else None
        if not isinstance(given, Tensor) or not isinstance(out, Tensor):
            return
        before = self.of(given)
        count = heads_below(given, out) if name in ("view", "reshape") else 0
        if count:
            self.learn(out, Packed(count))
        elif isinstance(before, Packed) and sorted(out.shape) == sorted(given.shape):
            self.learn(out, before)  # scaled, or transposed for the product

    def _packed(self, query: Tensor, key: Tensor, *_: Any, **kwargs: Any) -> int:
        """How many query heads stand in the rows of ``query``: its view says so, and the keys have
        no such view (where both have it, positions were grouped and not heads)."""
        meaning, other = self.of(query), self.of(key)
        return meaning.count if isinstance(meaning, Packed) and other is None else 1

    # ---- products

    def _product(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> Found | None:
        pair = operands(name, args, kwargs)
        if pair is None:
            return None
        history, (left, right, letters) = History(), pair
        meanings = self.of(left), self.of(right)
        if not any(isinstance(meaning, Weights) for meaning in meanings):
            left, right = self._unscaled(left, history), self._unscaled(right, history)
        product = align(left, right, letters, out, self._packed(left, right))
        if product is None:
            return None
        if all(self._of_weights(each) for each in (left, right)):
            self._composed[out] = True
        for meaning, leads in zip(meanings, (True, False), strict=True):
            if isinstance(meaning, Weights):
                found = self._mix(meaning, product, leads, out)
                if found is not None and self._of_weights(right if leads else left):
                    found.roles.doubts.append(COMPOSED)
                return found
            if isinstance(meaning, Mixed):
                _project(meaning, product, leads)
            if isinstance(meaning, Scores) and self._across(meaning, product, leads, out):
                return None
        if name == "baddbmm":
            if not add(history, args[0], kwargs.get("beta", 1), product.out):
                return None
            history.factor *= kwargs.get("alpha", 1)
        self.learn(out, Scores(product, product.out, history))
        return None

    def _elementwise(self, args: tuple[Any, ...], out: Any) -> bool:
        """Whether two tensors were broadcast against each other, perhaps to be summed."""
        if len(args) != 2 or not all(isinstance(each, Tensor) for each in (*args, out)):
            return False
        left, right = args
        if out is left or out.dim() < 3 or left.shape == right.shape:
            return False
        meanings = [self.of(left), self.of(right)]
        weights = next((each for each in meanings if isinstance(each, Weights)), None)
        known = [each for each in meanings if not isinstance(each, Scaled | Packed | Mixed | None)]
        if min(left.dim(), right.dim()) < 2 or known != ([] if weights is None else [weights]):
            return False
        if weights is not None and out.shape == args[meanings.index(weights)].shape:
            return False  # a factor on the weights
        history = History()
        if weights is None:
            left, right = self._unscaled(left, history), self._unscaled(right, history)
        leads = meanings[0] is weights
        self.learn(out, Elementwise(*broadcast(left, right, out), history, weights, leads))
        return True

    def _sum(self, found: Elementwise, call: Arguments, out: Tensor) -> Found | None:
        product = summed(found, *call)
        if product is None:
            return None
        if found.weights is not None:
            return self._mix(found.weights, product, found.leads, out)
        self.learn(out, Scores(product, product.out, found.history))
        return None

    def _mix(self, weights: Weights, product: Product, leads: bool, out: Tensor) -> Found | None:
        made = mix(weights, product, leads, self._learned)
        if made is None:
            self._across(weights, product, leads, out)
            return None
        found, mixed = made
        self.learn(out, mixed)
        return found

    def _is_composed(self, value: Any) -> bool:
        return bool(self._composed) and isinstance(value, Tensor) and value in self._composed

    def _of_weights(self, tensor: Tensor) -> bool:
        return isinstance(self.of(tensor), Weights) or self._is_composed(tensor)

    # ---- heads mixed with one another

    def _across(
        self, meaning: Scores | Weights, product: Product, leads: bool, out: Tensor
    ) -> bool:
        layout = across_heads(meaning, product, leads)
        if layout is not None:
            self.learn(out, with_heads_mixed(meaning, layout, out))
        return layout is not None

    # ---- concatenations

    def _join(self, name: str, call: Arguments, out: Tensor) -> None:
        args, kwargs = call
        tensors = args[0] if args else kwargs.get("tensors")
        if not isinstance(tensors, list | tuple):
            return
        meanings = [self.of(tensor) for tensor in tensors]
        known = [meaning for meaning in meanings if meaning is not None]
        if not _all(meanings, Mixed):
            beside(name, [each for each in known if isinstance(each, Mixed)], out, call)
        if known and len(known) == len(meanings) and isinstance(known[0], Part):
            mixed = joined(name, known, out, call) if _all(known, Part) else None
            if mixed is not None:
                self.learn(out, mixed)
        elif len(known) == 1 and isinstance(known[0], Scores) and name != "stack":
            scores = known[0]
            if scores.widened is None and len(tensors) > 1:
                self.learn(out, widened(meanings.index(scores), scores, tensors, out, call))


def _project(mixed: Mixed, product: Product, leads: bool) -> None:
    """A projection that sums over the values' width sums over the heads as well."""
    own = product.left if leads else product.right
    (inside,) = renamed((product.summed,), same_axes(own.layout, mixed.layout))
    width = leaves(mixed.roles.value_width)
    if any(axis in width for axis in leaves(inside)):
        others = [axis for axis in leaves(inside) if axis not in width]
        mixed.roles.merge_with_width(others, leaves(inside))


def _positional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The call with its input as the first positional argument."""
    if args or "input" not in kwargs:
        return args, kwargs
    return (kwargs["input"],), {key: value for key, value in kwargs.items() if key != "input"}


def _all(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)
