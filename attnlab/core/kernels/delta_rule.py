r"""The delta rule from chunk to chunk, as one kernel forward and one backward.

``attnlab.core.chunks`` derives what a chunk does: with U and W of the triangular solve, which are
those of all chunks at once, and the state S before the chunk,

$$V' = U - W S,\qquad O = \mathrm{tril}(Q K^\top)\, V' + Q S,\qquad S' = S + K^\top V'$$

One program keeps the state of one head and goes through its chunks; all heads are one launch,
whatever the length. The states before the chunks are stored for the backward pass, which goes from
the last chunk to the first with the gradient of S' and the products above, each transposed.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from attnlab.core.chunks import cut, solve
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.kernels import launch

WIDEST = 64
"""The widest heads of which state and chunk fit in the 99 KiB that even small GPUs share."""
TOKENS = 16
"""Those of a chunk, as a product on a GPU has at least 16 rows; twice as many where heads are at
most half as wide."""


@triton.jit
def chunk_by_chunk(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, u_ptr, w_ptr, out_ptr, state_ptr, chunks,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """The outputs (N, C, E) of one head, and its states (N + 1, D, E) before each chunk."""
    head, t = tl.program_id(0).to(tl.int64), tl.arange(0, C)[:, None]
    d, e = tl.arange(0, D), tl.arange(0, E)
    of_keys, of_values, of_state = t * D + d[None, :], t * E + e[None, :], d[:, None] * E + e
    past = t >= tl.arange(0, C)[None, :]
    S = tl.zeros([D, E], q_ptr.dtype.element_ty)
    for chunk in range(0, chunks):
        at, before = (head * chunks + chunk) * C, (head * (chunks + 1) + chunk) * D * E
        q, k = tl.load(q_ptr + at * D + of_keys), tl.load(k_ptr + at * D + of_keys)
        u, w = tl.load(u_ptr + at * E + of_values), tl.load(w_ptr + at * D + of_keys)
        tl.store(state_ptr + before + of_state, S)
        v = u - tl.dot(w, S, input_precision="ieee")
        pairs = tl.where(past, tl.dot(q, tl.trans(k), input_precision="ieee"), 0.0)
        out = tl.dot(pairs, v, input_precision="ieee") + tl.dot(q, S, input_precision="ieee")
        tl.store(out_ptr + at * E + of_values, out)
        S += tl.dot(tl.trans(k), v, input_precision="ieee")
    tl.store(state_ptr + (head * (chunks + 1) + chunks) * D * E + of_state, S)


@triton.jit
def chunks_gradient(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, u_ptr, w_ptr, state_ptr, d_out_ptr, d_last_ptr,
    d_q_ptr, d_k_ptr, d_u_ptr, d_w_ptr, chunks,
    C: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """The gradients of one head, from its last chunk to the first."""
    head, t = tl.program_id(0).to(tl.int64), tl.arange(0, C)[:, None]
    d, e = tl.arange(0, D), tl.arange(0, E)
    of_keys, of_values, of_state = t * D + d[None, :], t * E + e[None, :], d[:, None] * E + e
    past = t >= tl.arange(0, C)[None, :]
    d_S = tl.load(d_last_ptr + head * D * E + of_state)
    for back in range(0, chunks):
        chunk = chunks - 1 - back
        at, before = (head * chunks + chunk) * C, (head * (chunks + 1) + chunk) * D * E
        q, k = tl.load(q_ptr + at * D + of_keys), tl.load(k_ptr + at * D + of_keys)
        u, w = tl.load(u_ptr + at * E + of_values), tl.load(w_ptr + at * D + of_keys)
        S, d_out = tl.load(state_ptr + before + of_state), tl.load(d_out_ptr + at * E + of_values)
        v = u - tl.dot(w, S, input_precision="ieee")
        pairs = tl.where(past, tl.dot(q, tl.trans(k), input_precision="ieee"), 0.0)
        d_pairs = tl.where(past, tl.dot(d_out, tl.trans(v), input_precision="ieee"), 0.0)
        d_v = tl.dot(tl.trans(pairs), d_out, input_precision="ieee")
        d_v += tl.dot(k, d_S, input_precision="ieee")
        d_q = tl.dot(d_pairs, k, input_precision="ieee")
        d_q += tl.dot(d_out, tl.trans(S), input_precision="ieee")
        d_k = tl.dot(tl.trans(d_pairs), q, input_precision="ieee")
        d_k += tl.dot(v, tl.trans(d_S), input_precision="ieee")
        tl.store(d_q_ptr + at * D + of_keys, d_q)
        tl.store(d_k_ptr + at * D + of_keys, d_k)
        tl.store(d_u_ptr + at * E + of_values, d_v)
        d_w = tl.dot(d_v, tl.trans(S), input_precision="ieee")
        tl.store(d_w_ptr + at * D + of_keys, -d_w)
        d_S += tl.dot(tl.trans(q), d_out, input_precision="ieee")
        d_S -= tl.dot(tl.trans(w), d_v, input_precision="ieee")


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and last state (b, h, d, e), from (b, h, N, c, d) and (b, h, N, c, e)."""
        given = [x.contiguous() for x in (q, k, u, w)]
        (b, h, N, _, D), E = q.shape, u.shape[-1]
        out, states = torch.empty_like(given[2]), u.new_empty(b, h, N + 1, D, E)
        if b * h:
            launch(chunk_by_chunk, (b * h,), *given, out, states, N, **_sizes(q, u))
        ctx.save_for_backward(*given, states)
        return out, states[:, :, -1].clone()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_last: Tensor) -> tuple[Tensor, ...]:
        forbid_double_backward("the triton form")
        *given, states = ctx.saved_tensors
        (b, h, N), found = given[0].shape[:3], [torch.empty_like(x) for x in given]
        arrived = d_out.contiguous(), d_last.contiguous()
        if b * h:
            sizes = _sizes(given[0], given[2])
            launch(chunks_gradient, (b * h,), *given, states, *arrived, *found, N, **sizes)
        return tuple(found)


