r"""Softmax attention by tiles, as kernels: FlashAttention's algorithm under any pattern.

A program holds the queries of one tile and goes through the tiles of keys that its row of tiles
*visits*, with the online softmax: running maximum $\mu$, sum $\ell$ and output, rescaled when a
larger score comes (``mechanisms.dense.flash`` has the equations). The backward pass computes the
weights $e^{s_{ij} - L_i}$ again, once by rows for the queries' gradient and once by columns for
those of keys and values, so that no two programs add to the same number.

Which tiles are visited, ``Visits`` says, made from ``Pattern.covers``: empty tiles are left out,
full ones need no mask, and of the mixed ones the masks are stored. Padding is a row of bits beside.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.kernels import launch
from attnlab.core.patterns import FULL, Intervals, Pattern
from attnlab.core.precision import upcast_dtype
from attnlab.core.sparse.blocked import without_padding

TILE = 64
"""Queries and keys of a tile in half precision; half as many where a number takes more bytes, so
that three tiles and the scores fit in the 99 KiB that even small GPUs share."""
WIDEST = 256
"""The widest heads of which the tiles fit in a multiprocessor's shared memory."""
KINDS = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}
EMPTY, WHOLE = -2, -1  # in the table of tiles; other numbers are indices of masks

# ---- which tiles are visited


@dataclass(frozen=True)
class Visits:
    """The tiles of a matrix of scores: a table of them, and lists of those with an allowed pair.

    ``table``   of each tile EMPTY, WHOLE or the index of its mask
    ``masks``   of the mixed tiles, for all sequences or heads alike where these axes are 1
    ``valid``   which keys are no padding, 1 where none is
    """

    table: Int[Tensor, "rows columns"]
    masks: Bool[Tensor, "b h tiles t t"]
    valid: Bool[Tensor, "b m"]

    def lists(self, of: Tensor) -> tuple[Tensor, Tensor]:
        """How many tiles each row of the table (or of its transpose) visits, and which."""
        some = of != EMPTY
        order = some.int().argsort(dim=-1, descending=True, stable=True)
        return some.sum(-1).int().contiguous(), order.int().contiguous()


def visits(mask: Tensor | Pattern | None, q: Tensor, k: Tensor, tile: int) -> Visits:
    """The tiles for queries (b, h, n, d), which are the last of m positions, and keys."""
    n, m = q.shape[-2], k.shape[-2]
    if isinstance(mask, Tensor):
        every = torch.ones(1, m, dtype=torch.bool, device=q.device)
        return Visits(*_of_a_mask(mask.expand(*mask.shape[:-2], n, m), tile), every)
    mask = FULL if mask is None else mask
    mask.refuse_misfit(m, *q.shape[:2])
    structure, valid = without_padding(mask.sized(m))
    known = torch.ones(1, m, dtype=torch.bool) if valid is None else valid
    return Visits(*_of_a_pattern(structure, n, m, tile, q.device), known.to(q.device))


