"""Plain PyTorch operations in place of ``attnlab::blocked``, for readers of an exported program.

``torch.export`` keeps attention over a layout as one operator. Runtimes and formats that know
PyTorch's own operators alone get it by

    program = torch.export.export(layer, (x,)).run_decompositions(decompositions())

as the equation under the dense mask: n × m scores in place of the allowed pairs alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.core.patterns import both, padding, read
from attnlab.core.precision import upcast
from attnlab.core.softmax import masked_softmax


def decompositions() -> dict[Any, Callable[..., Tensor]]:
    """The table for ``ExportedProgram.run_decompositions``."""
    return {torch.ops.attnlab.blocked.default: dense}


def dense(
    q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, key: str, block: int | None,
    scale: float, dropout: float, seed: Tensor,
) -> Tensor:  # fmt: skip
    """The equation, for the arguments of the operator; without dropout."""
    if dropout:
        raise ValueError("dropout is not decomposed: call eval() before the layer is exported")
    seen = both(read(key), padding(valid)).dense(q.shape[-2], k.shape[-2], q.device)
    weights = masked_softmax(upcast(q) @ upcast(k).mT * scale, seen)
    return (weights @ upcast(v)).to(v.dtype)