def _sizes(q: Tensor, u: Tensor) -> dict[str, int]:
    return {"C": q.shape[3], "D": q.shape[4], "E": u.shape[4]}


@torch.compiler.disable  # it looks at no kernel of the interpreter
def delta_rule(q: Tensor, k: Tensor, v: Tensor, b: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """The outputs (b, h, n, e) of the delta rule with steps b (b, h, n, 1), and the state (b, h, d,
    e) after the last token; first derivatives only. Chunks have 16 tokens, or 32 if ``chunk`` and
    the width of heads allow it. Heads wider than 64 are refused, and on a GPU float64."""
    n, d, e = q.shape[2], q.shape[3], v.shape[3]
    if max(d, e) > WIDEST:
        raise ValueError(
            f"triton cannot run here: heads should be at most {WIDEST} wide, these are "
            f"{max(d, e)}; use another form of this page"
        )
    if q.dtype == torch.float64 and type(chunk_by_chunk).__name__ != "InterpretedFunction":
        raise ValueError(
            "triton cannot run here: on a GPU its matrix products have no float64; use another "
            "form of this page"
        )
    D, E = (max(16, triton.next_power_of_2(width)) for width in (d, e))
    c = 2 * TOKENS if chunk > TOKENS and 2 * max(D, E) <= WIDEST else TOKENS
    q, k, v, b = (
        cut(x, c) for x in (pad(q, (0, D - d)), pad(k, (0, D - d)), pad(v, (0, E - e)), b)
    )
    u, w = solve(b * k @ k.mT, b * torch.cat((v, k), dim=-1)).split((E, D), dim=-1)
    out, S = _Chunks.apply(q, k, u, w)
    return out.flatten(2, 3)[:, :, :n, :e], S[:, :, :d, :e]
