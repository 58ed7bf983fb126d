"""A batch as an objective asks for it, with what the objective itself needs again later."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnlab.objectives.batches import Batch


@dataclass(frozen=True, eq=False)
class Asked:
    """A batch (``attnlab.objectives.batches.Batch``) and more tensors with as many rows, such as
    random numbers drawn in ``prepare``; all are cut and moved together."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_padding: Tensor | None = None
    structure: Any = None
    kept: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, batch: Batch, *, inputs: Tensor, targets: Tensor, padding: Tensor | None = None,
        structure: Any = None, **kept: Tensor,
    ) -> Any:  # fmt: skip
        """That batch with other inputs and targets, perhaps other padding and another structure,
        and what is kept."""
        padding = batch.padding if padding is None else padding
        source, source_padding = batch.source, batch.source_padding
        structure = getattr(batch, "structure", None) if structure is None else structure
        return cls(inputs, targets, padding, source, source_padding, structure, kept)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice) -> "Asked":
        return self._each(lambda part: part[rows])

    def to(self, device: Any) -> "Asked":
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Any], Any]) -> "Asked":
        fields: dict[str, Any] = {name: part for name, part in vars(self).items() if name != "kept"}
        changed: dict[str, Any] = {
            name: None if part is None else change(part) for name, part in fields.items()
        }
        return Asked(**changed, kept={name: change(part) for name, part in self.kept.items()})


def kept(batch: Batch, name: str) -> Tensor:
    """What ``prepare`` has kept beside a batch; a TypeError for a batch that it has not seen."""
    if not isinstance(batch, Asked) or name not in batch.kept:
        raise TypeError(
            "this batch is as the task gives it; call prepare(batch, generator) of the objective "
            "first, and ask for the answers to what it returns"
        )
    found: Tensor = batch.kept[name]
    return found
