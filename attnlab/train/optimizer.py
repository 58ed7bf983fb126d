"""AdamW with weight decay on matrices only, and the schedule of its learning rate."""

import math

import torch
from torch import nn

_GAINS = (nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def decays(module: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to matrices that multiply, not to biases, gains and embeddings.

    Decay shrinks a matrix towards a smaller function; on a gain, a bias or the row of a rare
    token it only fights what was learned there (Loshchilov and Hutter, "Decoupled weight decay",
    2019).
    """
    return parameter.ndim >= 2 and name != "bias" and not isinstance(module, _GAINS)


def adamw(model: nn.Module, *, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over the trainable parameters of `model`, in two groups: decayed and not decayed.

    A tied weight is counted once; it decays only if every module that owns it lets it.
    """
    owners: dict[nn.Parameter, list[bool]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                owners.setdefault(parameter, []).append(decays(module, name, parameter))
    if not owners:
        raise ValueError(
            "The model has no trainable parameter (none with requires_grad=True), so there is "
            "nothing for fit to learn"
        )
    groups = [
        {"params": [p for p, d in owners.items() if all(d)], "weight_decay": weight_decay},
        {"params": [p for p, d in owners.items() if not all(d)], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in owners)
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate, fused=fused)


def default_warmup(steps: int) -> int:
    """A tenth of the run, at most a hundred steps."""
    return min(100, steps // 10)


SCHEDULES = ("cosine", "linear")


def learning_rate(
    step: int, steps: int, peak: float, warmup: int, schedule: str = "cosine"
) -> float:
    """The rate of step 1, 2, …, `steps`: straight up to `peak`, then half a cosine towards 0, or a
    straight line.

    A function of its arguments alone, so a resumed run needs no scheduler state. The first rate is
    above zero and so is the last, so every step moves the weights.
    """
    if step <= warmup:
        return peak * step / (warmup + 1)
    progress = (step - 1 - warmup) / (steps - warmup)
    if schedule == "linear":
        return peak * (1 - progress)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
