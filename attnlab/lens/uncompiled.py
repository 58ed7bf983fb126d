"""While a watch is open, compiled models run as ordinary Python code.

PyTorch's setting for compiled code and Python's warning filters belong to the whole process, so
watches that overlap share one change of them: the first to begin makes it, the last to end reverts
it, whichever threads they are in.
"""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch

_lock = threading.Lock()
_inside = 0
_undo = ExitStack()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled code runs eagerly inside the block. Blocks may overlap and close in any order."""
    if "torch._dynamo" not in sys.modules:
        yield  # nothing has been compiled
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _inside
    with _lock:
        if _inside == 0:
            _undo.enter_context(torch.compiler.set_stance("force_eager"))
            # PyTorch warns that global hooks fire for the compiled module's wrapper as well.
            _ignore(".*when there are global hooks on modules")
        _inside += 1


def _end() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _undo.close()


def _ignore(message: str) -> None:
    """Ignore this warning until ``_undo``. Only this entry is taken out again: restoring all
    filters, as ``warnings.catch_warnings`` does, would undo what others changed meanwhile."""
    warnings.filterwarnings("ignore", message=message)
    filters = cast(list[Any], warnings.filters)
    _undo.callback(_remove, filters, filters[0])


def _remove(filters: list[Any], entry: Any) -> None:
    """Remove the filter from the list it was added to, and from the copy in force now."""
    for each in (filters, cast(list[Any], warnings.filters)):
        if entry in each:
            each.remove(entry)
