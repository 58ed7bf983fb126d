"""The matrices of a module that a page of this shelf may change, and the masks on them.

A mask stands on a weight as a parametrization: the layer computes with ``weight * mask``, the
parameter that is trained keeps its place, and the gradient of what was cut is zero. Momentum and
weight decay may still move the parameter below the mask, and nothing of it reaches an output.
"""

import copy
import math
import reprlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class Masked(nn.Module):
    """A weight under its mask: what is cut is zero, and so is its gradient."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


def check_module(module: object) -> None:
    """A TypeError for what is no module of PyTorch."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"the module to compress should be one of PyTorch, got {reprlib.repr(module)}"
        )


def refuse_meta(W: Tensor) -> None:
    """A ValueError for a weight without numbers."""
    if W.is_meta:
        raise ValueError(
            "weights on the meta device hold no numbers that could be compared; give a module on "
            "the CPU or on a GPU"
        )


def refuse_nan(W: Tensor, name: str) -> None:
    """A ValueError for weights that are NaN or without numbers."""
    refuse_meta(W)
    if W.isnan().any():
        raise ValueError(f"the weights of {name or 'the layer'} are NaN: they have no order")


def refuse_packed(module: nn.Module) -> None:
    """A ValueError for PyTorch's attention, whose matrices are no linear layers."""
    for name, part in module.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            raise ValueError(
                f"{name or 'the module'} is an nn.MultiheadAttention, whose matrices of queries, "
                "keys and values are one parameter and no linear layers, so they would stay as "
                'they are; attnlab.replace(model, "full") makes linear layers of them, with the '
                "same weights"
            )


def mask_on(layer: nn.Module, name: str = "weight") -> Masked | None:
    """The mask on a parameter of a layer; None where there is none."""
    if not parametrize.is_parametrized(layer, name):
        return None
    first: Any = layer.parametrizations[name][0]  # type: ignore[index]
    return first if isinstance(first, Masked) else None


def under_mask(layer: Any) -> Tensor:
    """The weight that is trained, with zeros where a mask has cut it."""
    own: Tensor = layer.parametrizations.weight.original
    mask = mask_on(layer)
    return own if mask is None else own * mask.mask


def linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """Name → layer, for the linear layers whose matrix is a parameter or stands under a mask.

    Raises TypeError for what is no module, ValueError for one without such layers or with PyTorch's
    attention, and for weights that are NaN or on the meta device.
    """
    check_module(module)
    refuse_packed(module)
    found: dict[str, nn.Linear] = {}
    for name, part in module.named_modules():
        if type(part) is nn.Linear or (isinstance(part, nn.Linear) and mask_on(part) is not None):
            refuse_nan(part.weight, name)
            found[name] = part
    if not found:
        raise ValueError(f"{type(module).__name__} has no linear layer whose weights could be cut")
    return found


def put_mask(layer: nn.Module, mask: Tensor, name: str = "weight") -> None:
    """Cuts a parameter of the layer itself; what an earlier mask has cut stays cut.

    mask: of bool and of the shape of the parameter, True at what is left.
    """
    before = mask_on(layer, name)
    if before is not None:
        before.mask.logical_and_(mask)
        return
    others = _masks(layer)
    _make_plain(layer, {})
    for each, own in {**others, name: mask}.items():
        parametrize.register_parametrization(layer, each, Masked(own))


def without_masks(module: nn.Module) -> nn.Module:
    """A copy in which each masked parameter is an ordinary one, with zeros where it was cut."""
    check_module(module)
    plain = copy.deepcopy(module)
    for layer in plain.modules():
        cut: dict[str, Any] = {name: getattr(layer, name) for name in _masks(layer)}
        _make_plain(layer, cut)
    return plain


def _masks(layer: nn.Module) -> dict[str, Tensor]:
    names: Any = getattr(layer, "parametrizations", ())
    found = {name: mask_on(layer, name) for name in names}
    return {name: each.mask for name, each in found.items() if each is not None}


def _make_plain(layer: nn.Module, values: dict[str, Tensor]) -> None:
    """Takes the masks off a layer: its parameters are those of ``values`` or what was masked.

    PyTorch would take them off the class of the layer, which a copy has in common with it.
    """
    masks = _masks(layer)
    if not masks:
        return
    lists: Any = layer.parametrizations
    trained: dict[str, Any] = {name: lists[name].original for name in masks}
    layer.__class__ = type(layer).__bases__[0]
    del layer._modules["parametrizations"]
    for name, own in trained.items():
        value = values.get(name)
        fresh = own if value is None else nn.Parameter(value.detach(), own.requires_grad)
        layer.register_parameter(name, fresh)


def count(N: int, kept: float) -> int:
    """How many of N are left: ⌈kept · N⌉.

    A product that only rounding has put above a whole number is that number.
    """
    exact = kept * N
    return round(exact) if math.isclose(exact, round(exact), rel_tol=1e-12) else math.ceil(exact)


def largest(sizes: Tensor, left: int) -> Tensor:
    """True at the ``left`` largest of these sizes (n,); of equal ones at the first."""
    order = sizes.argsort(descending=True, stable=True)
    mask = torch.zeros(len(sizes), dtype=torch.bool, device=sizes.device)
    mask[order[:left]] = True
    return mask


def stored_bytes(module: nn.Module) -> int:
    """The bytes of the matrices of linear layers when they are stored: of one under a mask, a bit
    for each weight and the numbers that are left; of the others, all numbers."""
    check_module(module)
    total = 0
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            N, size, mask = layer.weight.numel(), layer.weight.element_size(), mask_on(layer)
            total += size * N if mask is None else math.ceil(N / 8) + size * int(mask.mask.sum())
    return total
