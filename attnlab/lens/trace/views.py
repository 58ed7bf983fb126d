"""Calls that only move values: views, permutations, casts, splits and concatenations."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.lens.axes import Axis, Layout, leaves, permuted, size, viewed
from attnlab.lens.trace.meanings import Arguments, Mixed, Part, Scores, Weights, Widened

VIEWS = {
    "view", "reshape", "flatten", "unflatten", "contiguous", "squeeze", "unsqueeze", "view_as",
    "reshape_as", "detach", "clone", "alias",
}  # fmt: skip
CASTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"}
PERMUTATIONS = {
    "transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "mT", "T", "t",
}  # fmt: skip
SPLITS = {"split", "chunk", "tensor_split", "unbind", "unsafe_split", "unsafe_chunk"}
PART = (
    "its {} queries are only some: the model puts the result beside others, of which not all were "
    "recognised as attention"
)
JOINS = {"cat", "concat", "concatenate", "stack"}


def moved(name: str, func: Any, layout: Layout, call: Arguments, out: Tensor) -> Layout | None:
    """The layout after a call that only moves values; None if it computes something."""
    args, kwargs = call
    if name in PERMUTATIONS:
        return permuted(layout, lambda meta: func(meta, *args[1:], **kwargs))
    if name in CASTS:
        return layout
    if name in VIEWS or (name == "getitem" and only_new_axes(args[1])):
        return viewed(layout, tuple(out.shape))
    return None


def only_new_axes(index: Any) -> bool:
    index = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or (isinstance(part, slice) and part == slice(None))
        for part in index
    )


def heads_below(given: Tensor, out: Tensor) -> int:
    """How many heads a view of (…, h, n, d) put below one another: (…, g, h / g · n, d); else 0."""
    if given.dim() != out.dim() or out.dim() < 3:
        return 0
    rest = (*given.shape[:-3], given.shape[-1]) == (*out.shape[:-3], out.shape[-1])
    heads, groups = given.shape[-3], out.shape[-3]
    return heads // groups if rest and heads > groups and heads % groups == 0 else 0


# ---- splits and concatenations


def parts(
    name: str, mixed: Mixed, given: Tensor, pieces: Sequence[Tensor], call: Arguments
) -> list[Part]:
    """The meaning of each of the equal ``pieces`` of ``given``; none if they are not equal."""
    args, kwargs = call
    position = 1 if name == "unbind" else 2
    dim = _argument(args, kwargs, position, "dim") % given.dim()
    count, gone = len(pieces), name == "unbind"
    if any(piece.shape != pieces[0].shape for piece in pieces):
        return []
    split = viewed((mixed.layout[dim],), (count, 1 if gone else pieces[0].shape[dim]))
    if split is None:
        return []
    layout = (*mixed.layout[:dim], *(() if gone else (split[1],)), *mixed.layout[dim + 1 :])
    return [Part(layout, mixed.roles, split[0], index, count) for index in range(count)]


def joined(name: str, found: Sequence[Any], out: Tensor, call: Arguments) -> Mixed | None:
    """All parts in their order, side by side along another dimension."""
    first = found[0]
    if [part.index for part in found] != list(range(first.count)):
        return None
    if any(part.outer != first.outer or part.layout != first.layout for part in found):
        return None
    dim = _join_dim(call, out)
    stacked = name == "stack"
    here = first.outer if stacked else (*first.outer, *first.layout[dim])
    rest = first.layout[dim if stacked else dim + 1 :]
    return Mixed((*first.layout[:dim], here, *rest), first.roles)


def beside(name: str, results: Sequence[Mixed], out: Tensor, call: Arguments) -> None:
    """Results joined along their queries with others that nobody recognised: each is but a part."""
    dim = _join_dim(call, out)
    for mixed in results:
        rows = leaves(mixed.roles.queries)
        if name != "stack" and any(axis in rows for axis in leaves(mixed.layout[dim])):
            mixed.roles.doubts.append(PART.format(size(rows)))


def widened(
    at: int, scores: Scores, tensors: Sequence[Tensor], out: Tensor, call: Arguments
) -> Scores:
    """Scores that share a dimension with other columns, for example attention sinks."""
    dim = _join_dim(call, out)
    axis = Axis(out.shape[dim])
    start = sum(tensor.shape[dim] for tensor in tensors[:at])
    layout = (*scores.layout[:dim], (axis,), *scores.layout[dim + 1 :])
    wide = Widened(axis, scores.layout[dim], start)
    return Scores(scores.product, layout, scores.history.copy(), wide)


def narrowed(func: Any, meaning: Weights, call: Arguments, given: Tensor) -> Layout | None:
    """The layout after a slice that leaves exactly the keys of widened weights."""
    args, kwargs = call
    wide = meaning.widened
    if wide is None or any(isinstance(value, Tensor) for value in args[1:]):
        return None
    dim = meaning.layout.index((wide.axis,))
    places = torch.arange(wide.axis.size).view(-1, *[1] * (given.dim() - dim - 1))
    kept = func(places.expand(given.shape), *args[1:], **kwargs)
    expected = places[wide.start : wide.start + size(wide.keys)]
    shape = (*given.shape[:dim], len(expected), *given.shape[dim + 1 :])
    if kept.shape != shape or not bool((kept == expected).all()):
        return None
    return (*meaning.layout[:dim], wide.keys, *meaning.layout[dim + 1 :])


def _join_dim(call: Arguments, out: Tensor) -> int:
    return _argument(*call, 1, "dim") % out.dim()


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> int:
    return int(args[position] if len(args) > position else kwargs.get(name, 0))
