"""Attention over a layout: blocks of queries, each with the keys that its queries attend to.

A batch of blocks is computed at once. Where positions follow one another at constant steps, as the
keys of windows, queries, keys and values are read in place, through views that overlap; otherwise
they are gathered. A layout may have several parts, each with its own order of the queries. A query
then has an output in each part, and these are combined by their log-sum-exps: with
$\\ell_p = \\log \\sum_{j \\in p} e^{s_j}$,

$$o = \\sum_p e^{\\ell_p - \\ell} o_p,\\qquad \\ell = \\log \\sum_p e^{\\ell_p}$$

The backward pass needs only the combined log-sum-exp and output: with them the gradient of a block
is that of ordinary attention (Dao et al. 2022, section 3.1). So each block is computed a second
time, and no tensor of the size of the pairs is kept.

On a CPU a block is computed by the kernel of PyTorch's ``scaled_dot_product_attention``; elsewhere,
with dropout, or where values and keys differ in width, by the equation. The gradients of small
blocks with consecutive keys are computed by the equation on a CPU, too: its five batched products
take about two thirds of the time of the kernel's backward pass.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.options import Size
from attnlab.core.patterns import And, Padding, Pattern, both, padding, read
from attnlab.core.precision import no_autocast, upcast_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.sparse.layout import Batch, Layout, layout
from attnlab.core.tracing import on_cpu, transformed

# The most bytes of keys, values and weights at once: on a CPU they fit its cache.
PIECE = {"cpu": 4 << 20, "else": 256 << 20}

KERNEL_ROWS = 128  # from so many queries in a block on, the kernel's backward pass is as fast

_aten = torch.ops.aten


@checked
def blocked(
    q: Queries, k: Keys, v: Values, pattern: Pattern, *,
    scale: float | None = None, dropout: float = 0.0, block: Size | None = None,
    allow_fully_masked: bool = False,
) -> Outputs:  # fmt: skip
    """Softmax attention over the pairs that ``pattern`` allows, at the cost of these pairs.

    ``dropout`` drops weights, as in training. ``block`` fixes the number of queries in a block;
    by default the layout chooses it. A query without allowed keys gives zeros, with a warning
    unless ``allow_fully_masked``. First derivatives only.
    """
    check_dropout(dropout)
    pattern.refuse_misfit(k.shape[-2], q.shape[0])
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    pattern, valid = without_padding(pattern)
    valid = None if valid is None else valid.to(q.device)
    seed = torch.randint(2**31, (1,)) if dropout else torch.zeros(0, dtype=torch.int64)
    if transformed():
        followed: Tensor = _Followed.apply(q, k, v, valid, pattern.key, block, scale, dropout, seed)
        return followed
    if torch.compiler.is_compiling():
        return _compiled(q, k, v, valid, pattern.key, block, scale, dropout, seed)
    out, lse = _run(q, k, v, valid, pattern, block, scale, dropout, seed)
    if not allow_fully_masked:
        _warn_of_fully_masked(q, k, pattern, block)
    note("log_sum_exp", lse)
    return out


def check_dropout(dropout: float) -> None:
    """A ValueError unless ``dropout`` is a probability below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is a probability below 1, got {dropout}")


def _warn_of_fully_masked(q: Tensor, k: Tensor, pattern: Pattern, block: int | None) -> None:
    for heads, seen in by_pattern(pattern, q.shape[1]):
        if rows := layout(seen, q.shape[-2], k.shape[-2], block).fully_masked:
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            where = "" if len(heads) == q.shape[1] else f" in head {heads[0]}"
            warnings.warn(
                f"query {rows[0]}{more} attends to nothing{where}, so its output is zero, under "
                f"the pattern {seen}",
                stacklevel=4,  # the caller of blocked
            )


