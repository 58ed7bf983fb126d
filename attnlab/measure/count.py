"""Counting instead of timing: FLOPs, the largest tensor and the peak of live bytes of a call.

Every ATen operation of the call, forward and backward, passes through one `TorchDispatchMode`. It
adds the operation's FLOPs (`flops`), and follows each new storage from its allocation to its death,
so what autograd keeps for the backward pass counts for as long as it is kept. No stop-watch is
involved: two counts of the same call are equal, on any machine.

What an operation allocates and frees within itself (the workspace of a fused kernel) is not seen;
`memory.resident` measures a whole process and is the cross-check.
"""

import functools
import gc
import math
import numbers
import reprlib
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab.measure.flops import FORMULAS, OPAQUE, Formula


@dataclass(frozen=True)
class LargestTensor:
    """The allocation with the most elements; `operation` is the ATen operation that made it."""

    elements: int = 0
    bytes: int = 0
    shape: tuple[int, ...] = ()
    operation: str = ""


@dataclass(frozen=True)
class Count:
    """What one call computed and held.

    `flops`: 2 per multiply-add. `elements_written`: by all operations, views apart; it shows the
    work of a mechanism that mixes by sums or products element by element. `largest_tensor`:
    allocated by the call; views and what the caller passed in do not count. `peak_bytes`: most
    bytes alive at once, above what was alive at the start, results and gradients included.
    `flops_by_operation`: the same FLOPs by the name of the ATen operation. `operations`: how many
    were called, views apart. `by_kind`: by the name of an operation and the number of axes of what
    it allocated, the elements of the largest such tensor, and most bytes alive after one.
    """

    flops: int
    elements_written: int
    largest_tensor: LargestTensor
    peak_bytes: int
    flops_by_operation: dict[str, int]
    operations: int = 0
    by_kind: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


def count(function: Callable[..., Any], *args: Any, backward: bool = False) -> Count:
    """Call `function(*args)` once and count; with `backward`, also its gradients.

    The backward pass goes from every output that requires a gradient to every leaf it depends on.
    Gradients are dropped afterwards: no `.grad` is touched. The gradients that arrive at the
    outputs belong to the caller, so they are not counted.

    Raises ValueError where `backward` is asked for and nothing requires a gradient, and where a
    kernel or tensor layout cannot be counted.
    """
    if not callable(function):
        raise TypeError(
            f"count needs a function and its arguments, got {reprlib.repr(function)}; write "
            "count(model, x), not count(model(x))"
        )
    if not isinstance(backward, bool):
        raise TypeError(f"`backward` should be True or False, got {reprlib.repr(backward)}")
    return _counted(_Ledger(), function, args, backward)


def count_uncompiled(function: Callable[..., Any], *args: Any, backward: bool = False) -> Count:
    """What `count` says of a call in which nothing is compiled, a third sooner."""
    return _counted(_Bare(), function, args, backward)


def _counted(
    ledger: "_Bare", function: Callable[..., Any], args: Sequence[Any], backward: bool
) -> Count:
    _first_dispatch()
    with _STEADY:
        with ledger:
            result = function(*args)
        gradients = _gradients(result, ledger) if backward else None
        del result, gradients
    return ledger.count()


@functools.cache
def _first_dispatch() -> None:
    """PyTorch keeps what the first dispatch of a process allocates, so the first is a small one."""
    with _Ledger():
        torch.zeros(1) @ torch.zeros(1)


