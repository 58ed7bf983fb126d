"""What a layer costs at any length, counted without computing it.

The layer is built on PyTorch's meta device, whose tensors have shapes and no numbers, and called
once: every operation is booked by `count`, as if it had run on a CPU. PyTorch's fused attention
is given the CPU's kernel there, which the meta device would replace by an n × n softmax.

Whether a mechanism does on the meta device what it does on a CPU is not assumed: at a small length
both are counted, and where they differ (a learned span decides which keys are read) the layer is
computed on the CPU instead, up to `LONGEST_COMPUTED` tokens.

What works block by block calls more operations the longer the sequence is. Beyond that length it is
counted at some short lengths, and by the law that these follow (`laws`): exactly, but for the
elements written, the bytes kept and the peak of bytes, which then are about right.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from attnlab.catalog import remembered
from attnlab.core.complex_linear import ComplexLinear
from attnlab.measure.count import Count, LargestTensor, count
from attnlab.measure.laws import Counts, by_law
from attnlab.measure.subject import OwnLayer, Subject, check_subject, once_for_each

Layer = Subject | OwnLayer
LONGEST_COMPUTED = 16_384
PIECE = 512  # tokens that a decoding layer is fed at once
TRIAL = 96  # tokens at which the meta device is compared with the CPU


class Uncountable(ValueError):
    """A cost that cannot be counted; the message says why, and what can be done."""


@dataclass(frozen=True)
class Cost:
    """What one call of a layer on one sequence of n tokens costs, counted, in 32-bit numbers.

    flops             two per multiply-add, of the whole layer (`flops` says what is counted)
    mixing_flops      the same without the layer's linear maps: what a card claims
    elements_written  by all operations; the work of what mixes without products
    parameters        of the layer, as numbers
    largest_elements  elements of the largest tensor that the call makes
    peak_bytes        most bytes alive at once beside the input and the parameters
    saved_bytes       kept between forward and backward pass, input and parameters apart
    `state_bytes(subject, n)` counts what decoding keeps.
    """

    subject: Layer
    n: int
    backward: bool
    flops: int
    mixing_flops: int
    elements_written: int
    parameters: int
    largest_elements: int
    peak_bytes: int
    saved_bytes: int

    @property
    def intensity(self) -> float:
        """FLOPs per byte, where each operation writes its result to memory and reads as much."""
        return self.flops / max(1, 8 * self.elements_written)


@once_for_each
def counted(subject: Layer, n: int, backward: bool = False) -> Cost:
    """The cost of `subject` at length n, forward or forward and backward. Remembered.

    Raises Uncountable with a sentence where the mechanism refuses the length, or where its work
    depends on numbers that are not there and n is too long to compute them.
    """
    device = "meta" if _faithful(subject) else "cpu"
    if device == "cpu" and n > LONGEST_COMPUTED:
        raise Uncountable(
            f"{subject.label} reads as many keys as its parameters say, so it is counted by "
            f"computing it, up to n = {LONGEST_COMPUTED:,}; n = {n:,} was asked for"
        )
    long = _by_law(subject, n, backward) if n > LONGEST_COMPUTED else None
    return _cost(subject, n, backward, long or _counts(subject, n, backward, device))


def _by_law(subject: Layer, n: int, backward: bool) -> Counts | None:
    """None, too, where the layer refuses one of the short lengths, or is built for its longest."""
    if isinstance(subject, Subject) and "max_len" in subject.card.option_names():
        return None
    at = functools.partial(_counts, subject, backward=backward, device="meta")
    try:
        return by_law(at, n, _blocks(subject))
    except Uncountable:
        return None


def _blocks(subject: Layer) -> list[int]:
    """The sizes of blocks and chunks that the options of a layer name."""
    if not isinstance(subject, Subject):
        return []
    card = subject.card
    taken = {each.name: each.default for each in inspect.signature(card.build).parameters.values()}
    own = {} if card.options is None else vars(card.options())
    given = taken | own | dict(subject.options)
    return [size for name in ("block", "chunk") if type(size := given.get(name)) is int]


def _cost(subject: Layer, n: int, backward: bool, counts: Counts) -> Cost:
    maps = (3 if backward else 1) * counts["linear"]
    return Cost(
        subject, n, backward, counts["flops"], counts["flops"] - maps, counts["written"],
        counts["parameters"], counts["largest"], counts["peak"], counts["saved"],
    )  # fmt: skip


def _counts(subject: Layer, n: int, backward: bool, device: str) -> Counts:
    with _in_words(subject, n):
        layer = subject.layer(n, device)
        given = subject.sequence(n, device), subject.extra_inputs(n, device)
        call = _call(layer, *given)
        with _cpu_kernels(), _OnceOnMeta():
            # first, as a layout is made once for each length
            linear, saved = _linear_flops_and_saved(layer, *given)
            booked = _count(call, backward)
    kinds = {
        (what, *kind): value
        for kind, values in booked.by_kind.items()
        for what, value in zip(("largest", "peak"), values, strict=True)
    }
    return {
        "operations": booked.operations, "flops": booked.flops, "linear": linear,
        "sorts": booked.flops_by_operation.get("sort", 0),
        "written": booked.elements_written, "saved": saved,
        "parameters": sum(p.numel() for p in layer.parameters()),
        "largest": booked.largest_tensor.elements, "peak": booked.peak_bytes, **kinds,
    }  # fmt: skip


@remembered
def _faithful(subject: Layer) -> bool:
    """Whether the meta device counts what the CPU counts, at a small length; they are counted once
    more if not, as a layout is made once for each length."""
    return any(_trial(subject, "cpu") == _trial(subject, "meta") is not None for _ in range(2))


def _trial(subject: Layer, device: str) -> tuple[int, LargestTensor] | None:
    """The FLOPs and the largest tensor at a small length; None where it cannot be computed."""
    try:
        given = subject.sequence(TRIAL, device), subject.extra_inputs(TRIAL, device)
        with _cpu_kernels(), _OnceOnMeta():
            booked = _count(_call(subject.layer(TRIAL, device), *given), False)
    except (RuntimeError, ValueError, TypeError, AssertionError):
        return None
    return booked.flops, booked.largest_tensor


def _call(layer: nn.Module, x: Tensor, told: dict[str, Any]) -> Callable[[], Any]:
    return lambda: layer(x, **told)


def _count(call: Callable[[], Any], backward: bool) -> Count:
    with torch.set_grad_enabled(backward):
        return count(call, backward=backward)


def _linear_flops_and_saved(layer: nn.Module, x: Tensor, told: dict[str, Any]) -> tuple[int, int]:
    """The FLOPs of the linear maps, real and complex, in one forward pass, and the bytes that
    autograd keeps for the backward pass, each storage once."""
    given = {id(tensor.untyped_storage()) for tensor in (x, *layer.parameters(), *layer.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}
    linear = 0

    def book(part: nn.Module, args: tuple[Tensor, ...], _: Any) -> None:
        nonlocal linear
        with torch.no_grad():
            linear += count(type(part).forward, part, *args).flops

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in given:
            kept[id(storage)] = storage
        return tensor

    maps = [part for part in layer.modules() if isinstance(part, nn.Linear | ComplexLinear)]
    hooks = [part.register_forward_hook(book) for part in maps]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x, **told)
    bytes_kept = sum(storage.nbytes() for storage in kept.values())
    del out
    for hook in hooks:
        hook.remove()
    return linear, bytes_kept


@once_for_each
def state_bytes(subject: Layer, n: int) -> int | None:
    """Bytes of what the causal layer keeps after n tokens in order to decode the next one.

    None where it is never causal or has no step; Uncountable as for `counted`.
    """
    if not decodes(subject):
        return None
    device = "meta" if _steps_on_meta(subject) else "cpu"
    if device == "cpu" and n > LONGEST_COMPUTED:
        raise Uncountable(
            f"What {subject.label} keeps depends on numbers, so it is counted by computing it, up "
            f"to n = {LONGEST_COMPUTED:,}; n = {n:,} was asked for"
        )
    with _in_words(subject, n):
        return _bytes(after(subject, n, device)[1])


def decodes(subject: Layer) -> bool:
    """Whether the layer can be causal and gives the next token's output from a state."""
    check_subject(subject)
    return subject.can_be_causal and hasattr(subject.layer(1, "meta"), "step")


