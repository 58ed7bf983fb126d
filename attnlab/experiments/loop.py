"""Loop: trainings that `attnlab.train.fit` cannot describe, such as those with a loss of their own.

The stored rows of these experiments were trained so; a new experiment takes ``fit``.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler


def descend(
    optimizer: Optimizer,
    loss_of: Callable[[int], Tensor],
    steps: int,
    *,
    schedule: LRScheduler | None = None,
    clip: float | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Takes ``steps`` steps. ``loss_of`` is called with 0, 1, … and returns the loss of a batch,
    ``after`` with 1, 2, …, when that many steps are taken; ``clip`` is the largest norm of the
    gradient."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(step).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if after is not None:
            after(step + 1)


def rise_and_fall(optimizer: Optimizer, steps: int, *, warmup: int = 50) -> LambdaLR:
    """A schedule: straight up for ``warmup`` steps, and on a straight line to 0 at the end."""
    return LambdaLR(optimizer, lambda step: min(1, (step + 1) / warmup, 1 - step / max(steps, 1)))
