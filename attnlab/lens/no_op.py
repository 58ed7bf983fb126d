r"""Does it matter how much a head attends to a delimiter?

Many heads put most of their weight on tokens that say little, such as [SEP] or the first token. One
reading is that this is a **no-op**: where a head finds nothing that it is made for, it attends to a
token whose value changes nothing. The reading makes a prediction. If the weight $A_{ij}$ on such a
token were a little larger or smaller, the loss L would stay as it is: the gradient

$$\frac{\partial L}{\partial A_{ij}} = \frac{\partial L}{\partial o_i} \cdot v_j$$

is small there, and larger at other tokens. $o_i$ is the output of the head for query i before the
output projection, $v_j$ the value of key j; the weights are taken as free numbers, after the
softmax. ``weight_gradients`` computes this of attnlab's models, and ``no_op`` compares, head by
head. Of a model of Hugging Face whose attention is "eager", the gradients are

    outputs = model(..., output_attentions=True)
    torch.autograd.grad(loss, outputs.attentions)

A small gradient says that a small change of that weight alone does nothing. It does not say that
the head does nothing: rows sum to 1, so what goes to a delimiter is taken from the other tokens.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341,
section 3.3. Kobayashi, Kuribayashi, Yokoi, Inui. Attention is Not Only a Weight. EMNLP 2020,
arXiv:2004.10102.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.compression.head_importance import attention_layers
from attnlab.core.modes import mode
from attnlab.lens.heads import check_weights
from attnlab.lens.watch import watch

Objective = Callable[..., tuple[Tensor, Any]]
"""``(model, batch, generator) -> (sum, count)``, such as ``attnlab.build("next_token")``."""


class WeightGradients(NamedTuple):
    """What is known of one layer, (b, h, n, m) each."""

    weights: Tensor
    gradients: Tensor
    """Of the summed loss of the batch."""
    mask: Tensor | None
    """Bool, True = may attend, broadcastable; None where all may."""


class NoOp(NamedTuple):
    """One number for each head of a layer, (h,) each."""

    share: np.ndarray
    """Of the attention that goes to the tokens in question."""
    there: np.ndarray
    """The mean of |∂L/∂A| at pairs with such a key."""
    elsewhere: np.ndarray
    """The mean at all other pairs that are allowed."""


def weight_gradients(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None = None
) -> dict[str, WeightGradients]:
    """Layer's name → its weights and ∂L/∂A, for a model of attnlab whose layers have heads.

    Raises a ValueError where the model has no such layer, or a layer is not recorded once.
    """
    layers = attention_layers(model)
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x = given[0] if given[0].requires_grad else given[0].detach().requires_grad_()
            outputs[name] = x
            return (x, *given[1:])

        return hook

    with ExitStack() as stack:
        stack.enter_context(mode(model, training=False))
        stack.enter_context(torch.enable_grad())
        for name, layer in layers.items():
            handle = layer.output.register_forward_pre_hook(keep(name))
            stack.callback(handle.remove)
        seen = stack.enter_context(watch(model))
        loss, _ = objective(model, batch, generator)
        gradients = torch.autograd.grad(loss, list(outputs.values()), materialize_grads=True)
    if len(seen) != len(outputs):
        raise ValueError(
            f"{len(seen)} attention calls were recorded and {len(outputs)} layers gave an output: "
            "gradients of weights are taken of layers that are run once and have weights"
        )
    found = {}
    for record, (name, gradient) in zip(seen, zip(outputs, gradients, strict=True), strict=True):
        weights, values = record.weights, record.values
        heads = weights.shape[1]
        by_head = gradient.unflatten(-1, (heads, -1)).transpose(1, 2)  # (b, h, n, e)
        values = values.repeat_interleave(heads // values.shape[1], dim=1)
        found[name] = WeightGradients(weights, by_head @ values.mT, record.mask)
    return found


def no_op(
    weights: Tensor, gradients: Tensor, columns: Tensor, *, mask: Tensor | None = None
) -> NoOp:
    """Gradients at the keys in question beside those at all others, for each head of a layer.

    ``weights``, ``gradients``  (b, h, n, m)
    ``columns``                 (b, m) bool: True = a delimiter, or whatever is in question
    ``mask``                    bool, True = may attend: pairs that may not count nowhere
    """
    check_weights(weights.detach())
    if gradients.shape != weights.shape:
        raise ValueError(
            f"gradients should be as large as the weights {tuple(weights.shape)}, got "
            f"{tuple(gradients.shape)}"
        )
    b, _, _, m = weights.shape
    if columns.dtype != torch.bool or columns.shape != (b, m):
        raise ValueError(
            f"columns should be bool of shape (b, m) = {(b, m)}, True = a token in question, got "
            f"{columns.dtype} of {tuple(columns.shape)}"
        )
    allowed = torch.ones_like(weights, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask.to(weights.device)
    there = allowed & columns.to(weights.device)[:, None, None, :]
    elsewhere = allowed & ~there
    if not bool(there.any()) or not bool(elsewhere.any()):
        raise ValueError("columns should name some of the keys that may be attended to, not all")
    w, size = weights.detach().double(), gradients.detach().double().abs()

    def mean(where: Tensor) -> np.ndarray:
        return _numbers((size * where).sum((0, 2, 3)) / where.sum((0, 2, 3)))

    return NoOp(
        _numbers((w * there).sum((0, 2, 3)) / w.sum((0, 2, 3))), mean(there), mean(elsewhere)
    )


def _numbers(of_heads: Tensor) -> np.ndarray:
    return np.asarray(of_heads.cpu().numpy())
