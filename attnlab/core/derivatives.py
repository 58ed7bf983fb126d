"""An error for second derivatives, where a form computes only first ones."""

import torch


def refuse_second(what: str) -> None:
    """In a backward pass without a derivative of its own: an error where one is asked for.

    PyTorch's ``once_differentiable`` looks at the gradient that arrives. Of a plain sum that is a
    constant, and a ``create_graph=True`` would get gradients without a graph, in silence.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"{what} has first derivatives only: without create_graph, or by the naive form"
        )
