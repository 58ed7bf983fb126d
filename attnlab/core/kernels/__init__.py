"""Kernels in Triton, the second language of the library, and where they can run.

Triton is a Python package in which one writes what one block of a GPU's threads does with a tile of
numbers; a compiler makes a GPU's instructions of it. It comes with PyTorch's CUDA build and is not
needed otherwise, so the modules of this folder, which import it, are imported by forms when they
are called. A form named ``triton`` says by ``refusal`` why it cannot run where it is called.

Triton's interpreter computes the same kernels on a CPU, one block after the other, in NumPy. It is
slow, and it is how they are proved without a GPU. It is chosen by ``TRITON_INTERPRET=1`` in the
environment, before Triton is imported.
"""

import functools
import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from attnlab.core.tracing import plain

HOW = "an NVIDIA or AMD GPU, or TRITON_INTERPRET=1 in the environment before Python starts"


def kernel(module: str, name: str, *tensors: Tensor) -> Any:
    """The kernel ``name`` of a module of this folder, to be launched on these tensors.

    Raises ValueError, with the reason, where it cannot run.
    """
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break()  # a kernel is no part of what is traced
    reason = refusal(*tensors)
    if reason:
        raise ValueError(f"triton cannot run here: {reason}; use another form of this page")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **sizes: Any) -> None:
    """Run a kernel for every program of the grid.

    Raises ValueError, with Triton's own words, where Triton cannot compile it for this GPU.
    """
    try:
        kernel[grid](*given, **sizes)
    except Exception as error:
        of_compiler = type(error).__module__.startswith(
            ("triton.compiler", "triton.runtime.errors")
        )
        if of_compiler or "PassManager" in str(error):
            raise ValueError(
                f"triton cannot compile {kernel.__name__} for this GPU ({_first_line(error)}); "
                "use another form of this page"
            ) from error
        raise


def refusal(*tensors: Tensor) -> str | None:
    """Why a kernel cannot run on these tensors, in words; None if it can."""
    reason = _missing()
    if reason:
        return reason
    device = tensors[0].device
    if device.type == "meta":
        return "tensors on the meta device have no numbers to compute with"
    if plain():
        return "torch.func and torch.export cannot look into a kernel"
    if _interpreted():
        return None
    if device.type not in ("cuda", "xpu"):
        return f"these tensors are on the device {device.type!r}, and a kernel needs {HOW}"
    return _driver_fault(device.type)


@functools.cache
def _missing() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return (
            "the package triton is not installed; it comes with PyTorch for CUDA, and on Linux "
            "`pip install triton` brings it"
        )
    try:
        importlib.import_module("triton.language")
    except Exception as error:  # whatever a broken installation raises
        return f"the package triton cannot be imported ({_first_line(error)})"
    return None


def _interpreted() -> bool:
    """Whether the kernels of this process were made for the interpreter."""
    own = importlib.import_module(f"{__name__}.linear_recurrence")
    return type(own.linear_recurrence).__name__ == "InterpretedFunction"


@functools.cache
def _driver_fault(kind: str) -> str | None:
    """What Triton says of this machine's driver, or of a GPU that is too old."""
    try:
        importlib.import_module("triton.runtime").driver.active.get_current_target()
    except Exception as error:
        return f"Triton finds no driver for the device {kind!r} ({_first_line(error)})"
    if kind == "cuda" and torch.version.cuda and torch.cuda.get_device_capability() < (8, 0):
        major, minor = torch.cuda.get_device_capability()
        return (
            f"this GPU has compute capability {major}.{minor}, and Triton compiles for 8.0 or more"
        )
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
