"""Whether the numbers of a tensor can be looked at, and which ways to compute are open."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_accelerator = ContextVar("accelerator", default=False)


def is_abstract(x: Tensor) -> bool:
    """True for tensors without numbers (on the meta device), and while ``torch.compile`` traces."""
    return torch.compiler.is_compiling() or x.is_meta


def exporting() -> bool:
    """True while ``torch.export`` traces: what is traced should serve other lengths, too."""
    if not torch.compiler.is_compiling():
        return False
    return bool(getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)())


def transformed() -> bool:
    """True inside ``vmap``, ``grad`` and the other transforms of ``torch.func``."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def plain() -> bool:
    """Whether neither a backward pass of our own nor writing in place can be followed."""
    return exporting() or transformed()


def on_cpu(x: Tensor) -> bool:
    """True on the CPU and on the meta device, on which what the CPU would compute is counted
    without being computed; False for both where they stand for a GPU, ``as_on_an_accelerator``."""
    stands_for_a_gpu = not torch.compiler.is_compiling() and _accelerator.get()
    return x.device.type in ("cpu", "meta") and not stands_for_a_gpu  # a compiler cannot ask


@contextmanager
def as_on_an_accelerator() -> Iterator[None]:
    """Within it, the CPU and the meta device stand for a GPU: what is counted there is what it
    would do."""
    before = _accelerator.set(True)
    try:
        yield
    finally:
        _accelerator.reset(before)
