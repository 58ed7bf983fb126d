"""The exact map of a mechanism that is linear in its values, from one-hot values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attnlab.core.heads import Heads
from attnlab.core.probe import Restore, record, restore


@torch.no_grad()
def linear_map(
    run: Callable[[Tensor], Tensor], v: Tensor, own: Tensor, *, constant: bool = False
) -> Tensor | None:
    """M with run(v) = M v, from one-hot values, as many at once as the values are wide; None if
    there is no such M. With ``constant`` run(v) may be M v + run(0)."""
    m, e = v.shape[-2:]
    eye = torch.eye(m, dtype=v.dtype, device=v.device)
    added = run(torch.zeros_like(v)) if constant else torch.zeros_like(own)
    columns = []
    for start in range(0, m, e):
        block = v.new_zeros(v.shape)
        hot = eye[:, start : start + e]
        block[..., : hot.shape[1]] = hot
        columns.append((run(block) - added)[..., : hot.shape[1]])
    matrix = torch.cat(columns, dim=-1)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v)
    linear = _agree(matrix, noise, run(noise) - added) and _agree(matrix, v, own - added)
    return matrix if linear else None


def _agree(matrix: Tensor, v: Tensor, out: Tensor) -> bool:
    """Whether ``out`` equals ``matrix`` times ``v`` up to rounding."""
    values = v.repeat_interleave(matrix.shape[1] // v.shape[1], dim=1)
    tolerance = 50 * torch.finfo(v.dtype).eps
    expected = matrix.double() @ values.double()
    size = max(float(values.abs().max()), float(expected.abs().max()))
    return bool((expected - out.double()).abs().max() <= tolerance * size)


@contextmanager
def _hooked(*handles: Any) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def own_values(
    heads: Heads, run: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[Tensor, Tensor, Restore]:
    """The values (b, g, m, e) that the module computes, the output of its heads, and what moves a
    map between the two to the positions of ``x``, where the module has moved its tokens."""
    kept: dict[str, Any] = {}
    with record(), _hooked(
        heads.value.register_forward_hook(lambda _, args, out: kept.update(values=out)),
        heads.output.register_forward_pre_hook(
            lambda _, args: kept.update(out=args[0], restore=restore())
        ),
    ):  # fmt: skip
        run(x)
    width = heads.value_dim
    return heads.split(kept["values"], width), heads.split(kept["out"], width), kept["restore"]


def with_values(heads: Heads, run: Callable[[Tensor], Tensor], x: Tensor, values: Tensor) -> Tensor:
    """The output of the heads (b, h, n, e) when the values are ``values``, all else equal."""
    kept: list[Tensor] = []
    flat = heads.join(values)
    with _hooked(
        heads.value.register_forward_hook(lambda _, args, out: flat),
        heads.output.register_forward_pre_hook(lambda _, args: kept.append(args[0])),
    ):
        run(x)
    return heads.split(kept[-1], heads.value_dim)
