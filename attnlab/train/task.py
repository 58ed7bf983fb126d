"""What training requires of a task, and the checks of every batch that it gives.

A task must give exactly the number of rows that it is asked for: the loss is divided by the number
of scored targets in the whole batch, so rows that no process trains on would make the loss, and
every gradient, too small.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.train.checks import shown
from attnlab.train.generators import derived_seed

_TENSORS = ("inputs", "targets", "padding", "source", "source_padding")


class Task(Protocol):
    """What `fit` requires of a task; `batch` is a function of its arguments alone.

    A task may also have `documents(split)`, a list of tensors of tokens (n,), int64: what `fit` and
    `evaluate` read in segments, next token by next token, if they are given `segment`.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    def batch(self, split: Any, size: int, seed: int) -> Any: ...


class Drawn(NamedTuple):
    """A batch, how many of its targets are scored, and the largest of those (-1 for none)."""

    batch: Batch
    scored: int
    largest: int


def check_task(task: object) -> None:
    complete = isinstance(getattr(task, "name", None), str) and hasattr(task, "kind")
    if isinstance(task, type) or not complete or not callable(getattr(task, "batch", None)):
        hint = "; that is a class: call it to build a task" if isinstance(task, type) else ""
        raise TypeError(
            "task should be a task, such as attnlab.tasks.task('copying'), with a name, a kind and "
            f"batch(split, size, seed); {shown(task)} was given{hint}"
        )


def draw(task: Task, split: str, size: int, seed: int, objective: Any = None) -> Drawn:
    """`size` rows of `task`, as they are or as an objective asks for them, checked before the model
    is called with them. What is hidden follows from the seed."""
    batch = task.batch(split, size, seed=seed)
    tensors = _tensors(task, batch)
    _check_rows(task, tensors, size)
    check_length(task, batch, size)
    for name in ("padding", "source_padding"):
        if name in tensors and tensors[name].dtype != torch.bool:
            raise ValueError(
                f"Task '{task.name}' gave {name} of {tensors[name].dtype}; it should be bool, True "
                "at real tokens"
            )
    if objective is not None:
        hidden = torch.Generator().manual_seed(derived_seed(seed, "objective"))
        batch = objective.prepare(batch, hidden)
    return Drawn(batch, *_check_targets(task, batch.targets))


def check_length(task: Task, batch: Batch, size: int) -> None:
    if len(batch) != size:
        raise ValueError(
            f"Task '{task.name}' was asked for {size} rows and gave a batch of {len(batch)}; "
            "batch(split, size, seed) should give exactly `size` rows, and batch[a:b] the rows "
            "from a to b, or the loss would be divided by targets that no process trains on"
        )


def _tensors(task: Task, batch: Any) -> dict[str, Tensor]:
    """The tensors of a batch by name; anything that training would not read is refused."""
    fields = {n: v for n in _TENSORS if (v := getattr(batch, n, None)) is not None}
    for name in ("inputs", "targets"):
        able = all(hasattr(batch, method) for method in ("__len__", "__getitem__", "to"))
        if not able or not isinstance(fields.get(name), Tensor):
            raise ValueError(
                f"Task '{task.name}' should give batches with the tensors inputs and targets, "
                "and with len(batch), batch[a:b] and batch.to(device), such as "
                f"attnlab.tasks.Batch(inputs, targets); batch(...) returned {_kind(batch)}"
            )
    for name in _TENSORS:
        if not hasattr(batch, name) or not isinstance(fields.get(name), Tensor | None):
            raise ValueError(
                f"Task '{task.name}' should give batches whose {name} is a tensor or None; "
                f"{_kind(getattr(batch, name, None))} was given"
            )
    unread = [n for n, v in _attributes(batch).items() if isinstance(v, Tensor) and n not in fields]
    if unread:
        raise ValueError(
            f"Task '{task.name}' gave a batch with '{unread[0]}', which training would not read: "
            "every scored target weighs the same; leave it out, or set the targets that should "
            f"not count to {UNSCORED}"
        )
    return fields


def _attributes(batch: object) -> dict[str, Any]:
    return dict(getattr(batch, "__dict__", {}))


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _check_rows(task: Task, tensors: dict[str, Tensor], size: int) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if any(not shape or 0 in shape for shape in shapes.values()):
        raise ValueError(
            f"Task '{task.name}' is empty: asked for {size} row{'s' * (size > 1)}, it gave inputs "
            f"of shape {shapes['inputs']} and targets of shape {shapes['targets']}"
        )
    for name, shape in shapes.items():
        if shape[0] != size:
            raise ValueError(
                f"Task '{task.name}' was asked for {size} rows and gave {name} of shape {shape}, "
                f"{shape[0]} rows; batch(split, size, seed) should give exactly `size` rows"
            )


def _check_targets(task: Task, targets: Tensor) -> tuple[int, int]:
    if targets.dtype != torch.int64:
        raise ValueError(
            f"Task '{task.name}' gave targets of {targets.dtype}; they should be classes or "
            f"tokens, whole numbers of torch.int64, and {UNSCORED} where nothing is scored"
        )
    kept = targets[targets != UNSCORED]
    if not len(kept):
        return 0, -1
    least, largest = (int(value) for value in kept.aminmax())
    if least < 0:
        raise ValueError(
            f"Task '{task.name}' gave the target {least}; targets are whole numbers from 0, and "
            f"{UNSCORED} where nothing is scored"
        )
    return len(kept), largest


def check_classes(answers: Any, largest: int) -> None:
    """A ValueError for logits that cannot answer the largest target of a batch."""
    if isinstance(answers, Tensor) and largest >= answers.shape[-1]:
        raise ValueError(
            f"A target is {largest}, but the model distinguishes only {answers.shape[-1]} classes "
            f"or tokens (0 to {answers.shape[-1] - 1}); build the model for this task"
        )


def tokens_in(batch: Batch) -> int:
    """Real tokens the model reads: padding does not count, a source does."""
    total = _valid_tokens(batch.inputs, batch.padding)
    return (
        total if batch.source is None else total + _valid_tokens(batch.source, batch.source_padding)
    )


def _valid_tokens(tokens: Tensor, padding: Tensor | None) -> int:
    return tokens.shape[:2].numel() if padding is None else int(padding.sum())


def requirements(task: Task) -> str:
    """What the task requires of a model, in terms of the task's properties."""
    names = ("kind", "vocab", "features", "classes", "length")
    known = {name: getattr(task, name, None) for name in names}
    return ", ".join(f"{name}={value!r}" for name, value in known.items() if value is not None)


def advice(task: Task) -> str:
    if hasattr(task, "model_options"):
        return "TinyTransformer(**task.model_options()) fits"
    return "build the model for this task"
