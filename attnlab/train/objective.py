"""The objective of a run, by its name in the catalogue or as a module."""

from typing import Any

from torch import nn

from attnlab import catalog
from attnlab.core.suggest import suggestion
from attnlab.train.checks import shown

STEPS = ("prepare", "answers", "loss", "right")


def chosen(objective: str | nn.Module) -> Any:
    """The module of that name, or the one that was given, if it can be asked as an objective is.

    Raises ValueError for an unknown name, TypeError for a module that lacks one of the steps.
    """
    if isinstance(objective, str):
        known = catalog.with_role("objective")
        if objective not in known:
            end = suggestion(objective[:100], known)
            stop = "" if end.endswith("?") else "."
            raise ValueError(f"there is no objective {shown(objective)}{end}{stop}")
        return catalog.build(objective)
    missing = [name for name in STEPS if not callable(getattr(objective, name, None))]
    if missing or not isinstance(objective, nn.Module):
        raise TypeError(
            "objective should be a name, such as 'next_token', or a module with prepare, answers, "
            f"loss and right (attnlab.objectives says how they are called), got {shown(objective)}."
        )
    return objective
