r"""An n × n map for every mechanism, those without weights included.

Attention weights are a map of who listens to whom. Many mechanisms never form them (kernels, low
rank, hashing) and some have none (convolutions, Fourier transforms, recurrences). Two maps exist
for all of them.

Where the output is linear in the values, $o_i = \sum_j M_{ij} v_j$, the mixing matrix $M$ is exact:
with one-hot values $v_j = e_j$ the output *is* $M$. For softmax attention it equals the weights.
That the output is linear is not taken on trust: $M v$ is compared with what the mechanism gives
for random values and for its own.

Elsewhere $M_{ij} = \lVert \partial y_i / \partial x_j \rVert_F$: how strongly the output at i
answers to a small change of the input at j. That is a summary (signs and directions are gone, what
happens beside the mixing is in it), and ``exact`` is False.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.shapes import checked

EXACT = "exact: one-hot values; the output was verified to be linear in the values"
JACOBIAN = "the Frobenius norm of ∂output_i/∂{of}_j, because {why}"


@dataclass(frozen=True)
class Mixing:
    """``matrix`` (b, h, n, m), or (b, n, m) for a module as a whole; ``how`` says what it is."""

    matrix: Tensor
    exact: bool
    how: str

    def __repr__(self) -> str:
        return f"<Mixing {' × '.join(map(str, self.matrix.shape))}, {self.how}>"


def mixing_matrix(
    module: Callable[..., Any],
    x: Float[Tensor, "b n dim"],
    *,
    padding: Bool[Tensor, "b n"] | None = None,
) -> Mixing:
    """The map that ``module`` amounts to at ``x``.

    A module that owns one ``attnlab.core.heads.Heads`` gets one matrix per head, (b, h, n, n), if
    its output is linear in the values. Any other (b, n, dim) → (b, n, dim) callable gets one of
    Jacobian norms, (b, n, n); of a tuple (recurrent layers) the first is taken. Rows of the batch
    must not talk to one another. Costs ⌈n/e⌉ calls, or n·dim backward passes.
    """
    _validate(module, x)
    module = _late(module)

    def run(inputs: Tensor) -> Tensor:
        out = module(inputs) if padding is None else module(inputs, padding)
        return out[0] if isinstance(out, tuple) else out

    _deterministic(run, x)
    heads = _heads(module)
    if heads is None:
        return _jacobian(run, x, "input", "there are no values to probe with")
    values, out = _own_values(heads, run, x)
    matrix = _linear(lambda v: _with_values(heads, run, x, v), values, out)
    if matrix is None:
        return _jacobian(run, x, "input", "its output is not linear in the values")
    return Mixing(matrix, True, EXACT)


@checked
def mixing_of(
    form: Callable[[Tensor, Tensor, Tensor], Tensor],
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b g m d"],
    v: Float[Tensor, "b g m e"],
) -> Mixing:
    """The map of a functional form ``(q, k, v) -> out``, per head: (b, h, n, m).

    Options go in by ``functools.partial(form, mask=…)``. A form that is not linear in ``v`` gets
    the Jacobian norms with respect to ``v`` at ``v``; with shared key/value heads (g < h) and such
    a form the heads are not told apart, (b, n, m).
    """

    def run(values: Tensor) -> Tensor:
        return form(q, k, values)

    own = _deterministic(run, v)
    matrix = _linear(run, v, own)
    if matrix is not None:
        return Mixing(matrix, True, EXACT)
    why = "its output is not linear in the values"
    if q.shape[1] == v.shape[1]:
        b, h = v.shape[:2]
        flat = _jacobian(
            lambda values: run(values.unflatten(0, (b, h))).flatten(0, 1),
            v.flatten(0, 1), "value", why,
        )  # fmt: skip
        return Mixing(flat.matrix.unflatten(0, (b, h)), False, flat.how)
    merged = v.transpose(1, 2).flatten(2)
    return _jacobian(
        lambda values: run(values.unflatten(2, (v.shape[1], -1)).transpose(1, 2))
        .transpose(1, 2)
        .flatten(2),
        merged, "value", why,
    )  # fmt: skip


def _validate(module: object, x: Tensor) -> None:
    if not callable(module):
        raise TypeError(f"module must be callable, got {type(module).__name__}")
    if x.dim() != 3 or not x.is_floating_point():
        raise ValueError(
            f"x must be floating-point of shape (b, n, dim), got {x.dtype} of {tuple(x.shape)}"
        )


def _late(module: Callable[..., Any]) -> Callable[..., Any]:
    """A layer that sums positions ``early``, before it makes values of them, is asked in the other
    order: it is the same function, and only then is there a value per position to probe with."""
    if not getattr(module, "early", False):
        return module
    twin: Any = copy.copy(module)  # shares every part and parameter
    twin.early = False
    return cast(Callable[..., Any], twin)


def _heads(module: object) -> Heads | None:
    """The module's own heads, if it has exactly one set of them."""
    if not isinstance(module, nn.Module):
        return None
    found = [part for part in module.modules() if isinstance(part, Heads)]
    return found[0] if len(found) == 1 and getattr(module, "heads", None) is found[0] else None


