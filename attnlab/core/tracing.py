"""Whether the numbers of a tensor can be looked at."""

import torch
from torch import Tensor


def hidden(x: Tensor) -> bool:
    """True for tensors without numbers (on the meta device), and while ``torch.compile`` traces."""
    return torch.compiler.is_compiling() or x.is_meta