def _run(
    q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, pattern: Pattern, block: int | None,
    scale: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and log-sum-exp (+∞ for a row without allowed keys)."""
    first_seed = int(seed) if len(seed) else 0
    outs, lses, n, m = [], [], q.shape[-2], k.shape[-2]
    groups = by_pattern(pattern, q.shape[1])
    for group, (heads, of_heads) in enumerate(groups):
        options = _Options(scale, dropout, first_seed + group)
        plan = layout(of_heads, n, m, block, str(q.device))
        part = (x if len(heads) == q.shape[1] else x[:, heads] for x in (q, k, v))
        with no_autocast(q.device):
            out, lse = _Blocked.apply(*part, valid, plan, options)
        outs.append(out)
        lses.append(lse)
    if len(groups) == 1:
        return outs[0], lses[0]
    order = torch.tensor([head for heads, _ in groups for head in heads]).argsort().to(q.device)
    return torch.cat(outs, dim=1)[:, order], torch.cat(lses, dim=1)[:, order]


# To torch.compile, torch.export and torch.func the form is one custom operator, which takes the
# pattern as text (``key``). Its backward pass runs the forward pass again, so a compiled training
# step runs that twice.


@torch.library.custom_op("attnlab::blocked", mutates_args=())
def _compiled(
    q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, key: str, block: int | None,
    scale: float, dropout: float, seed: Tensor,
) -> Tensor:  # fmt: skip
    return _run(q, k, v, valid, read(key), block, scale, dropout, seed)[0].contiguous()


@_compiled.register_fake
def _shape(q: Tensor, k: Tensor, v: Tensor, *_: object) -> Tensor:
    return q.new_empty(*q.shape[:-1], v.shape[-1])


@torch.library.custom_op("attnlab::blocked_backward", mutates_args=())
def _compiled_backward(
    d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, key: str,
    block: int | None, scale: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    with torch.enable_grad():
        q, k, v = leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out, _ = _run(q, k, v, valid, read(key), block, scale, dropout, seed)
        dq, dk, dv = torch.autograd.grad(out, leaves, d_out)
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


@_compiled_backward.register_fake
def _shapes(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, valid, *ctx.rest, seed = inputs
    ctx.save_for_backward(q, k, v, valid, seed)


def _differentiate(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, valid, seed = ctx.saved_tensors
    by = _FollowedBackward.apply if transformed() else _compiled_backward
    grads = by(d_out, q, k, v, valid, *ctx.rest, seed)
    return *grads, None, None, None, None, None, None


_compiled.register_autograd(_differentiate, setup_context=_keep)


def _folded(operator: Any) -> Any:
    """The rule of ``vmap`` for an operator: the axis that it hides becomes part of the batch."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        size, at = info.batch_size, next(i for i, x in enumerate(given) if isinstance(x, str))
        hidden: list[Any] = [
            x if x is None else x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(given[:at], in_dims, strict=False)
        ]
        *tensors, valid = hidden
        valid = None if valid is None else valid.expand(-1, tensors[0].shape[1], -1)
        folded: list[Any] = [None if x is None else x.flatten(0, 1) for x in (*tensors, valid)]
        read(given[at]).refuse_misfit(folded[-2].shape[-2], folded[-2].shape[0])
        *options, seed = given[at:]
        seed = seed if in_dims[-1] is None else seed.select(in_dims[-1], 0)
        out = operator(*folded, *options, seed)
        if isinstance(out, Tensor):
            return out.unflatten(0, (size, -1)), 0
        return tuple(x.unflatten(0, (size, -1)) for x in out), (0,) * len(out)

    return rule


class _FollowedBackward(torch.autograd.Function):
    """The backward operator for ``torch.func``, to which every gradient has one of its own."""

    generate_vmap_rule = True
    forward = staticmethod(_compiled_backward)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        return None

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        forbid_double_backward("blocked")


class _Followed(torch.autograd.Function):
    """The operator for ``torch.func``, whose ``grad`` does not follow ``register_autograd``."""

    generate_vmap_rule = True
    forward = staticmethod(_compiled)
    setup_context = staticmethod(_keep)
    backward = staticmethod(_differentiate)


_compiled.register_vmap(_folded(_compiled))
_compiled_backward.register_vmap(_folded(_compiled_backward))


def without_padding(pattern: Pattern) -> tuple[Pattern, Tensor | None]:
    """The pattern without the paddings it is joined with by ``&``, and the keys valid in all."""
    if isinstance(pattern, Padding):
        return padding(None), pattern.valid
    if not isinstance(pattern, And):
        return pattern, None
    (left, one), (right, other) = without_padding(pattern.left), without_padding(pattern.right)
    valid = one if other is None else other if one is None else one & other
    return both(left, right), valid


def by_pattern(pattern: Pattern, heads: int) -> list[tuple[list[int], Pattern]]:
    """Groups of heads with equal patterns: the heads, and their pattern."""
    made_for = pattern.heads()
    if made_for is None:
        return [(list(range(heads)), pattern)]
    if made_for != heads:
        raise ValueError(f"the pattern is for {made_for} heads, but there are {heads}")
    groups: dict[Pattern, list[int]] = {}
    for head in range(heads):
        groups.setdefault(pattern.of_head(head), []).append(head)
    return [(chosen, of_heads) for of_heads, chosen in groups.items()]


@dataclass(frozen=True)
class _Options:
    scale: float
    dropout: float
    seed: int


@dataclass(frozen=True)
class _Piece:
    """Some blocks of a batch for some heads (of b·h), their mask, and the factors for dropout."""

    batch: Batch
    heads: slice
    bias: Tensor | None  # 0 where allowed, −∞ elsewhere; axes may have size 1
    first: bool  # in the layout's first part, so that its queries have no output yet
    keep: Tensor | None

    def bias_of(self, q: Tensor) -> Tensor | None:
        """The bias in the shape that the kernel asks for."""
        return None if self.bias is None else self.bias.expand(*q.shape[:3], self.bias.shape[-1])

    @property
    def fully_masked(self) -> Tensor | None:
        return None if self.bias is None else self.bias.amax(-1) == -torch.inf


def _pieces(
    plan: Layout, q: Tensor, width: int, valid: Tensor | None, options: _Options
) -> Iterator[_Piece]:
    """The batches of the layout, split so that each piece needs about ``PIECE`` bytes at most.

    A piece has many blocks of few heads: the keys of one head can be read in place.
    """
    b, h = q.shape[:2]
    generator = torch.Generator(q.device).manual_seed(options.seed) if options.dropout else None
    budget = PIECE["cpu" if on_cpu(q) else "else"] // q.element_size()
    for part_number, part in enumerate(plan.parts):
        for batch in part:
            rows, columns = batch.queries.shape[1], batch.keys.shape[1]
            gathered = width if batch.key_steps is None else 0
            per_block = columns * (gathered + 2 * rows)  # keys and values; weights, gradients
            for some in batch.split(max(1, budget // max(1, per_block))):
                blocks = len(some.queries)
                bias = _bias(some, valid, b, h, q.dtype)
                at_once = max(1, budget // (per_block * blocks))
                for start in range(0, b * h, at_once):
                    heads = slice(start, min(start + at_once, b * h))
                    keep = None
                    if generator is not None:
                        shape = (heads.stop - start, blocks, rows, columns)
                        chance = torch.rand(shape, generator=generator, device=q.device)
                        keep = (chance >= options.dropout).to(upcast_dtype(q)) / (
                            1 - options.dropout
                        )
                    of_heads = bias[heads] if bias is not None and len(bias) > 1 else bias
                    yield _Piece(some, heads, of_heads, part_number == 0, keep)


def _bias(batch: Batch, valid: Tensor | None, b: int, h: int, dtype: torch.dtype) -> Tensor | None:
    """The mask of a batch with the padding as a bias: (b·h, blocks, rows, columns)."""
    mask = batch.mask
    if valid is not None:
        seen = valid[:, batch.keys][:, None, :, None, :]  # (b, 1, blocks, 1, columns)
        mask = seen if mask is None else mask & seen
    if mask is None:
        return None
    mask = mask[None] if mask.dim() == 3 else mask.expand(b, h, *mask.shape[-3:]).flatten(0, 1)
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, -torch.inf)


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, plan: Layout,
        options: _Options,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        # With a batch of one, flat heads are strided, and index_select would copy all each time.
        flat = [x.flatten(0, 1).contiguous() for x in (q, k, v)]
        merged = len(plan.parts) > 1
        wide = upcast_dtype(q) if merged else q.dtype
        out = flat[0].new_zeros(*flat[0].shape[:-1], v.shape[-1], dtype=wide)
        lse = flat[0].new_full(flat[0].shape[:-1], -torch.inf, dtype=upcast_dtype(q))
        for piece in _pieces(plan, q, q.shape[-1] + v.shape[-1], valid, options):
            batch, (qs, ks, vs) = piece.batch, (x[piece.heads] for x in flat)
            taken = batch.take_queries(qs), batch.take_keys(ks), batch.take_keys(vs)
            some, some_lse = _attend(*taken, piece, options.scale)
            to, to_lse = out[piece.heads], lse[piece.heads]
            if not piece.first:
                so_far = batch.take_queries(to), batch.take_queries(to_lse)
                some, some_lse = _merge(*so_far, some, some_lse)
            batch.put(to, some)
            batch.put(to_lse, some_lse)
        out = out.to(q.dtype)
        # With +∞ for a row without keys, e^(score − lse) in the backward pass is 0, not NaN.
        lse = lse.masked_fill_(lse == -torch.inf, torch.inf)
        ctx.save_for_backward(*flat, valid, out, lse)
        ctx.plan, ctx.options, ctx.heads = plan, options, q.shape[:2]
        lse = lse.unflatten(0, q.shape[:2])
        ctx.mark_non_differentiable(lse)
        return out.unflatten(0, q.shape[:2]), lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("blocked")
        q, k, v, valid, out, lse = ctx.saved_tensors
        do = d_out.flatten(0, 1).contiguous()
        dq, dk, dv = (
            torch.zeros_like(x, dtype=upcast_dtype(q), memory_format=torch.contiguous_format)
            for x in (q, k, v)
        )
        like = q.unflatten(0, ctx.heads)
        for piece in _pieces(ctx.plan, like, q.shape[-1] + v.shape[-1], valid, ctx.options):
            batch, heads = piece.batch, piece.heads
            block = _Block(*(batch.take_queries(x[heads]) for x in (do, q, out, lse)))
            ks, vs = (batch.take_keys(x[heads]) for x in (k, v))
            with no_autocast(q.device):
                d_q, d_k, d_v = _gradients(block, ks, vs, piece, ctx.options.scale)
            batch.add_queries(dq[heads], d_q)
            batch.add_keys(dk[heads], d_k)
            batch.add_keys(dv[heads], d_v)
        grads = (x.to(q.dtype).unflatten(0, ctx.heads) for x in (dq, dk, dv))
        return *grads, None, None, None


def _merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """The output and log-sum-exp over two disjoint sets of keys, from those over each of them."""
    both_lse = torch.logaddexp(lse, more_lse)
    shift = both_lse.masked_fill(both_lse == -torch.inf, 0)
    merged = out * torch.exp(lse - shift)[..., None] + more * torch.exp(more_lse - shift)[..., None]
    return merged, both_lse


# ---- one piece, forward and backward


def _by_kernel(q: Tensor, v: Tensor, piece: _Piece) -> bool:
    return on_cpu(q) and q.shape[-1] == v.shape[-1] and piece.keep is None


def _attend(q: Tensor, k: Tensor, v: Tensor, piece: _Piece, scale: float) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of blocks (−∞ for a row without allowed keys)."""
    if _by_kernel(q, v, piece):
        out, lse = _aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, attn_mask=piece.bias_of(q), scale=scale
        )
        if piece.fully_masked is not None:
            lse = lse.masked_fill(piece.fully_masked, -torch.inf)
        return out, lse
    scores = q.to(upcast_dtype(q)) @ k.to(upcast_dtype(q)).mT * scale
    if piece.bias is not None:
        scores += piece.bias
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None])
    if piece.keep is not None:
        weights = weights * piece.keep
    return weights @ v.to(weights.dtype), lse


class _Block(NamedTuple):
    """For the queries of some blocks: gradient of the output, queries, output and log-sum-exp."""

    do: Tensor
    q: Tensor
    out: Tensor
    lse: Tensor


def _gradients(
    block: _Block, k: Tensor, v: Tensor, piece: _Piece, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v of blocks, given output and log-sum-exp over all parts."""
    q, steps = block.q, piece.batch.key_steps
    small = q.shape[2] < KERNEL_ROWS and steps is not None and steps.place <= 1
    if _by_kernel(q, v, piece) and not small:
        by_kernel: tuple[Tensor, Tensor, Tensor] = (
            _aten._scaled_dot_product_flash_attention_for_cpu_backward(
                block.do, q, k, v, block.out, block.lse, 0.0, False,
                attn_mask=piece.bias_of(q), scale=scale,
            )
        )  # fmt: skip
        return by_kernel
    wide, blocks = upcast_dtype(q), q.shape[:2]
    # One batch of matrices. With one head the overlapping views of its keys stay views.
    do, q, out, k, v = (x.to(wide).flatten(0, 1) for x in (block.do, q, block.out, k, v))
    q = q * scale
    weights = torch.baddbmm(-block.lse.flatten(0, 1)[..., None], q, k.mT)
    if piece.bias is not None:
        weights.unflatten(0, blocks).add_(piece.bias)
    kept = weights.exp_()
    d_weights = torch.bmm(do, v.mT)
    if piece.keep is not None:
        keep = piece.keep.flatten(0, 1)
        d_weights, kept = d_weights.mul_(keep), weights * keep
    d_scores = d_weights.sub_((do * out).sum(-1, keepdim=True)).mul_(weights)
    grads = torch.bmm(d_scores, k).mul_(scale), torch.bmm(d_scores.mT, q), torch.bmm(kept.mT, do)
    d_q, d_k, d_v = (x.unflatten(0, blocks) for x in grads)
    return d_q, d_k, d_v
