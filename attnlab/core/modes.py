"""Training and evaluation mode of a model, switched inside a block."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """``model.train(training)`` inside; afterwards every submodule has its own mode again."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training
