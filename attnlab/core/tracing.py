"""Whether the numbers of a tensor can be looked at, and whether it is computed as on a CPU."""

import torch
from torch import Tensor


def hidden(x: Tensor) -> bool:
    """True for tensors without numbers (on the meta device), and while ``torch.compile`` traces."""
    return torch.compiler.is_compiling() or x.is_meta


def on_cpu(x: Tensor) -> bool:
    """True on the CPU and on the meta device, which stands for it: what is counted there without
    being computed is what the CPU would compute."""
    return x.device.type in ("cpu", "meta")
