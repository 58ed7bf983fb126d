"""The two products of attention: which axes of the operands correspond, and which are summed."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from attnlab.lens.axes import Axis, Layout, aligned, fresh
from attnlab.lens.snapshots import Snapshot
from attnlab.lens.trace.meanings import Elementwise, Product

PRODUCTS = {"matmul", "bmm", "mm", "einsum", "baddbmm", "rmatmul"}


def operands(
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


def align(
    left: Tensor,
    right: Tensor,
    letters: tuple[str, str, str] | None,
    out: Tensor,
    packed: int = 1,
) -> Product | None:
    """The axes of a product; in the rows of ``left`` are ``packed`` heads below one another."""
    if letters is not None:
        return _align_letters(left, right, letters, out)
    lead = fresh(out.shape[:-2])
    below = (Axis(packed),) if packed > 1 else ()
    rows, columns, inner = (
        (*below, Axis(left.shape[-2] // packed)),
        (Axis(right.shape[-1]),),
        (Axis(left.shape[-1]),),
    )
    return Product(
        Snapshot(left, (*aligned(left.shape[:-2], lead), rows, inner)),
        Snapshot(right, (*aligned(right.shape[:-2], lead), inner, columns)),
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
    return Product(Snapshot(left, a), Snapshot(right, b), c, tuple(axes[x] for x in summed))


def _spelt(side: str, dims: int) -> list[str]:
    """One letter per dimension; those under an ellipsis are numbered from the right."""
    before, dots, after = side.partition("...")
    hidden = dims - len(before) - len(after) if dots else 0
    return [*before, *(f"~{i}" for i in range(hidden, 0, -1)), *after]


# ---- a broadcast product of elements, and its sum


def broadcast(left: Tensor, right: Tensor, out: Tensor) -> tuple[Snapshot, Snapshot, Layout]:
    """Both operands of ``left * right`` on the axes of the result."""
    layout = fresh(out.shape)
    return (
        Snapshot(left, aligned(left.shape, layout)),
        Snapshot(right, aligned(right.shape, layout)),
        layout,
    )


def summed(found: Elementwise, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Product | None:
    """The product that ``(left * right).sum(dim, keepdim)`` amounts to."""
    rank = len(found.layout)
    given = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis"))
    keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    if given is None:
        return None
    dims = {d % rank for d in ([given] if isinstance(given, int) else given)}
    axes = tuple(axis for dim in dims for axis in found.layout[dim])
    if not all(found.left.has([axis]) and found.right.has([axis]) for axis in axes):
        return None
    out = [() if i in dims else merged for i, merged in enumerate(found.layout)]
    shape = out if keep else [merged for i, merged in enumerate(out) if i not in dims]
    return Product(found.left, found.right, tuple(shape), axes)
