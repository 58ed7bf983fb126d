"""The softmax over allowed keys."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.precision import upcast
from attnlab.core.shapes import checked


@checked
def masked_softmax(
    scores: Float[Tensor, "... n m"], mask: Bool[Tensor, "... #n #m"] | None = None
) -> Float[Tensor, "... n m"]:
    r"""Weights over the keys that each query may attend to.

    $$w_{ij} = \frac{e^{s_{ij}}}{\sum_{j' \in S_i} e^{s_{ij'}}} \text{ for } j \in S_i,\quad 0
    \text{ elsewhere.}$$

    S_i is the set of keys that query i may attend to. Where it is empty, the row is zero, in values
    and in gradients; it is never NaN, and never the unmasked softmax that a large negative number
    in place of a mask would give. The largest allowed score is subtracted first; half precisions
    are summed in float32.
    """
    allowed = upcast(scores)
    if mask is not None:
        allowed = allowed.masked_fill(~mask, -torch.inf)
    largest = allowed.detach().amax(dim=-1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0)  # an empty row has no largest score
    powers = torch.exp(allowed - largest)
    total = powers.sum(dim=-1, keepdim=True)
    return (powers / (total + (total == 0))).to(scores.dtype)
