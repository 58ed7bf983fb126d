"""A model in shares: each process keeps its part of the parameters, gradients and moments (FSDP2).

Under DistributedDataParallel every process holds all parameters, their gradients and AdamW's two
moments: four numbers for each parameter. With ``sharded=True`` each of P processes keeps 4/P. The
layers of a model are gathered one after the other, when their turn comes forward and again
backward, and given up afterwards; gradients are summed where they are kept. What is computed is the
same, so runs may go on from either to the other.

The model that ``fit`` was given is not divided itself, or it could not be used as before: a twin of
it is, which has modules of its own. The given one is emptied for the run, and filled with the whole
parameters where they are needed: for a validation loss, a callback, what an objective does after a
step (``after_step``), and at the end.

Zhao, Gu, Varma, Luo, et al. PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel. VLDB
2023, arXiv:2304.11277. Rajbhandari, Rasley, Ruwase, He. ZeRO: Memory Optimizations Toward Training
Trillion Parameter Models. SC 2020, arXiv:1910.02054.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from attnlab.parallel.errors import ProcessesError
from attnlab.train.errors import CheckpointError, TrainingError
from attnlab.train.learner import Learner
from attnlab.train.processes import Processes
from attnlab.train.tensors import bare, own_share, whole


def check_shardable(model: nn.Module, objective: nn.Module, processes: Processes) -> None:
    """A ValueError where a run cannot be divided among the processes."""
    if processes.count == 1:
        raise ValueError(
            "sharded=True divides a model among several processes, and this is the only one; start "
            "the script by torchrun --nproc-per-node 2 script.py, or leave sharded out"
        )
    if bare(model) is not model:
        raise ValueError(
            "sharded=True divides the layers of a model, and this one is compiled as a whole; give "
            "the model itself, or leave sharded out"
        )
    for name, parameter in Learner(model, objective).named():
        if not parameter.ndim:
            raise ValueError(
                f"sharded=True divides parameters along their first axis, and '{name}' has none; "
                "make it one of shape (1,), or leave sharded out"
            )


@contextmanager
def called_layers(model: nn.Module) -> Iterator[set[nn.Module]]:
    """The layers of ``model``, members of its lists of modules, that are called inside."""
    seen: set[nn.Module] = set()
    hooks = [
        layer.register_forward_pre_hook(lambda one, _: seen.add(one)) for layer in _layers(model)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def noted_layers(learner: Learner, processes: Processes) -> Iterator[None]:
    """Inside, each of several processes says which layers it calls, for the error where they
    differ: those that are gathered one by one in their order, and which of the others it uses."""
    from torch.distributed.fsdp import FSDPModule

    names = {module: f"'{name.removeprefix('model.')}'" for name, module in learner.named_modules()}

    def note(layer: nn.Module, _: Any) -> None:
        if isinstance(layer, FSDPModule):
            processes.call(names[layer])
        elif any(parameter.requires_grad for parameter in layer.parameters()):
            processes.use(names[layer])

    hooks = [
        layer.register_forward_pre_hook(note, prepend=True)
        for layer in dict.fromkeys(_layers(learner))  # shared ones stand there several times
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """What stands in lists of modules, those within others left out."""
    for part in model.children():
        if isinstance(part, nn.ModuleList):
            yield from part
        else:
            yield from _layers(part)


class Shares:
    """A learner in shares (``learner``), and the one that was given (``given``), empty or filled.

    called: the layers that are gathered one by one: those that the model calls, so that they are
        there when they are needed. A layer that shares a parameter with something else, and all
        that stands in no layer, is gathered at the beginning of a step and kept to its end.
    """

    def __init__(
        self, model: nn.Module, objective: nn.Module, processes: Processes, called: set[nn.Module]
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.given, self.processes = Learner(model, objective), processes
        try:
            self.learner = _twin(self.given)
        except (TypeError, RuntimeError, AttributeError) as error:
            raise ValueError(
                f"sharded=True divides a copy of the model, and {type(model).__name__} cannot be "
                f"copied: {str(error).rstrip('.')}"
            ) from error
        names = {module: name for name, module in self.given.named_modules()}
        apart = {names[layer] for layer in called if _owns_its_parameters(layer, self.given)}
        mesh = init_device_mesh(processes.device.type, (processes.count,))
        for name, layer in self.learner.named_modules():
            if name in apart:
                fully_shard(layer, mesh=mesh)
        fully_shard(self.learner, mesh=mesh)
        self.empty()

    @contextmanager
    def filled(self) -> Iterator[Learner]:
        """The learner that was given, whole inside; every process enters at the same place."""
        self.fill()
        try:
            yield self.given
        finally:
            self.empty()

    def fill(self) -> None:
        """Give all parameters and buffers to the learner that was given."""
        both = zip(self.given.parameters(), self.learner.parameters(), strict=True)
        for own, share in both:
            own.data = whole(share.detach())
        for given, twin in zip(self.given.modules(), self.learner.modules(), strict=True):
            given._buffers |= twin._buffers
            _take_numbers(given, twin)

    def take(self) -> None:
        """Take over what has been changed in the learner that was given, which is filled."""
        both = zip(self.given.parameters(), self.learner.parameters(), strict=True)
        with torch.no_grad():
            for own, share in both:
                share.copy_(own_share(own.detach(), share))
        for given, twin in zip(self.given.modules(), self.learner.modules(), strict=True):
            twin._buffers |= given._buffers
            _take_numbers(twin, given)

    def empty(self) -> None:
        """Give up the parameters of the learner that was given."""
        for parameter in self.given.parameters():
            parameter.data = parameter.data.new_empty(0)

    def check_called(self) -> None:
        """Raise ProcessesError where the processes did not call the same layers. Each has then
        computed with shares of different layers, if these are of one size; no update is made, and
        the learner that was given is filled."""
        try:
            self.processes.check_called()
        except ProcessesError:
            self.fill()
            raise

    def share_buffers(self) -> None:
        """Every process takes the buffers of the first, as before each forward pass under
        DistributedDataParallel."""
        self.processes.spread([b for b in self.learner.buffers() if b.numel()])


@contextmanager
def in_shares(
    model: nn.Module, objective: nn.Module, processes: Processes, called: set[nn.Module] | None
) -> Iterator[Shares | None]:
    """The shares of a learner for one run; without ``called`` there are none.

    Afterwards the model is whole again. It is not where one process failed alone, for the others
    do not give it their shares; the checkpoint has it.
    """
    if called is None:
        yield None
        return
    shares = Shares(model, objective, processes, called)
    try:
        yield shares
    except (TrainingError, CheckpointError, ValueError, TypeError):  # raised in every process
        shares.fill()
        raise
    shares.fill()


def _twin(learner: Learner) -> Learner:
    """The same modules once more, with the same tensors."""
    tensors = (*learner.parameters(), *learner.buffers())
    return copy.deepcopy(learner, {id(tensor): tensor for tensor in tensors})


def _owns_its_parameters(layer: nn.Module, learner: nn.Module) -> bool:
    """Whether it has parameters, and nothing outside of it has one of them."""
    inside, own = set(layer.modules()), {id(p) for p in layer.parameters()}
    outside = (module for module in learner.modules() if module not in inside)
    shared = any(id(p) in own for module in outside for p in module.parameters(recurse=False))
    return bool(own) and not shared


def _take_numbers(to: nn.Module, of: nn.Module) -> None:
    """What modules count in plain attributes, such as the steps of an objective."""
    for name, value in vars(of).items():
        if name in vars(to) and name != "training" and isinstance(value, int | float | str | list):
            setattr(to, name, cast(Any, value))
