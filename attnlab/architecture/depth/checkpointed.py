r"""Checkpointed layers: the backward pass computes each layer again from its input.

The same loop as ``plain``, and the same numbers:

$$x_{l+1} = \mathrm{layer}_l(x_l)$$

Of each layer only the input $x_l$ is kept. When the backward pass arrives at a layer, it runs the
layer again and has all that is inside, of this one layer alone. The price is one more forward pass,
about a third more time. (``reversible`` keeps not even the inputs, for the same price.)

Random numbers (dropout) are the same when a layer runs again: PyTorch keeps the state of the
generators.

``naive``       the loop, everything kept.
``recomputed``  the loop, each layer computed again during the backward pass.

Departures.
- every layer is a segment of its own, where the paper takes √L of them

Chen, Xu, Zhang, Guestrin. Training Deep Nets with Sublinear Memory Cost. arXiv 2016,
arXiv:1604.06174.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attnlab.core.branches import Layer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way, loop

# ---- forms


def recomputed(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """The loop over layers that are computed again."""
    for layer in layers:
        x = again(layer)(x)
    return x


FORMS = {"naive": loop, "recomputed": recomputed}


def again(layer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The layer, of which only the input is kept."""
    return partial(checkpoint, layer, use_reentrant=False) if torch.is_grad_enabled() else layer


# ---- module


class Checkpointed(Way):
    """The loop over layers that are computed again; in decoding none is computed twice."""

    run = staticmethod(recomputed)


# ---- card

L, x, p = letters("L x p")

CARD = Card(
    __doc__,
    name="checkpointed",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=L * x, parameters=L * p, equals="the loop over the layers"),
    build=Checkpointed,
    demo="""
    >>> calls, x = [], torch.randn(1, 5, 8, requires_grad=True)
    >>> def layer(x):
    ...     calls.append("run")
    ...     return torch.tanh(x)
    >>> attnlab.build("checkpointed")(x, 3 * [layer]).sum().backward()
    >>> len(calls)  # three forward, and each once more for the backward pass
    6
    """,
)
