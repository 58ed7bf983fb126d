"""Linear layers and embeddings whose weights are integers."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.compression.levels import (
    Levels,
    Range,
    Scale,
    integer_product,
    integers,
    numbers,
    range_of,
    rounded,
    scale_of,
)
from attnlab.compression.matrices import check_module, mask_on, refuse_nan, refuse_packed
from attnlab.core.heads import check_input

Activations = Literal["none", "dynamic", "static"]


class QuantizedWeight(nn.Module):
    """A matrix as integers with a scale; ``weight`` computes its numbers.

    ``q`` (rows, columns) of int8; ``step`` of the dtype of the weights and ``zero`` of int8, one
    for all or one for each row.
    """

    q: Tensor
    step: Tensor
    zero: Tensor

    def __init__(self, weight: Tensor, levels: Levels) -> None:
        nn.Module.__init__(self)  # not that of a layer, which would draw random numbers
        self.levels = levels
        found = scale_of(range_of(weight, levels.per), levels)
        step = found.step.to(weight.dtype)
        self.register_buffer("q", integers(weight, Scale(_wide(step), found.zero), levels))
        self.register_buffer("step", step)
        self.register_buffer("zero", found.zero)

    @property
    def scale(self) -> Scale:
        return Scale(_wide(self.step), self.zero)

    @property
    def weight(self) -> Tensor:
        """The numbers, in the dtype of the scale."""
        return numbers(self.q, self.scale).to(self.step.dtype)

    @property
    def zeros(self) -> Tensor:
        """Which integers have the value 0."""
        return self.q == self.zero

    def bytes(self) -> int:
        """What the integers take as they are stored (``stored``), with scales and zero points."""
        own = (self.step.element_size() + 1) * self.step.numel()
        return stored_size(self.zeros, self.levels.bits) + own

    def share_with(self, other: "QuantizedWeight") -> None:
        """Takes the integers and scales of another, whose matrix it has in common."""
        self.q, self.step, self.zero = other.q, other.step, other.zero

    def extra_repr(self) -> str:
        return f"{self.q.shape[0]}, {self.q.shape[1]}, {self.levels}"


class QuantizedLinear(QuantizedWeight, nn.Linear):  # type: ignore[override]
    """A linear layer of integers.

    activations: "none" multiplies by the numbers of ``weight``; "dynamic" makes integers of each
    input by its own range, "static" by the range that is given, and sums products of integers.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, levels: Levels,
        activations: Activations = "none", given: Range | None = None,
    ) -> None:  # fmt: skip
        super().__init__(weight, levels)
        self.out_features, self.in_features = weight.shape
        self.bias: Any = None if bias is None else nn.Parameter(bias.detach().clone())
        self.activations: Activations = activations
        self.of_inputs = Levels(bits=levels.bits)
        for name, value in zip(("low", "high"), given or (), strict=False):
            self.register_buffer(name, value.to(weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        if self.activations == "none":
            return F.linear(x, self.weight, self.bias)
        check_input(x, "x", self.in_features, self.weight)
        if not x.numel():
            return F.linear(x, self.weight, self.bias)
        own: Any = self
        static = self.activations == "static"
        found = Range(_wide(own.low), _wide(own.high)) if static else range_of(x)
        scale = scale_of(found, self.of_inputs)
        X = integers(x, scale, self.of_inputs).flatten(0, -2)
        out = integer_product(X, scale, self.q, self.scale, self.bias)
        exact = out.view(*x.shape[:-1], -1).to(x.dtype)
        if not torch.is_grad_enabled():
            return exact
        line = F.linear(rounded(x, scale, self.of_inputs), self.weight, self.bias).to(x.dtype)
        return exact + (line - line.detach())  # the gradient of the product of the numbers


class QuantizedEmbedding(QuantizedWeight, nn.Embedding):  # type: ignore[override]
    """A table of integers, of which the rows that are asked for become numbers."""

    def __init__(self, weight: Tensor, levels: Levels) -> None:
        super().__init__(weight, levels)
        self.num_embeddings, self.embedding_dim = weight.shape

    def forward(self, tokens: Tensor) -> Tensor:
        step, zero = self.scale
        if self.levels.per == "channel":
            step, zero = step[tokens], zero[tokens]
        return numbers(self.q[tokens], Scale(step, zero)).to(self.step.dtype)


def stored_size(zeros: Tensor, bits: int) -> int:
    """The bytes of integers of so many bits, given which of them have the value 0: all of them, one
    behind the other; or, where this takes less, a bit for each and those that are not 0."""
    N, left = zeros.numel(), zeros.numel() - int(zeros.sum())
    return min(-(-N * bits // 8), -(-N // 8) - (-left * bits // 8))


def size_of(layer: nn.Module) -> int:
    """The bytes of the matrix of a layer, as integers or as numbers."""
    own: Any = layer
    if hasattr(layer, "bytes"):
        return int(own.bytes())
    return int(own.weight.numel() * own.weight.element_size())


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def matrices_of(module: nn.Module) -> dict[str, nn.Linear | nn.Embedding]:
    """The layers with a matrix that becomes integers, by name.

    Raises ValueError where there is no linear layer, for PyTorch's attention, and for weights that
    are not finite.
    """
    check_module(module)
    refuse_packed(module)
    parts: dict[str, Any] = {
        name: part
        for name, part in module.named_modules()
        if type(part) in (nn.Linear, nn.Embedding) or _is_masked(part)
    }
    if not any(isinstance(part, nn.Linear) for part in parts.values()):
        raise ValueError(
            f"{type(module).__name__} has no linear layer whose weights could become integers"
        )
    for name, part in parts.items():
        refuse_nan(part.weight, name)
        if not part.weight.isfinite().all():
            raise ValueError(
                f"the weights of {name or 'the layer'} are infinite, so their range cannot be "
                "divided into levels"
            )
    return parts


def _is_masked(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear) and mask_on(part) is not None


def put(module: nn.Module, new: dict[str, nn.Module]) -> nn.Module:
    """The module with those parts in the place of the ones of that name; the module itself, or
    the new one where its name is ""."""
    if "" in new:
        return new[""]
    named = dict(module.named_modules(remove_duplicate=False))
    by_old = {id(named[name]): part for name, part in new.items()}
    for holder, attribute, part in list(_children(module)):
        if id(part) in by_old:
            setattr(holder, attribute, by_old[id(part)])
    return module


def _children(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for holder in module.modules():
        for attribute, part in holder._modules.items():
            if part is not None:
                yield holder, attribute, part