class _Bare(TorchDispatchMode):
    """Books each operation; `storages` holds the bytes of each storage this call allocated."""

    supports_higher_order_operators = True  # so that they are dispatched here, and refused

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # each operation would ask whether a compiler is looking on

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self.written = self.operations = 0
        self.by_kind: dict[tuple[str, int], tuple[int, int]] = {}
        self.live = 0
        self.peak = 0
        self.largest = LargestTensor()
        # Keyed by id: a storage keeps one Python object as long as it lives. Storages that this
        # call did not allocate have zero bytes.
        self.storages: dict[int, tuple[weakref.ref[Any], int]] = {}
        # What was computed with and requires a gradient; not kept alive, for it would be counted.
        self.leaves: dict[int, weakref.ref[Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operation = _operation(func)
        if operation.whole:
            with self:
                return func.decompose(*args, **kwargs)
        given = (*args, *kwargs.values()) if kwargs else args
        if operation.name != "lift_fresh":  # how torch.tensor(…), not dispatched, appears
            self._meet(_handed(given))
        result = func(*args, **kwargs)
        self._book(operation, given, result)
        return result

    def _meet(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self.storages:
                self._follow(storage, 0)
            if tensor.requires_grad and tensor.is_leaf:
                self.leaves[id(tensor)] = weakref.ref(tensor)

    def _book(self, operation: "_Operation", args: Sequence[Any], result: Any) -> None:
        outputs = _handed((result,))
        if operation.formula is not None:
            self.flops[operation.name] += operation.formula(args, result)
        if not operation.is_view:
            self.operations += 1
            self.written += sum(tensor.numel() for tensor in outputs)
        for tensor in outputs:
            self._allocate(tensor, operation.name)

    def _allocate(self, tensor: Tensor, name: str) -> None:
        storage = tensor.untyped_storage()
        known = self.storages.get(id(storage))
        if known is not None and known[1] in (0, storage.nbytes()):
            return
        if known is not None:  # resized in place
            self.live -= known[1]
        self._follow(storage, storage.nbytes())
        elements = storage.nbytes() // tensor.element_size()
        kind = name, tensor.ndim
        most, peak = self.by_kind.get(kind, (0, 0))
        self.by_kind[kind] = max(elements, most), max(self.live, peak)
        if (elements, storage.nbytes()) > (self.largest.elements, self.largest.bytes):
            shape = tuple(tensor.shape)
            self.largest = LargestTensor(elements, storage.nbytes(), shape, name)

    def _follow(self, storage: torch.UntypedStorage, size: int) -> None:
        key, ledger = id(storage), weakref.ref(self)

        def forget(_: Any) -> None:
            if (owner := ledger()) is not None:
                owner.live -= owner.storages.pop(key)[1]

        self.storages[key] = (weakref.ref(storage, forget), size)
        self.live += size
        self.peak = max(self.peak, self.live)

    def count(self) -> Count:
        flops = dict(self.flops)
        return Count(
            sum(flops.values()), self.written, self.largest, self.peak, flops, self.operations,
            self.by_kind,
        )  # fmt: skip


class _Ledger(_Bare):
    """Counts a compiled function, too: no compiler follows what this mode does."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


class _Operation(NamedTuple):
    """What is known of an operation before it is called; `whole` if it is a composite one, as
    arrives under inference_mode, and is counted by its parts."""

    name: str
    formula: Formula | None
    is_view: bool
    whole: bool


@functools.cache
def _operation(func: Any) -> _Operation:
    name, key = _name(func), DispatchKey.CompositeImplicitAutograd
    formula = FORMULAS.get(name)
    whole = formula is None and func.has_kernel_for_dispatch_key(key)
    return _Operation(name, formula, _is_view(func), whole)


def _name(func: Any) -> str:
    """The operation's name without its namespace; refuses what cannot be counted."""
    name = func._schema.name.removeprefix("aten::") if hasattr(func, "_schema") else func.name()
    if name in OPAQUE or not hasattr(func, "_schema"):
        raise ValueError(
            f"count cannot see inside the kernel {name}: its FLOPs are unknown; count the same "
            "computation by its parts (linear layers, scaled_dot_product_attention)"
        )
    return name


def _tensors(tree: Any) -> list[Tensor]:
    return _handed(tree_leaves(tree))


def _handed(values: Iterable[Any]) -> list[Tensor]:
    """The tensors that an operation is handed or hands back: one by one, or in lists."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            if value.layout != torch.strided:
                raise ValueError(
                    f"count follows dense (strided) tensors, got one of layout {value.layout}; "
                    "give the call dense tensors"
                )
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _handed(value)
    return tensors


def _is_view(func: Any) -> bool:
    aliases = [output.alias_info for output in func._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def _gradients(result: Any, ledger: _Bare) -> Any:
    outputs = [tensor for tensor in _tensors(result) if tensor.requires_grad]
    if not outputs:
        raise ValueError(
            "count(…, backward=True) needs an output that requires a gradient, and none of this "
            "call's does; give inputs or parameters with requires_grad=True, outside "
            "torch.no_grad()"
        )
    leaves = _leaves(outputs)
    if leaves is None:
        met = [leaf for ref in ledger.leaves.values() if (leaf := ref()) is not None]
        leaves = list({id(leaf): leaf for leaf in (*met, *outputs) if leaf.is_leaf}.values())
    if not leaves:
        raise ValueError(
            "count(…, backward=True) finds no leaf in so long a graph: hand in tensors that "
            "require a gradient themselves, not views of one that does"
        )
    arriving = [torch.ones_like(output) for output in outputs]
    with ledger:
        return torch.autograd.grad(outputs, leaves, arriving, allow_unused=True)


_WALKED = 10_000  # nodes of a graph


def _leaves(outputs: list[Tensor]) -> list[Tensor] | None:
    """The leaves of the graph above `outputs`, each once; None where the graph is large.

    A graph that was walked through in Python is destroyed by recursion, which that of a loop over
    some thousand tokens does not survive."""
    leaves = {id(output): output for output in outputs if output.grad_fn is None}
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set(waiting)
    while waiting:
        if len(seen) > _WALKED:
            return None
        node = waiting.pop()
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            leaves[id(leaf)] = leaf
        above = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= above
        waiting.extend(above)
    return list(leaves.values())


class _Steady:
    """Within it garbage collection, whose timing varies, and nn.MultiheadAttention's fast path are
    off. Both are settings of the whole process, and counts may overlap in several threads: the
    first to begin switches them off, the last to end brings them back."""

    def __init__(self) -> None:
        self.lock, self.running = threading.Lock(), 0
        self.collecting = self.fast = True

    def __enter__(self) -> None:
        with self.lock:
            if not self.running:
                self.collecting = gc.isenabled()
                self.fast = torch.backends.mha.get_fastpath_enabled()
                gc.disable()
                torch.backends.mha.set_fastpath_enabled(False)
            self.running += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.running -= 1
            if not self.running:
                torch.backends.mha.set_fastpath_enabled(self.fast)
                if self.collecting:
                    gc.enable()


_STEADY = _Steady()


class Exponent(NamedTuple):
    """The slope of log(values) over log(sizes), and its standard error."""

    slope: float
    error: float


def exponent(sizes: Sequence[float], values: Sequence[float]) -> Exponent:
    """The power of n with which `values` grow, by least squares on the logarithms.

    The standard error is 0 for two points, where any line fits. Raises ValueError for fewer than
    two different sizes and for numbers that have no logarithm.
    """
    sizes, values = _numbers("sizes", sizes), _numbers("values", values)
    if len(sizes) != len(values):
        raise ValueError(
            f"sizes and values go in pairs, got {len(sizes)} sizes and {len(values)} values"
        )
    if len(set(sizes)) < 2:
        raise ValueError(f"a slope needs at least two different sizes, got {sizes}")
    if min(*sizes, *values) <= 0:
        raise ValueError("sizes and values should be positive: the fit is one of logarithms")
    x = np.log(np.asarray(sizes, dtype=float))
    y = np.log(np.asarray(values, dtype=float))
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    residual = y - slope * x
    freedom = len(x) - 2
    error = math.sqrt(residual @ residual / freedom / (x @ x)) if freedom else 0.0
    return Exponent(slope, error)


def _numbers(name: str, values: object) -> list[float]:
    """A list of finite numbers."""
    array = getattr(values, "ndim", 1) > 0
    if isinstance(values, str | bytes | Mapping) or not (array and isinstance(values, Iterable)):
        raise TypeError(f"{name} should be a list of numbers, got {reprlib.repr(values)}")
    found = list(values)
    for value in found:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not math.isfinite(value):
            raise TypeError(f"{name} should hold finite numbers, got {reprlib.repr(value)}")
    return [float(value) for value in found]


def expected_exponent(
    expression: Any, letter: str, sizes: Sequence[float], values: Mapping[str, float]
) -> float:
    """The exponent of a cost formula on a grid of sizes: the value that `exponent` should give.

    `expression` is a card's sympy expression (or text), `letter` the one that runs over `sizes`,
    `values` the numbers of all others. n log n, or n·d + n², has no single power; on the grid of
    the measurement it has a slope, and this is it.
    """
    if not isinstance(letter, str):
        raise TypeError(f"letter should be text, such as 'n', got {reprlib.repr(letter)}")
    if not isinstance(values, Mapping):
        raise TypeError(f"values should map letters to numbers, got {reprlib.repr(values)}")
    sizes, expression = _numbers("sizes", sizes), _formula(expression)
    fixed = {symbol: values[symbol.name] for symbol in _others(expression, letter, values)}
    running = [symbol for symbol in expression.free_symbols if symbol.name == letter]
    costs = [
        float(expression.subs(fixed).subs([(symbol, size) for symbol in running])) for size in sizes
    ]
    return exponent(sizes, costs).slope


def _formula(expression: Any) -> Any:
    import sympy

    try:
        real = isinstance(expression, numbers.Real) and not isinstance(expression, bool)
        formula = sympy.sympify(expression) if real or isinstance(expression, str) else expression
    except sympy.SympifyError:
        formula = None
    if not isinstance(formula, sympy.Expr) or formula.is_finite is False or formula is sympy.nan:
        raise TypeError(
            f"expression should be a formula of sympy or its text, got {reprlib.repr(expression)}"
        )
    return formula


def _others(expression: Any, letter: str, values: Mapping[str, float]) -> list[Any]:
    others = [symbol for symbol in expression.free_symbols if symbol.name != letter]
    missing = sorted({symbol.name for symbol in others} - set(values))
    if missing:
        raise ValueError(
            f"the cost {expression} has the letters {', '.join(missing)}, which values does not "
            f"give (it has {', '.join(sorted(values)) or 'none'}); add them to values"
        )
    return others
