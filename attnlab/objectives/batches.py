"""The batch that an objective takes, and the answers of a model to it."""

from typing import Any, Protocol

from torch import Tensor, nn

UNSCORED = -100
"""The target at a position that is not scored."""


class Batch(Protocol):
    """A batch of a task. `padding` and `source_padding` are True at real tokens."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None
    source: Tensor | None
    source_padding: Tensor | None

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> "Batch": ...
    def to(self, device: Any) -> "Batch": ...


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """The model's logits; encoder-decoder batches also have a source.

    Raises TypeError or ValueError for a model whose answers are no logits of these targets.
    """
    options: dict[str, Any] = {}
    if batch.source is not None:
        options = {"source": batch.source, "source_padding": batch.source_padding}
    structure = getattr(batch, "structure", None)  # of trees; most tasks have none
    if structure is not None:
        options["structure"] = structure
    logits = model(batch.inputs, padding=batch.padding, **options)
    check_logits(logits, batch)
    checked: Tensor = logits
    return checked


def check_logits(logits: Any, batch: Batch) -> None:
    """TypeError or ValueError for what is no logits of these targets."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"The model must return logits, a tensor; it returned a {type(logits).__name__}. "
            "Wrap it in a module whose forward returns the logits alone."
        )
    if logits.shape[:-1] != batch.targets.shape:
        raise ValueError(
            f"For targets of shape {tuple(batch.targets.shape)} the model must return logits of "
            f"shape {tuple(batch.targets.shape)} + (classes,); it returned {tuple(logits.shape)}. "
            "Is the model of the task's kind?"
        )
