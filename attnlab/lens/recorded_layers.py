"""Reading the argument ``seen``: what ``attnlab.watch`` recorded, or weights in a dict."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attnlab.lens.record import Seen


def layers_of(seen: object, mask: object = None) -> list[tuple[str, Tensor, Tensor | None]]:
    """Name, weights (b, h, n, m) and mask of each layer of ``seen``, a TypeError or ValueError in a
    sentence where there is none."""
    if isinstance(seen, Seen):
        if mask is not None:
            raise ValueError(
                "mask goes with weights in a dict; records have their own: leave it out"
            )
        if not len(seen):
            seen[0]  # raises the sentence that says why nothing was recorded
        return [(record.name, record.weights, record.mask) for record in seen]
    if not isinstance(seen, Mapping):
        raise TypeError(
            "seen should be what attnlab.watch recorded, or a dict {name of the layer: weights "
            f"(b, h, n, n)}}, got {type(seen).__name__}"
        )
    if not seen:
        raise ValueError("seen is an empty dict: give the weights of at least one layer")
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool):
        raise TypeError("mask should be a bool tensor, True = may attend, or None")
    for name, weights in seen.items():
        if not isinstance(weights, Tensor) or weights.dim() != 4 or not weights.is_floating_point():
            raise TypeError(
                f"the weights of {name!r} should be floating-point numbers (b, h, n, n)"
            )
    return [(str(name), weights, mask) for name, weights in seen.items()]
