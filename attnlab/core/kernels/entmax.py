r"""1.5-entmax of the rows of a matrix, as one kernel forward and one backward.

With the threshold $c$ of a row (``mechanisms.learned.entmax`` has the equations) its weights are
$p_i = u_i^2$, $u_i = [1 + (z_i - \max_j z_j - c) / 2]_+$. $\sqrt{\sum_i u_i^2}$ is convex in $c$
and falls, so that Newton's method from $c = 0$ reaches the root 1 from the left, by the steps

$$c \leftarrow c + 2\, \frac{P - \sqrt P}{\sum_i u_i},\qquad P = \sum_i u_i^2$$

A program holds whole rows, so that all steps are one reading of the scores and one writing of the
weights. Backward, with the slopes $\sqrt{p_i} = u_i$ and the gradient g that arrives,
$\bar z_i = u_i (g_i - \sum_j u_j g_j / \sum_j u_j)$.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.kernels import launch

STEPS = 24
"""Of Newton's method: random rows take six, the hardest of the tests fewer than these."""
WIDEST = 2**14
"""The most keys of a row that a program holds."""
HELD = 2**12
"""Numbers that a program holds, where the rows are short enough."""


@triton.jit
def weights_of_rows(  # type: ignore[no-untyped-def]
    z_ptr, p_ptr, rows, m, STEPS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    """The weights of some rows of scores; zeros where all scores are −∞."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    there = (row < rows)[:, None] & (column < m)[None, :]
    at = row[:, None] * m + column[None, :]
    z = tl.load(z_ptr + at, mask=there, other=float("-inf"))
    largest = tl.max(z, axis=1)
    z = z - tl.where(largest == float("-inf"), 0.0, largest)[:, None]
    c = tl.zeros([ROWS], z.dtype)
    for _ in range(STEPS):
        u = tl.maximum(1 + (z - c[:, None]) / 2, 0.0)
        total, slope = tl.sum(u * u, axis=1), tl.sum(u, axis=1)
        c += 2 * (total - tl.sqrt(total)) / tl.where(slope == 0, 1.0, slope)
    u = tl.maximum(1 + (z - c[:, None]) / 2, 0.0)
    total = tl.sum(u * u, axis=1)
    tl.store(p_ptr + at, u * u / tl.where(total == 0, 1.0, total)[:, None], mask=there)


@triton.jit
def scores_gradient(  # type: ignore[no-untyped-def]
    p_ptr, g_ptr, d_z_ptr, rows, m, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    """The gradient of some rows of scores from that of their weights."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    there = (row < rows)[:, None] & (column < m)[None, :]
    at = row[:, None] * m + column[None, :]
    u = tl.sqrt(tl.load(p_ptr + at, mask=there, other=0))
    g = tl.load(g_ptr + at, mask=there, other=0)
    slope = tl.sum(u, axis=1)
    mean = tl.sum(u * g, axis=1) / tl.where(slope == 0, 1.0, slope)
    tl.store(d_z_ptr + at, u * (g - mean[:, None]), mask=there)


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = z.contiguous()
        p = torch.empty_like(z)
        if z.numel():
            grid, sizes = _launch(z)
            launch(weights_of_rows, grid, z, p, *_shape(z), STEPS=STEPS, **sizes)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        forbid_double_backward("the triton form")
        (p,) = ctx.saved_tensors
        d_z = torch.empty_like(p)
        if p.numel():
            grid, sizes = _launch(p)
            launch(scores_gradient, grid, p, grad.contiguous(), d_z, *_shape(p), **sizes)
        return d_z


def _shape(z: Tensor) -> tuple[int, int]:
    return z.numel() // z.shape[-1], z.shape[-1]


def _launch(z: Tensor) -> tuple[tuple[int], dict[str, int]]:
    rows, m = _shape(z)
    wide = max(16, triton.next_power_of_2(m))
    together = max(1, HELD // wide)
    return (triton.cdiv(rows, together),), {"ROWS": together, "WIDE": wide}


@torch.compiler.disable  # it looks at no kernel of the interpreter
def entmax15(scores: Tensor) -> Tensor:
    """The weights of each row of ``scores`` (…, m), −∞ where a key is masked, in float32 or
    float64; first derivatives only. Rows of more than 16,384 keys are refused."""
    if scores.shape[-1] > WIDEST:
        raise ValueError(
            f"triton cannot run here: a row may have {WIDEST:,} keys, these have "
            f"{scores.shape[-1]:,}; use another form of this page"
        )
    return _Entmax.apply(scores)
