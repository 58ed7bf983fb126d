"""PyTorch's fused inference path: ``nn.TransformerEncoder`` and ``nn.MultiheadAttention`` in one
C++ call, in eval mode without gradients."""

from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

multi_head_attention = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda tensors: False},
    "multi_head_attention_forward",
    F.multi_head_attention_forward.__defaults__,
)
"""PyTorch's own function, called without the check for an override of the function as a whole: a
``TorchFunctionMode`` then sees every function that it calls."""
multi_head_attention.__kwdefaults__ = F.multi_head_attention_forward.__kwdefaults__

_FAST = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


def has_fast_path(module: nn.Module | None) -> bool:
    """Whether PyTorch may run this module, unwatched, in one fused call."""
    kind = next((kind for kind in _FAST if isinstance(module, kind)), None)
    if (
        kind is None
        or module is None
        or module.training
        or type(module).forward is not kind.forward
    ):
        return False
    if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
        return False
    if isinstance(module, nn.TransformerEncoder):
        return all(has_fast_path(layer) for layer in module.layers)
    inner = [part for part in module.modules() if part is not module]
    return not any(part._forward_hooks or part._forward_pre_hooks for part in inner)


def unwatched(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """The module's own output, computed as without ``watch``."""
    with torch._C.DisableTorchFunction():
        return module.forward(*args, **kwargs)
