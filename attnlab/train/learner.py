"""What a run trains: a model, and what its objective has to learn beside it, such as a head."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.modes import mode
from attnlab.train.generators import derived_seed, preserved_generators
from attnlab.train.tensors import bare, parameter_names


class Learner(nn.Module):
    """A model with its objective, trained by one optimizer; called with a batch, it gives the
    model's answers. Several processes average the gradients of both, since this is what they wrap.
    """

    def __init__(self, model: nn.Module, objective: nn.Module) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Any:
        answers: Any = self.objective.answers(self.model, batch)  # type: ignore[operator]
        return answers

    @property
    def trains_its_objective(self) -> bool:
        """Whether the objective has parameters of its own that are trained."""
        return any(parameter.requires_grad for parameter in self.objective.parameters())

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters of both by the names that a checkpoint has for them."""
        for parameter, name in parameter_names(self.model, self.objective).items():
            yield name, parameter

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """Both in training mode inside; afterwards every module has its own mode again."""
        with mode(self.model, training=True), mode(self.objective, training=True):
            yield


def fit_objective(objective: Any, model: nn.Module, device: torch.device, seed: int | str) -> None:
    """Lets the objective build what it needs for this model, and moves it there.

    objective: its ``fitted(model)``, if it has one, builds heads or teachers of the model's width,
        once; their first values follow from ``seed``.

    Raises ValueError for a model that it cannot train.
    """
    if callable(build := getattr(objective, "fitted", None)):
        with preserved_generators(device):
            torch.manual_seed(derived_seed(seed, "objective"))
            build(bare(model))
    inside = {id(part) for part in bare(model).modules()}
    if shared := [name for name, part in objective.named_modules() if id(part) in inside]:
        raise ValueError(
            f"{type(objective).__name__} keeps a part of the model it trains, as '{shared[0]}', "
            "which a checkpoint would hold twice; keep a copy, or take the part from the model "
            "that answers(model, batch) is given"
        )
    objective.to(device)