@torch.no_grad()
def _deterministic(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    first, second = run(x), run(x)
    if not isinstance(first, Tensor) or first.dim() != x.dim():
        got = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise ValueError(f"expected a tensor of {x.dim()} axes like the input, got {got}")
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        raise ValueError(
            "two calls with the same input differ (dropout? random projections?), so there is no "
            "one map: call .eval() on the module, or fix its randomness"
        )
    return first


# ---- exact: one-hot values


@torch.no_grad()
def _linear(run: Callable[[Tensor], Tensor], v: Tensor, own: Tensor) -> Tensor | None:
    """M with run(v) = M v, from one-hot values, as many at once as the values are wide; None if
    there is no such M."""
    m, e = v.shape[-2:]
    eye = torch.eye(m, dtype=v.dtype, device=v.device)
    columns = []
    for start in range(0, m, e):
        block = v.new_zeros(v.shape)
        hot = eye[:, start : start + e]
        block[..., : hot.shape[1]] = hot
        columns.append(run(block)[..., : hot.shape[1]])
    matrix = torch.cat(columns, dim=-1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v)
    linear = _agree(matrix, noise, run(noise)) and _agree(matrix, v, own)
    return matrix if linear else None


def _agree(matrix: Tensor, v: Tensor, out: Tensor) -> bool:
    whole = v.repeat_interleave(matrix.shape[1] // v.shape[1], dim=1)
    tolerance = 50 * torch.finfo(v.dtype).eps
    expected = matrix.double() @ whole.double()
    size = max(float(whole.abs().max()), float(expected.abs().max()))
    return bool((expected - out.double()).abs().max() <= tolerance * size)


@contextmanager
def _hooked(*handles: Any) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _own_values(heads: Heads, run: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The values (b, g, m, e) that the module computes, and the output of its heads."""
    said: dict[str, Tensor] = {}
    with _hooked(
        heads.value.register_forward_hook(lambda _, args, out: said.update(values=out)),
        heads.output.register_forward_pre_hook(lambda _, args: said.update(out=args[0])),
    ):
        run(x)
    values = said["values"].unflatten(-1, (heads.kv_heads, -1)).transpose(1, 2)
    return values, said["out"].unflatten(-1, (heads.heads, -1)).transpose(1, 2)


@torch.no_grad()
def _with_values(
    heads: Heads, run: Callable[[Tensor], Tensor], x: Tensor, values: Tensor
) -> Tensor:
    """The output of the heads (b, h, n, e) when the values are ``values``, all else equal."""
    said: list[Tensor] = []
    flat = values.transpose(1, 2).flatten(2)
    with _hooked(
        heads.value.register_forward_hook(lambda _, args, out: flat),
        heads.output.register_forward_pre_hook(lambda _, args: said.append(args[0])),
    ):
        run(x)
    return said[-1].unflatten(-1, (heads.heads, -1)).transpose(1, 2)


# ---- elsewhere: Jacobian norms


@torch.enable_grad()
def _jacobian(run: Callable[[Tensor], Tensor], x: Tensor, of: str, why: str) -> Mixing:
    """(b, n, m): the Frobenius norm of each block ∂y_i/∂x_j. Rows of the batch are independent, so
    one backward pass serves them all."""
    x = x.detach().requires_grad_()
    y = run(x)
    if not y.requires_grad:
        raise ValueError("the output does not depend on the input in a differentiable way")
    matrix = torch.stack([_row(y[:, i], x) for i in range(y.shape[1])], dim=1)
    return Mixing(matrix.detach(), False, JACOBIAN.format(of=of, why=why))


def _row(y: Tensor, x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[:2], dtype=x.dtype, device=x.device)
    for channel in range(y.shape[-1]):
        (gradient,) = torch.autograd.grad(y[:, channel].sum(), x, retain_graph=True)
        total += gradient.square().sum(dim=-1)
    return total.sqrt()