def after(subject: Layer, n: int, device: str = "cpu") -> tuple[nn.Module, Any]:
    """The causal layer, and its state after n tokens, fed in pieces."""
    layer = subject.caused().layer(n + 1, device)
    x, state = subject.sequence(n, device).detach(), None
    with torch.no_grad():
        for piece in x.split(PIECE, dim=1):
            _, state = layer.step(piece, state)  # type: ignore[operator]
    return layer, state


def _bytes(state: Any) -> int:
    storages = {
        id(leaf.untyped_storage()): leaf.untyped_storage().nbytes()
        for leaf in tree_leaves(state)
        if isinstance(leaf, Tensor)
    }
    return sum(storages.values())


@remembered
def _steps_on_meta(subject: Layer) -> bool:
    """Whether the meta device keeps what the CPU keeps, at a small length."""
    try:
        kept = [_bytes(after(subject, TRIAL, device)[1]) for device in ("cpu", "meta")]
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return False
    return kept[0] == kept[1]


@contextmanager
def _in_words(subject: Layer, n: int) -> Iterator[None]:
    try:
        yield
    except Uncountable:
        raise
    except (ValueError, RuntimeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Uncountable(f"{subject.label} at n = {n:,} cannot be counted: {reason}") from error


class _OnceOnMeta(TorchDispatchMode):
    """Has PyTorch work out the result of an operation on the meta device once for what it is given.

    There most operations are Python functions, which take ten times as long as to allocate their
    results; a loop calls the same ones of the same shapes for each token. What writes into an
    argument or returns a view of one is called each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _aliases(func):
            return func(*args, **kwargs)
        values = (*args, *kwargs.values())
        parts = chain.from_iterable(x if isinstance(x, list | tuple) else (x,) for x in values)
        given = [x for x in parts if isinstance(x, Tensor)]
        if not given or not all(x.is_meta for x in given):
            return func(*args, **kwargs)
        key = func, _described(args), _described(tuple(kwargs.items()))
        if key not in self.known:
            out = func(*args, **kwargs)
            storages = {id(x.untyped_storage()) for x in given}
            fresh = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            if storages & {id(x.untyped_storage()) for x in fresh}:  # _unsafe_view does not say it
                return out
            self.known[key] = tree_map_only(Tensor, _Allocation.like, out)
            return out
        known = self.known[key]
        if isinstance(known, _Allocation):
            return known.made()
        return tree_map_only(_Allocation, _Allocation.made, known)


@functools.cache
def _aliases(func: Any) -> bool:
    """Whether an operation writes into an argument or says that it returns a part of one."""
    values = [] if not hasattr(func, "_schema") else func._schema.arguments + func._schema.returns
    return not values or any(value.alias_info is not None for value in values)


def _described(x: Any) -> Any:
    """What the result on the meta device depends on: numbers by their types, too."""
    if isinstance(x, Tensor):
        return x.shape, x.stride(), x.dtype
    return tuple(map(_described, x)) if isinstance(x, list | tuple) else (type(x), x)


@dataclass(frozen=True)
class _Allocation:
    """A tensor on the meta device that was allocated by an operation."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def like(cls, x: Tensor) -> "_Allocation":
        return cls(tuple(x.shape), x.stride(), x.dtype)

    def made(self) -> Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="meta")


class _CpuKernels(TorchFunctionMode):
    """Gives meta tensors the attention kernel that PyTorch takes on a CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and args[0].is_meta:
            return _attention(*args, **kwargs)
        return func(*args, **kwargs)


_cpu_kernels = _CpuKernels


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    learned = attn_mask is not None and attn_mask.requires_grad
    if q.ndim != 4 or q.shape[-1] != v.shape[-1] or dropout_p or learned:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(~attn_mask, -torch.inf)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: Tensor = kernel(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return out
