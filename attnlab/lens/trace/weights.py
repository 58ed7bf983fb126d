"""From scores to weights, and from weights to the attention that they mix."""

import copy
from collections.abc import Callable

from torch import Tensor

from attnlab.lens.axes import Axis, Layout, leaves, size
from attnlab.lens.snapshots import Roles, Snapshot
from attnlab.lens.trace.meanings import Found, Mixed, Product, Scores, Weights

SOFTMAX = {"softmax", "special_softmax", "log_softmax", "special_log_softmax"}

LEARNED = (
    "its {} are parameters and not computed from the input: perhaps a lookup in a learned table "
    "rather than attention"
)
SHARED = (
    "its keys and values are the same for every row of the batch: perhaps a lookup in a table "
    "rather than attention"
)


def softmax_of(scores: Scores, dim: int, used: Snapshot) -> Weights | None:
    """Which axes are queries and which are keys: the softmax runs over the keys."""
    product, wide = scores.product, scores.widened
    softened = scores.layout[dim]
    history = scores.history.copy()
    if wide is not None:
        if softened != (wide.axis,):
            return None
        softened, history.sinks = wide.keys, wide.beside
    keys = leaves(softened)
    left, right = (
        leaves(axis for axes in operand.layout for axis in axes)
        for operand in (product.left, product.right)
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
    beside = [a for a in shown if a in others and a not in keys and a not in summed]
    alone = [a for a in shown if a in queries and a not in others]
    shared = [a for a in beside if a in queries]
    if any(axis.size > 1 and axis not in shared for axis in beside):
        if len(alone) > 1:
            return None
        shared = beside  # the same queries for every row of the batch
    batch, heads, rows = _roles(shared, alone)
    roles = Roles(batch, heads, rows, tuple(keys), product.summed)
    return Weights(
        roles, held_queries, held_keys, scores.layout, used, history, widened=scores.widened
    )


def _roles(shared: list[Axis], alone: list[Axis]) -> tuple[tuple[Axis, ...], ...]:
    """Batch, heads, queries. The last axis that only the queries have is theirs; others are heads
    that share a key head. Of the axes that both have the last is heads, if there are two."""
    rows, extra = alone[-1:], alone[:-1]
    if not shared and extra:
        shared, extra = extra[:1], extra[1:]
    if len(shared) > 1:
        return tuple(shared[:-1]), (*shared[-1:], *extra), tuple(rows)
    return tuple(shared), tuple(extra), tuple(rows)


def mix(
    weights: Weights, product: Product, leads: bool, learned: Callable[[Tensor], bool]
) -> tuple[Found, Mixed] | None:
    """The second product: values summed with the weights over the softmax's axis.

    ``leads`` says whether the weights are the left operand, ``learned`` whether a tensor is a
    parameter of the model.
    """
    mixing, values = (product.left, product.right) if leads else (product.right, product.left)
    if weights.mixed or weights.logarithm:
        return None
    same = same_axes(mixing.layout, weights.layout)
    layout = renamed(values.layout, same)
    summed = {a for a in leaves(renamed((product.summed,), same)[0]) if a.size > 1}
    used = _over(weights, summed)
    if used is None or (learned(used.keys.tensor) and learned(values.tensor)):
        return None
    inside = leaves(axis for axes in layout for axis in axes)
    if any(a.size > 1 and a in inside for a in leaves(used.roles.queries)):
        return None  # each query has values of its own: a gate, not attention
    weights.mixed = True
    out = renamed(product.out, same)
    roles = _with_values(used.roles, inside, out)
    mixed = Mixed(out, roles)
    found = Found(
        "softmax", roles, used.queries, used.keys, Snapshot(values.tensor, layout), used.history,
        used.used, used.dropout, doubt=_doubt(used, values.tensor, learned),
    )  # fmt: skip
    return found, mixed


def _over(weights: Weights, summed: set[Axis]) -> Weights | None:
    """The weights as they are used when they mix over the axes ``summed``: those of the softmax,
    or those that compete for each key."""
    roles = weights.roles
    keys, queries = (
        {a for a in leaves(axes) if a.size > 1} for axes in (roles.keys, roles.queries)
    )
    if summed == keys:
        return weights
    if summed != queries:
        return None
    used = copy.copy(weights)
    used.roles = Roles(roles.batch, roles.heads, roles.keys, roles.queries, roles.width)
    used.queries, used.keys = weights.keys, weights.queries
    used.history = weights.history.copy()
    used.history.over_queries = True
    return used


def _with_values(roles: Roles, inside: list[Axis], out: Layout) -> Roles:
    """Add the axes that only the values have: the last is their width, the others are batch."""
    known = {*leaves(roles.batch), *leaves(roles.heads), *leaves(roles.keys)}
    result = leaves(axis for axes in out for axis in axes)
    free = [axis for axis in inside if axis not in known]
    shared = [a for a in free if _index(out, a) < len(out) - 1]
    width = [axis for axis in free if axis not in shared and axis in result]
    return Roles(
        (*shared, *roles.batch), roles.heads, roles.queries, roles.keys, roles.width, tuple(width)
    )


def _doubt(weights: Weights, values: Tensor, learned: Callable[[Tensor], bool]) -> str | None:
    """Why the computation may not be attention, in a sentence; None without doubt."""
    for name, tensor in (("keys", weights.keys.tensor), ("values", values)):
        if learned(tensor):
            return LEARNED.format(name)
    several = [axis for axis in leaves(weights.roles.batch) if axis.size > 1]
    return SHARED if several and not weights.keys.has(several) else None


def across_heads(weights: Scores | Weights, product: Product, leads: bool) -> Layout | None:
    """The layout after heads were mixed with one another (talking heads); None if the product
    does something else."""
    mixing, mixed = (product.left, product.right) if leads else (product.right, product.left)
    same = same_axes(mixing.layout, weights.layout)
    inside = [axis for axes in mixed.layout for axis in axes if axis.size > 1]
    new = [axis for axis in inside if axis not in product.summed]
    (old,) = renamed((product.summed,), same)
    if len(new) != 1 or len(inside) != 2 or new[0].size != size(old):
        return None
    if not heads_alone(weights, old):
        return None
    return renamed(product.out, {**same, new[0]: old})


def heads_alone(meaning: Scores | Weights, axes: tuple[Axis, ...]) -> bool:
    """Whether ``axes`` are batch or heads, neither queries nor keys."""
    if isinstance(meaning, Scores):
        shared = meaning.product.shared()
    else:
        shared = [*leaves(meaning.roles.batch), *leaves(meaning.roles.heads)]
    return all(axis in shared for axis in leaves(axes) if axis.size > 1)


def same_axes(new: Layout, known: Layout) -> dict[Axis, tuple[Axis, ...]]:
    return {axis: merged for axes, merged in zip(new, known, strict=True) for axis in axes}


def renamed(layout: Layout, same: dict[Axis, tuple[Axis, ...]]) -> Layout:
    return tuple(tuple(new for axis in axes for new in same.get(axis, (axis,))) for axes in layout)


def _index(layout: Layout, axis: Axis) -> int:
    return next((i for i, axes in enumerate(layout) if axis in leaves(axes)), len(layout))