def _of_a_mask(mask: Tensor, tile: int) -> tuple[Tensor, Tensor]:
    """All tiles are mixed: whether they are, would have to be read."""
    mask = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    (n, m), (rows, columns) = mask.shape[-2:], (-(-size // tile) for size in mask.shape[-2:])
    padded = torch.nn.functional.pad(mask, (0, columns * tile - m, 0, rows * tile - n))
    tiles = padded.unflatten(-1, (columns, tile)).unflatten(-3, (rows, tile)).transpose(-3, -2)
    table = torch.arange(rows * columns, device=mask.device, dtype=torch.int32)
    return table.view(rows, columns), tiles.flatten(2, 3).contiguous()


@functools.lru_cache(maxsize=32)
def _of_a_pattern(
    pattern: Pattern, n: int, m: int, tile: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """It is kept: the layers of a model, and its steps, ask for the same."""
    rows, columns = Intervals.blocks(m - n, m, tile), Intervals.blocks(0, m, tile)
    covered = pattern.covers(rows[:, None], columns)
    mixed = (covered.some & ~covered.every).expand(len(rows.first), len(columns.first))
    table = torch.where(covered.some, WHOLE, EMPTY).expand(mixed.shape).int().contiguous()
    table[mixed] = torch.arange(int(mixed.sum()), dtype=torch.int32)
    at = torch.arange(tile)
    i, j = (first[where][:, None] + at for first, where in zip(
        (rows.first, columns.first), mixed.nonzero(as_tuple=True), strict=True
    ))  # fmt: skip
    i, j = (x.clamp(max=m - 1).to(device) for x in (i[:, :, None], j[:, None, :]))
    masks = pattern.to(device).allows(i, j)
    masks = masks.expand(torch.broadcast_shapes(masks.shape, i.shape, j.shape))
    masks = masks.reshape(*[1] * (5 - masks.ndim), *masks.shape)
    return table.to(device), masks.contiguous()


# ---- the kernels


@triton.jit
def scores_of(  # type: ignore[no-untyped-def]
    queries, keys, row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE: tl.constexpr
):
    """The scores of a tile; −∞ where a pair is masked, padding, or beyond the end."""
    allowed = (row < n)[:, None] & (column < m)[None, :]
    allowed &= (tl.load(valid_ptr + column, mask=column < m, other=0) != 0)[None, :]
    inside = (row % TILE)[:, None] * TILE + (column % TILE)[None, :]
    at = mask_ptr + which.to(tl.int64) * TILE * TILE + inside
    allowed &= tl.load(at, mask=(inside >= 0) & (which >= 0), other=1) != 0
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    return tl.where(allowed, scores, float("-inf"))


@triton.jit
def rows_of(  # type: ignore[no-untyped-def]
    ptr, row, size, width, WIDE: tl.constexpr, KIND: tl.constexpr
):
    """Some rows of a matrix (size, width); zeros beyond it."""
    at = tl.arange(0, WIDE)
    there = (row < size)[:, None] & (at < width)[None, :]
    return tl.load(ptr + row[:, None] * width + at[None, :], mask=there, other=0).to(KIND)


@triton.jit
def put_rows(ptr, values, row, size, width, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, WIDE)
    there = (row < size)[:, None] & (at < width)[None, :]
    tl.store(ptr + row[:, None] * width + at[None, :], values.to(ptr.dtype.element_ty), mask=there)


@triton.jit
def attend_rows(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,
    table_ptr, count_ptr, list_ptr, mask_ptr, valid_ptr,
    mask_b, mask_h, valid_b, h, n, m, d, e, columns, scale,
    TILE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp (+∞ without allowed keys) of one tile of queries of one head."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tile * TILE + tl.arange(0, TILE)
    mask_ptr += head // h * mask_b + head % h * mask_h
    valid_ptr += head // h * valid_b
    queries = rows_of(q_ptr + head * n * d, row, n, d, D, KIND)
    wide = lse_ptr.dtype.element_ty
    largest = tl.full([TILE], float("-inf"), wide)
    total, out = tl.zeros([TILE], wide), tl.zeros([TILE, E], wide)
    for visit in range(0, tl.load(count_ptr + tile)):
        seen = tl.load(list_ptr + tile * columns + visit)
        column = seen * TILE + tl.arange(0, TILE)
        which = tl.load(table_ptr + tile * columns + seen)
        keys = rows_of(k_ptr + head * m * d, column, m, d, D, KIND)
        values = rows_of(v_ptr + head * m * e, column, m, e, E, KIND)
        scores = scores_of(
            queries, keys, row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE
        )
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        shift = tl.where(raised == float("-inf"), 0.0, raised)
        fade, powers = tl.exp(largest - shift), tl.exp(scores - shift[:, None])
        total = total * fade + tl.sum(powers, axis=1)
        seen_values = tl.dot(powers.to(values.dtype), values, input_precision="ieee")
        out, largest = out * fade[:, None] + seen_values, raised
    empty = total == 0
    total = tl.where(empty, 1.0, total)
    put_rows(out_ptr + head * n * e, out / total[:, None], row, n, e, E)
    lse = tl.where(empty, float("inf"), largest + tl.log(total))
    tl.store(lse_ptr + head * n + row, lse, mask=row < n)


@triton.jit
def scores_gradient(  # type: ignore[no-untyped-def]
    queries, keys, values, d_out, lse, delta,
    row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE: tl.constexpr,
):  # fmt: skip
    """The weights of a tile, computed again, and the gradient of its scores."""
    scores = scores_of(queries, keys, row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE)
    weights = tl.exp(scores - lse[:, None])
    d_weights = tl.dot(d_out, tl.trans(values), input_precision="ieee")
    return weights, weights * (d_weights - delta[:, None]) * scale


@triton.jit
def queries_gradient(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_q_ptr,
    table_ptr, count_ptr, list_ptr, mask_ptr, valid_ptr,
    mask_b, mask_h, valid_b, h, n, m, d, e, columns, scale,
    TILE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """The gradient of one tile of queries, over the tiles of keys that it visits."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = tile * TILE + tl.arange(0, TILE)
    mask_ptr += head // h * mask_b + head % h * mask_h
    valid_ptr += head // h * valid_b
    queries = rows_of(q_ptr + head * n * d, row, n, d, D, KIND)
    d_out = rows_of(d_out_ptr + head * n * e, row, n, e, E, KIND)
    lse = tl.load(lse_ptr + head * n + row, mask=row < n, other=float("inf"))
    delta = tl.load(delta_ptr + head * n + row, mask=row < n, other=0)
    d_q = tl.zeros([TILE, D], lse.dtype)
    for visit in range(0, tl.load(count_ptr + tile)):
        seen = tl.load(list_ptr + tile * columns + visit)
        column = seen * TILE + tl.arange(0, TILE)
        which = tl.load(table_ptr + tile * columns + seen)
        keys = rows_of(k_ptr + head * m * d, column, m, d, D, KIND)
        values = rows_of(v_ptr + head * m * e, column, m, e, E, KIND)
        _, d_scores = scores_gradient(
            queries, keys, values, d_out, lse, delta,
            row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE,
        )  # fmt: skip
        d_q += tl.dot(d_scores.to(keys.dtype), keys, input_precision="ieee")
    put_rows(d_q_ptr + head * n * d, d_q, row, n, d, D)


@triton.jit
def keys_and_values_gradient(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_k_ptr, d_v_ptr,
    table_ptr, count_ptr, list_ptr, mask_ptr, valid_ptr,
    mask_b, mask_h, valid_b, h, n, m, d, e, rows, columns, scale,
    TILE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """The gradients of one tile of keys and values, over the tiles of queries that visit it."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column = tile * TILE + tl.arange(0, TILE)
    mask_ptr += head // h * mask_b + head % h * mask_h
    valid_ptr += head // h * valid_b
    keys = rows_of(k_ptr + head * m * d, column, m, d, D, KIND)
    values = rows_of(v_ptr + head * m * e, column, m, e, E, KIND)
    wide = lse_ptr.dtype.element_ty
    d_k, d_v = tl.zeros([TILE, D], wide), tl.zeros([TILE, E], wide)
    for visit in range(0, tl.load(count_ptr + tile)):
        seen = tl.load(list_ptr + tile * rows + visit)
        row = seen * TILE + tl.arange(0, TILE)
        which = tl.load(table_ptr + seen * columns + tile)
        queries = rows_of(q_ptr + head * n * d, row, n, d, D, KIND)
        d_out = rows_of(d_out_ptr + head * n * e, row, n, e, E, KIND)
        lse = tl.load(lse_ptr + head * n + row, mask=row < n, other=float("inf"))
        delta = tl.load(delta_ptr + head * n + row, mask=row < n, other=0)
        weights, d_scores = scores_gradient(
            queries, keys, values, d_out, lse, delta,
            row, column, which, mask_ptr, valid_ptr, n, m, scale, TILE,
        )  # fmt: skip
        d_v += tl.dot(tl.trans(weights.to(d_out.dtype)), d_out, input_precision="ieee")
        d_k += tl.dot(tl.trans(d_scores.to(queries.dtype)), queries, input_precision="ieee")
    put_rows(d_k_ptr + head * m * d, d_k, column, m, d, D)
    put_rows(d_v_ptr + head * m * e, d_v, column, m, e, E)


# ---- launched


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, seen: Visits, scale: float
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (x.contiguous() for x in (q, k, v))
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(q.shape[:-1], dtype=upcast_dtype(q))
        counts, lists = seen.lists(seen.table)
        if out.numel():
            launch(
                attend_rows, (len(seen.table), q.shape[0] * q.shape[1]),
                q, k, v, out, lse, seen.table, counts, lists,
                *_shared(q, k, v, seen), seen.table.shape[1], scale, **_sizes(q, v, seen),
            )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.seen, ctx.scale = seen, scale
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("the triton form")
        q, k, v, out, lse = ctx.saved_tensors
        d_q, d_k, d_v = (torch.zeros_like(x) for x in (q, k, v))
        seen, d_out = ctx.seen, d_out.contiguous()
        delta = (d_out.to(lse.dtype) * out).sum(dim=-1)
        if out.numel() and k.numel():
            rows, columns = seen.table.shape
            heads, shared = q.shape[0] * q.shape[1], _shared(q, k, v, seen)
            launch(
                queries_gradient, (rows, heads),
                q, k, v, d_out, lse, delta, d_q, seen.table, *seen.lists(seen.table), *shared,
                columns, ctx.scale, **_sizes(q, v, seen),
            )  # fmt: skip
            launch(
                keys_and_values_gradient, (columns, heads),
                q, k, v, d_out, lse, delta, d_k, d_v, seen.table, *seen.lists(seen.table.mT),
                *shared, rows, columns, ctx.scale, **_sizes(q, v, seen),
            )  # fmt: skip
        return d_q, d_k, d_v, None, None


def _shared(q: Tensor, k: Tensor, v: Tensor, seen: Visits) -> tuple[Any, ...]:
    """Masks, their strides (0 along an axis that is shared), and the sizes of the tensors."""
    masks, valid = seen.masks, seen.valid.contiguous()
    strides = [0 if size == 1 else masks.stride(axis) for axis, size in enumerate(masks.shape[:2])]
    of_valid = 0 if len(valid) == 1 else valid.stride(0)
    sizes = q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    held = (masks if masks.numel() else masks.new_zeros(1)).view(torch.uint8)
    return held, valid.view(torch.uint8), *strides, of_valid, *sizes


def _sizes(q: Tensor, v: Tensor, seen: Visits) -> dict[str, Any]:
    """What a kernel is compiled for; a product on a GPU has at least 16 rows and columns.

    The interpreter multiplies the bits of bfloat16 as integers, so there it is widened.
    """
    kind = torch.promote_types(q.dtype, v.dtype)
    if kind == torch.bfloat16 and type(attend_rows).__name__ == "InterpretedFunction":
        kind = torch.float32
    wide = (max(16, triton.next_power_of_2(x.shape[-1])) for x in (q, v))
    return {"TILE": seen.masks.shape[-1], **dict(zip("DE", wide, strict=True)), "KIND": KINDS[kind]}


@torch.compiler.disable  # it looks at no kernel of the interpreter
def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | Pattern | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention (b, h, n, e) over the pairs that ``mask`` allows, and the log-sum-exp (b, h, n) of
    each row's scores; first derivatives only. Heads wider than 256 are refused,
    and on a GPU float64."""
    widest = max(q.shape[-1], v.shape[-1])
    if widest > WIDEST:
        raise ValueError(
            f"triton cannot run here: heads should be at most {WIDEST} wide, these are {widest}; "
            "use another form of this page"
        )
    if q.dtype == torch.float64 and type(attend_rows).__name__ != "InterpretedFunction":
        raise ValueError(
            "triton cannot run here: on a GPU its matrix products have no float64; use another "
            "form of this page"
        )
    small = widest <= 128 and q.element_size() == 2
    tile = TILE if small else TILE // 2
    return _Tiled.apply(q, k, v, visits(mask, q, k, tile), scale)
