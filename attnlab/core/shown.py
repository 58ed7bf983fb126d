"""A value in an error: short, whatever it is."""

import reprlib
from typing import Any

from torch import Tensor


class _Short(reprlib.Repr):
    """``repr``, but of a tensor its shape alone and of a long collection its beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 200
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = 12

    def repr_instance(self, x: Any, level: int) -> str:
        if isinstance(x, Tensor):
            return f"a tensor of shape {tuple(x.shape)}"
        if isinstance(x, tuple):  # named
            parts = ", ".join(self.repr1(part, level - 1) for part in x[: self.maxtuple])
            return f"{type(x).__name__}({parts})" if level > 0 else f"{type(x).__name__}(...)"
        return super().repr_instance(x, level)


def shown(value: Any) -> str:
    """``value`` as an error shows it: of a decoder's state, the shapes and not the numbers."""
    return _Short().repr(value)
