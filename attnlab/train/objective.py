"""The objective of a run, by its name in the catalogue or as a module."""

from typing import Any

from torch import nn

from attnlab import catalog
from attnlab.core.suggest import suggestion
from attnlab.models.tiny import TinyTransformer
from attnlab.train.checks import shown
from attnlab.train.task import Task
from attnlab.train.tensors import bare

STEPS = ("prepare", "answers", "loss", "right")


def chosen(objective: str | nn.Module, task: Task) -> Any:
    """The module of that name for this task, or the one that was given, if it can be asked as an
    objective is.

    Raises ValueError for an unknown name and for a task without tokens where they are needed,
    TypeError for a module that lacks one of the steps.
    """
    if isinstance(objective, str):
        known = catalog.with_role("objective")
        if objective not in known:
            end = suggestion(objective[:100], known)
            raise ValueError(f"there is no objective {shown(objective)}{end}")
        if "vocab" not in known[objective].option_names():
            return catalog.build(objective)
        vocab = getattr(task, "vocab", None)
        if not isinstance(vocab, int):
            raise ValueError(
                f"objective={objective!r} hides tokens, and task '{task.name}' has none; take "
                "another objective"
            )
        return catalog.build(objective, vocab=vocab)
    missing = [name for name in STEPS if not callable(getattr(objective, name, None))]
    if missing or not isinstance(objective, nn.Module):
        raise TypeError(
            "objective should be a name, such as 'next_token', or a module with prepare, answers, "
            f"loss and right (attnlab.objectives says how they are called), got {shown(objective)}"
        )
    return objective


def check_kind(model: nn.Module, objective: Any) -> None:
    """A ValueError for a TinyTransformer of a kind that the objective cannot train."""
    model, able = bare(model), getattr(objective, "models", None)
    kind = getattr(model, "kind", None)
    if able is not None and isinstance(model, TinyTransformer) and kind not in able:
        raise ValueError(
            f"{type(objective).__name__} trains models of kind {' or '.join(map(repr, able))}, got "
            f"a model of kind={kind!r}; attnlab.train.model_options(task, objective) has the "
            "options that fit"
        )


def model_options(task: Task, objective: str | nn.Module = "next_token") -> dict[str, Any]:
    """The keyword arguments of a ``TinyTransformer`` that learns this task by this objective.

    They are ``task.model_options()`` with the kind of model that the objective trains, and with the
    tokens that it adds, such as a mask:

        model = TinyTransformer(**model_options(text, "masked_lm"), dim=64)
        fit(model, text, 500, objective="masked_lm")

    Raises ValueError where the task has not what the objective needs.
    """
    asked, options = chosen(objective, task), dict(task.model_options())  # type: ignore[attr-defined]
    options |= getattr(asked, "needs", {})
    kinds = getattr(asked, "models", (options["kind"],))
    if options["kind"] not in kinds:
        options["kind"] = kinds[0]
    if options["vocab"] is not None:
        options["vocab"] += getattr(asked, "specials", 0)
    if callable(longest := getattr(asked, "longest", None)):
        options["max_len"] = longest(options["max_len"])
    if (classes := getattr(asked, "classes", None)) is not None:
        options["classes"] = classes
    elif options["kind"] == "token_classifier":
        hides = getattr(asked, "specials", 0) > 0  # then its answers are tokens, whatever the task
        if hides or options["classes"] is None:
            options["classes"] = options["vocab"]
    return options
