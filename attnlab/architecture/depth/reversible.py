r"""Reversible layers: the backward pass computes activations again from the last layer's output.

A residual stream in two halves (Gomez et al. 2017), each sublayer reading one and adding to the
other:

$$Y_1 = X_1 + \mathrm{Attention}(X_2),\qquad Y_2 = X_2 + \mathrm{FeedForward}(Y_1),$$

so that the inputs of a layer follow from its outputs,

$$X_2 = Y_2 - \mathrm{FeedForward}(Y_1),\qquad X_1 = Y_1 - \mathrm{Attention}(X_2),$$

and none need be kept: the backward pass goes from the last layer to the first, computes the inputs
of one sublayer, runs it again, takes its gradients and forgets it. What is kept for backward is the
last Y_1 and Y_2, whatever the number of layers; the price is one more forward pass.
(``checkpointed`` has the same price and keeps the input of every layer.)

Both halves start as the embedding; their mean goes on to what follows the layers. A layer norm
stands at the beginning of each sublayer: one after the sum could not be undone. X_2 and X_1 are
recomputed up to rounding, which is enough in float32; half precisions lose digits in every layer.

The random numbers of a sublayer (dropout) are the same when it runs again: the state of the
generators is kept for each sublayer in training, some 5 kB on the CPU, whatever the length.

Feed-forward layers in pieces (``feed="mlp"`` with ``chunks``) are the other half of this saving:
their hidden layer is four times as wide as the stream.

``naive``       the two equations, everything kept.
``recomputed``  the two equations, nothing kept but the last halves.

Common mistakes: other random numbers when a sublayer runs again; a norm after the sum.

Departures.
- the authors concatenate the two halves at the end, where we take the mean, so that the width stays

Kitaev, Kaiser, Levskaya. Reformer: The Efficient Transformer. ICLR 2020, arXiv:2001.04451, section
3. Gomez, Ren, Urtasun, Grosse, The Reversible Residual Network: Backpropagation Without Storing
Activations, NeurIPS 2017, arXiv:1707.04585.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnlab.core.branches import Branch, Layer, used
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.replay import Settings

# ---- forms


def naive(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """The two equations: each branch reads one half and adds to the other."""
    first = second = x
    for branch in _branches(layers):
        first, second = second, first + branch.run(second)
    return (first + second) / 2


def recomputed(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """``naive``; the backward pass computes each input again from the output."""
    branches = _branches(layers)
    first, second = _Reversible.apply(branches, x, x, *used(branches).values())
    return (first + second) / 2


FORMS = {"naive": naive, "recomputed": recomputed}


def _branches(layers: Sequence[Layer]) -> list[Branch]:
    return [branch for layer in layers for branch in layer.branches]


class _Reversible(torch.autograd.Function):
    """(a, b) → (b, a + f(b)) for each branch f, and back."""

    @staticmethod
    def forward(
        ctx: Any, branches: Sequence[Branch], a: Tensor, b: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.branches, ctx.settings = branches, []
        for part in branches:
            ctx.settings.append(Settings.now(b))
            a, b = b, a + part.run(b)
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        forbid_double_backward("depth='reversible'")
        (b, c), (grad_b, grad_c) = ctx.saved_tensors, grads
        found: dict[int, Tensor | None] = dict.fromkeys(used(ctx.branches))
        for part, settings in zip(reversed(ctx.branches), reversed(ctx.settings), strict=True):
            own = list(used([part]).values())
            with torch.enable_grad(), settings.again():
                b = b.detach().requires_grad_()
                added = part.run(b)
            of_b, *of_own = torch.autograd.grad(
                added, [b, *own], grad_c, allow_unused=True, materialize_grads=True
            )
            for parameter, grad in zip(own, of_own, strict=True):
                before = found[id(parameter)]
                found[id(parameter)] = grad if before is None else before + grad
            b, c = c - added.detach(), b.detach()
            grad_b, grad_c = grad_c, grad_b + of_b
        return None, grad_b, grad_c, *found.values()


# ---- module


class Reversible(Way):
    """The branches of the layers on a stream in two halves; in decoding none is computed twice."""

    reads_branches = True
    run = staticmethod(recomputed)
    read_on = staticmethod(naive)


# ---- card

L, x, p = letters("L x p")

CARD = Card(
    __doc__,
    name="reversible",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=2 * x, parameters=L * p, equals="two halves that each branch couples"),
    build=Reversible,
    demo="""
    >>> def kept(depth, layers):  # elements that the forward pass keeps
    ...     found = []
    ...     model = attnlab.TinyTransformer(50, dim=32, layers=layers, depth=depth)
    ...     keep = lambda saved: found.append(saved.numel()) or saved
    ...     with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
    ...         model(torch.arange(20)[None])
    ...     return sum(found)
    >>> kept("reversible", 8) == kept("reversible", 2)
    True
    >>> kept("plain", 8) > 3 * kept("plain", 2)
    True
    """,
)
