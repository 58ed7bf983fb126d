"""Documents that are read side by side, one segment of each in every batch.

Row b of a batch is a place where one document is read from its start to its end, in segments of
equal length, and then the next one of a shuffled order. So row b of a batch continues row b of the
batch before it, unless a document begins there: a state may be carried from batch to batch. When
all documents have been given out they are shuffled anew.

What batch number ``index`` holds is a function of the arguments: a run that goes on from a
checkpoint reads what an uninterrupted one reads.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from attnlab.objectives.batches import UNSCORED
from attnlab.train.generators import derived_seed
from attnlab.train.task import Drawn, Task


@dataclass(frozen=True, eq=False)
class Segment:
    """The next tokens of b documents: a batch, and where a document ``begins`` (b,).

    After the end of a document a row is filled with zeros, whose targets are not scored. They stand
    last, so that a causal model needs no padding.
    """

    inputs: Tensor
    targets: Tensor
    begins: Tensor
    padding: None = None
    source: None = None
    source_padding: None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice) -> "Segment":
        return self._each(lambda part: part[rows])

    def to(self, device: Any) -> "Segment":
        return self._each(lambda part: part.to(device))

    def _each(self, change: Any) -> "Segment":
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{n: change(v) for n, v in named.items() if v is not None})


class Documents:
    """The documents of a split, in batches of ``size`` rows of ``segment`` tokens.

    Raises a ValueError for a task whose documents are not tensors of at least two tokens.
    """

    def __init__(self, task: Any, split: str, size: int, segment: int, seed: int) -> None:
        self.documents = _checked(task, task.documents(split))
        self.size, self.segment = size, segment
        self._order = self._shuffled(derived_seed(seed, "documents", split))
        self._given: list[list[tuple[int, int]]] = [[] for _ in range(size)]  # (first batch, which)
        self._free = [(0, row) for row in range(size)]

    def draw(self, index: int) -> Drawn:
        """Batch number ``index``, counted from 0."""
        self._give_out(index)
        rows = []
        for given in self._given:
            first, which = next(pair for pair in reversed(given) if pair[0] <= index)
            rows.append(self._row(self.documents[which], index - first))
        inputs, targets, begins = (torch.stack(parts) for parts in zip(*rows, strict=True))
        kept = targets[targets != UNSCORED]
        batch: Any = Segment(inputs, targets, begins)
        return Drawn(batch, len(kept), int(kept.max()))

    def _give_out(self, index: int) -> None:
        """Give the next document to each row that is free at batch ``index`` or before it."""
        while self._free[0][0] <= index:
            first, row = heapq.heappop(self._free)
            which = next(self._order)
            self._given[row].append((first, which))
            count = -(-(len(self.documents[which]) - 1) // self.segment)
            heapq.heappush(self._free, (first + count, row))

    def _row(self, document: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and whether the document begins, of segment ``number`` of it."""
        piece = document[number * self.segment : (number + 1) * self.segment + 1]
        missing = self.segment + 1 - len(piece)
        inputs = torch.nn.functional.pad(piece[:-1], (0, missing))
        targets = torch.nn.functional.pad(piece[1:], (0, missing), value=UNSCORED)
        return inputs, targets, torch.tensor(number == 0)

    def _shuffled(self, seed: int) -> Iterator[int]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield from torch.randperm(len(self.documents), generator=generator).tolist()


def has_documents(task: Task) -> bool:
    """Whether a task gives whole documents, which may be read in segments."""
    return callable(getattr(task, "documents", None))


def documents_of(
    task: Task, split: str, size: int, segment: int | None, seed: int
) -> Documents | None:
    """The documents of a task, to be read in segments; None if it is read row by row."""
    if segment is None or not has_documents(task):
        return None
    return Documents(task, split, size, segment, seed)


def _checked(task: Task, documents: Any) -> Sequence[Tensor]:
    if not isinstance(documents, Sequence) or not documents:
        raise ValueError(
            f"Task '{task.name}' should give documents(split) as a list of tensors of tokens; it "
            f"gave {'an empty list' if documents == [] else 'a ' + type(documents).__name__}"
        )
    for document in documents:
        if (
            not isinstance(document, Tensor)
            or document.dtype != torch.int64
            or document.ndim != 1
            or len(document) < 2
        ):
            kind = type(document).__name__
            found = (
                f"{document.dtype} of shape {tuple(document.shape)}"
                if isinstance(document, Tensor)
                else f"a {kind}"
            )
            raise ValueError(
                f"Task '{task.name}' should give each document as at least two tokens, torch.int64 "
                f"of shape (n,), so that there is a next token; it gave {found}"
            )
    return documents
