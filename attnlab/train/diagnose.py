"""Finds the layer that made a NaN: the batch is run once more with hooks on every layer.

A NaN loss does not show its cause: one NaN spreads to everything that is computed from it.
The cause is the first place, in the order of computation, where a number is not finite while
everything before it is.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Fault(NamedTuple):
    """The first thing that is not finite, and the dotted name of its layer ("": the model)."""

    layer: str
    description: str


def broken(value: Tensor) -> bool:
    """Whether it holds a NaN or +∞. Masks are written with −∞, so −∞ alone does not count."""
    if not (value.is_floating_point() or value.is_complex()) or value.numel() == 0:
        return False
    real = torch.view_as_real(value) if value.is_complex() else value
    return bool((real.isnan() | real.isposinf()).any())


def first_fault(model: nn.Module, run: Callable[[], object]) -> Fault | None:
    """Calls `run`, which takes `model` forward (and perhaps backward); names the first fault.

    Layers are looked at through hooks and gradients through tensor hooks, so the computation is the
    same as without. None if everything inside the model was finite.
    """
    held = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in held:
        if broken(tensor):
            return Fault(name.rpartition(".")[0], f"'{name}' itself, before the step")
    watch = _Watch(model)
    handles = list(watch.attach(model))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return watch.fault or watch.suspect


class _Watch:
    def __init__(self, model: nn.Module) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.fault: Fault | None = None
        # An output with −∞ alone may be a mask, so it is named only if nothing else is found.
        self.suspect: Fault | None = None
        self.inside: list[nn.Module] = []
        # Backward: the modules that read each tensor, and those whose output has a finite gradient.
        self.readers: dict[Tensor, list[nn.Module]] = {}
        self.sound: set[nn.Module] = set()

    def attach(self, model: nn.Module) -> Iterator[Any]:
        for module in model.modules():
            yield module.register_forward_pre_hook(self.enter, with_kwargs=True)
            yield module.register_forward_hook(self.leave, with_kwargs=True)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                yield parameter.register_hook(partial(self.parameter_gradient, name))

    def blame(self, layer: str, description: str) -> None:
        if self.fault is None:
            self.fault = Fault(layer, description)

    def called(self, module: nn.Module) -> str:
        name, kind = self.names.get(module, ""), type(module).__name__
        return f"layer '{name}' ({kind})" if name else f"the model itself ({kind})"

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if any(map(broken, _tensors((args, kwargs)))):
            self.blame_caller(module)
        for tensor in _tensors((args, kwargs)):
            if tensor.requires_grad:
                self.watch_gradient(tensor).append(module)
        self.inside.append(module)

    def blame_caller(self, module: nn.Module) -> None:
        """The input came from the caller's own arithmetic: all its layers gave finite outputs."""
        if not self.inside:
            return self.blame("", "the batch: the task's inputs")
        caller = self.inside[-1]
        description = f"the arithmetic of {self.called(caller)} before {self.called(module)}"
        self.blame(self.names.get(caller, ""), description)

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self.inside.pop()
        for tensor in _tensors(output):
            found = Fault(self.names.get(module, ""), f"the output of {self.called(module)}")
            if broken(tensor):
                self.blame(*found)
            elif self.suspect is None and tensor.isneginf().any():
                self.suspect = found
            if tensor.requires_grad:
                self.watch_gradient(tensor)
                tensor.register_hook(partial(self.output_gradient, module))

    def watch_gradient(self, tensor: Tensor) -> list[nn.Module]:
        if tensor not in self.readers:
            self.readers[tensor] = []
            tensor.register_hook(partial(self.tensor_gradient, tensor))
        return self.readers[tensor]

    def tensor_gradient(self, tensor: Tensor, gradient: Tensor) -> None:
        if broken(gradient) or gradient.isneginf().any():
            culprits = [m for m in self.readers[tensor] if m in self.sound]
            if culprits:
                description = f"the gradient that {self.called(culprits[-1])} passes back"
                self.blame(self.names.get(culprits[-1], ""), description)

    def output_gradient(self, module: nn.Module, gradient: Tensor) -> None:
        if not broken(gradient):
            self.sound.add(module)
        else:
            description = f"the gradient that arrives at the output of {self.called(module)}"
            self.blame(self.names.get(module, ""), description)

    def parameter_gradient(self, name: str, gradient: Tensor) -> None:
        if broken(gradient) or gradient.isneginf().any():
            self.blame(name.rpartition(".")[0], f"the gradient of '{name}'")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
