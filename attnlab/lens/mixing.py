r"""An n × n map for every mechanism, those without weights included.

Attention weights say how much each position takes from each other one. Many mechanisms never form
them (kernels, low rank, hashing) and some have none (convolutions, Fourier transforms,
recurrences). Two maps exist for all of them.

Where the output is linear in the values, $o_i = \sum_j M_{ij} v_j$, the mixing matrix $M$ is exact:
with one-hot values $v_j = e_j$ the output *is* $M$. For softmax attention it equals the weights. A
layer with ``adds_constant`` adds learned vectors that no value changes; they are left out.
Linearity is verified: $M v$ is compared with the output for random values and for the mechanism's
own.

Elsewhere $M_{ij} = \lVert \partial y_i / \partial x_j \rVert_F$: how strongly the output at i
responds to a small change of the input at j. That is a summary: signs and directions are lost, and
it includes what happens beside the mixing. ``exact`` is then False.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.options import Size, check_value, takes_structure
from attnlab.core.shapes import checked, is_stored
from attnlab.lens.jacobian import block_norms
from attnlab.lens.linear_map import linear_map, own_values, with_values

EXACT = "exact: one-hot values; the output was verified to be linear in the values"
JACOBIAN = "the Frobenius norm of ∂output_i/∂{of}_j, because {why}"
NO_VALUES = "there are no values to replace"
NOT_LINEAR = "its output is not linear in the values"


@dataclass(frozen=True)
class Mixing:
    """``matrix`` (b, h, n, m), or (b, n, m) for a module as a whole; ``how`` names its kind."""

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
    structure: Any = None,
    per_head: bool = False,
    directions: Size | None = None,
) -> Mixing:
    """The n × n map by which ``module`` mixes the positions of ``x``.

    ``structure``, if it is given, is passed on to the module with ``x``. Under ``padding`` the rows
    and columns of padded tokens are zero: nobody reads them, and what they read means nothing.

    A module that owns one ``attnlab.core.heads.Heads`` gets one matrix per head, (b, h, n, n), if
    its output is linear in the values; (b, h, n, m) if it makes m values of its own, such as the
    summaries of ``long_t5`` or vectors that ``compressive_transformer`` compresses by a convolution
    or by their maximum. Any other (b, n, dim) → (b, n, dim) callable gets one of
    Jacobian norms, (b, n, n); of a tuple (recurrent layers) the first is taken. Rows of the batch
    must be independent. Costs ⌈n/e⌉ calls, or n·dim backward passes.
    """
    _check_callable("module", module)
    _check_input(x, padding)
    _check_structure(module, structure)
    check_value("per_head", per_head, bool)
    check_value("directions", directions, Size | None)
    found = _found(module, x, padding, structure, per_head, directions)
    if padding is None:
        return found
    rows = padding[..., None] if found.matrix.dim() == 3 else padding[:, None, :, None]
    return replace(found, matrix=found.matrix.masked_fill(~rows, 0))


def _found(
    module: Callable[..., Any], x: Tensor, padding: Tensor | None, structure: Any, per_head: bool,
    directions: int | None,
) -> Mixing:  # fmt: skip
    module = _project_first(module)

    def run(inputs: Tensor) -> Tensor:
        given = {} if structure is None else {"structure": structure}
        return _first(module(inputs, *(() if padding is None else (padding,)), **given))

    out = _output(run, x)
    if len(out) != len(x):
        raise ValueError(
            f"the output should have the {len(x)} rows of a batch of x, got {len(out)}"
        )
    heads = _heads(module)
    if heads is None:
        return _jacobian(run, x, "input", NO_VALUES, directions)
    values, out, restore = own_values(heads, run, x)
    adds = getattr(module, "adds_constant", False)
    matrix = linear_map(lambda v: with_values(heads, run, x, v), values, out, constant=adds)
    if matrix is None and per_head:
        found = _jacobian_of_heads(lambda v: with_values(heads, run, x, v), values, directions)
        return replace(found, matrix=restore("weights", found.matrix))
    if matrix is None:
        return _jacobian(run, x, "input", NOT_LINEAR, directions)
    how = f"{EXACT}, with a constant added" if adds else EXACT
    return Mixing(restore("weights", matrix), True, how)


@checked
def mixing_of(
    form: Callable[[Tensor, Tensor, Tensor], Tensor],
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b g m d"],
    v: Float[Tensor, "b g m e"],
) -> Mixing:
    """The map of a functional form ``(q, k, v) -> out``, per head: (b, h, n, m).

    Options are bound by ``functools.partial(form, mask=…)``. A form that is not linear in ``v``
    gets the Jacobian norms with respect to ``v`` at ``v``; with shared key/value heads (g < h) they
    are those of all heads together, (b, n, m).
    """
    _check_callable("form", form)
    (b, h, n, _), g = q.shape, v.shape[1]
    if h % g:
        raise ValueError(f"{g} key/value heads do not divide {h} query heads")

    def run(values: Tensor) -> Tensor:
        return form(q, k, values)

    own = _output(run, v)
    if own.shape[:3] != (b, h, n):
        raise ValueError(
            f"form should give ({b}, {h}, {n}, …) for these q, k and v, got {tuple(own.shape)}"
        )
    matrix = linear_map(run, v, own) if own.shape[3] == v.shape[3] else None
    if matrix is not None:
        return Mixing(matrix, True, EXACT)
    return _jacobian_of_heads(run, v) if h == g else _jacobian_of_all(run, v)


def _jacobian_of_heads(
    run: Callable[[Tensor], Tensor], v: Tensor, directions: int | None = None
) -> Mixing:
    """Heads are independent, so they are rows of a batch."""
    b, h = v.shape[:2]
    flat = _jacobian(
        lambda values: run(values.unflatten(0, (b, h))).flatten(0, 1),
        v.flatten(0, 1), "value", NOT_LINEAR, directions,
    )  # fmt: skip
    return Mixing(flat.matrix.unflatten(0, (b, h)), False, flat.how)


def _jacobian_of_all(run: Callable[[Tensor], Tensor], v: Tensor) -> Mixing:
    """All heads of a position side by side, as its width."""

    def merged(values: Tensor) -> Tensor:
        out = run(values.unflatten(2, (v.shape[1], -1)).transpose(1, 2))
        return out.transpose(1, 2).flatten(2)

    return _jacobian(merged, v.transpose(1, 2).flatten(2), "value", NOT_LINEAR)


# ---- checks of input and output


def _check_callable(name: str, function: object) -> None:
    if isinstance(function, type):
        raise TypeError(f"{name} is the class {function.__name__} itself; make an object of it")
    if not callable(function):
        raise TypeError(f"{name} should be callable, got {type(function).__name__}")


def _check_input(x: object, padding: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x should be a tensor, got {type(x).__name__}")
    if x.layout is not torch.strided or x.is_meta or x.is_nested or is_stored(x.dtype):
        raise TypeError(f"x should be a dense tensor with values, got {x.dtype} on {x.device}")
    if x.dim() != 3 or not x.is_floating_point() or not x.numel():
        raise ValueError(
            f"x should be floating-point of shape (b, n, dim), none of them 0, got {x.dtype} of "
            f"{tuple(x.shape)}"
        )
    if not bool(x.isfinite().all()):
        raise ValueError("x holds NaN or infinity")
    if padding is None:
        return
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        kind = padding.dtype if isinstance(padding, Tensor) else type(padding).__name__
        raise TypeError(f"padding should be a bool tensor, True = a real token, got {kind}")
    if padding.shape != x.shape[:2]:
        raise ValueError(
            f"padding should be of shape {tuple(x.shape[:2])} like x, got {tuple(padding.shape)}"
        )


def _check_structure(module: Any, structure: object) -> None:
    takes_one = isinstance(module, nn.Module) and takes_structure(module)
    if structure is not None and not takes_one:
        raise ValueError(
            f"structure is for layers that are told one, as tree attention is; {module!r} is not"
        )


def _first(out: Any) -> Any:
    """The output itself, or the first of several (recurrent layers give their state as well)."""
    if isinstance(out, tuple) and not out:
        raise ValueError("the output should be a tensor, got an empty tuple")
    return out[0] if isinstance(out, tuple) else out


@torch.no_grad()
def _output(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The output at ``x``, checked to be real numbers computed without randomness."""
    first, second = run(x), run(x)
    if not isinstance(first, Tensor) or first.dim() != x.dim():
        got = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise ValueError(f"expected a tensor of {x.dim()} axes like the input, got {got}")
    if first.is_complex():
        raise ValueError("the output is complex; give its real part, its absolute value or both")
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        raise ValueError(
            "two calls with the same input differ (dropout? random projections?), so there is no "
            "one map: call .eval() on the module, or fix its randomness"
        )
    if not bool(first.isfinite().all()):
        raise ValueError("the output holds NaN or infinity, so there is no map to compute")
    return first


def _project_first(module: Callable[..., Any]) -> Callable[..., Any]:
    """A layer may sum over positions before it projects them to values (``early``). With the
    projection first it is the same function, and has one value per position to replace."""
    if not getattr(module, "early", False):
        return module
    late: Any = copy.copy(module)  # shares every part and parameter
    late.early = False
    return cast(Callable[..., Any], late)


def _heads(module: object) -> Heads | None:
    """The module's own heads, if it has exactly one set of them."""
    if not isinstance(module, nn.Module):
        return None
    found = [part for part in module.modules() if isinstance(part, Heads)]
    if len(found) != 1 or getattr(module, "heads", None) is not found[0]:
        return None
    return found[0] if found[0].values_called else None


# ---- Jacobian norms


def _jacobian(
    run: Callable[[Tensor], Tensor], x: Tensor, of: str, why: str, directions: int | None = None
) -> Mixing:
    how = JACOBIAN.format(of=of, why=why)
    if directions is not None:
        how += f"; estimated from {directions} random directions of each output"
    return Mixing(block_norms(run, x, directions), False, how)
