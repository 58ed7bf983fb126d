"""Training on long texts in segments: the state is carried on, the gradient is not.

A model that keeps a state of what it has read (a cache, a memory, a recurrence) is trained on the
pieces of a text one after the other. Each piece begins with the state that the piece before has
left, without its gradient: truncated backpropagation through time. Only one piece is held at a
time, so the memory of a step does not depend on the length of a text.

The pieces of a *row* all belong to one step: the weights do not change within it, so no state is
older than they are. Of *documents* (a task with ``documents(split)``) each step reads the next
piece, as in ``attnlab.train.documents``, and the state is carried from step to step. It was made
with older weights, is cleared in the rows where a document begins, and is part of a checkpoint.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.objectives.batches import Batch, summed_loss
from attnlab.objectives.next_token import NextToken
from attnlab.train.documents import Documents, Segment, has_documents
from attnlab.train.states import detached
from attnlab.train.task import Task


def segment_losses(model: Any, part: Batch, segment: int) -> Iterator[Tensor]:
    """The summed loss of each segment of rows, in order; without padding and source."""
    targets = part.targets.split(segment, dim=1)
    for logits, wanted in zip(segment_logits(model, part, segment), targets, strict=True):
        yield summed_loss(logits, wanted)


def segment_logits(model: Any, part: Batch, segment: int) -> Iterator[Tensor]:
    """The logits of each segment of rows, in order."""
    if part.padding is not None or part.source is not None:
        raise ValueError(
            "segment=… reads whole rows of language models, and this task gives a padding or a "
            "source; leave segment out"
        )
    state = None
    for tokens in part.inputs.split(segment, dim=1):
        logits, state = model.advance(tokens, detached(state))
        yield logits


def next_logits(model: Any, part: Segment, state: Any) -> tuple[Tensor, Any]:
    """The logits of the next segment of documents, and the state after it.

    state: what the segment before has left (None before the first). Its gradient is not followed,
        and documents that begin find nothing of it.
    """
    state = detached(state)
    if state is not None and part.begins.any():
        state = model.cleared(state, part.begins)
    logits, state = model.advance(part.inputs, state)
    return logits, detached(state)


def check_segments(
    model: nn.Module, task: Task, objective: nn.Module, processes: int = 1, accumulate: int = 1
) -> None:
    """A ValueError for what cannot read, or train, in segments."""
    if type(objective) is not NextToken:
        raise ValueError(
            f"segment=… reads texts next token by next token, and {type(objective).__name__} asks "
            "for something else; leave segment or objective out"
        )
    for name, use in (
        ("advance", "a model that reads on from a state, by advance(tokens, state)"),
        ("cleared", "for documents a model that begins new ones, by cleared(state, ended)"),
    ):
        if not callable(getattr(model, name, None)) and (name == "advance" or has_documents(task)):
            raise ValueError(
                f"segment=… needs {use} as TinyTransformer has it, and {type(model).__name__} has "
                "none; leave segment out"
            )
    if processes > 1:
        raise ValueError(
            f"segment=… trains in one process, and there are {processes}; leave segment out, or "
            "start one process"
        )
    if accumulate > 1 and has_documents(task):
        raise ValueError(
            f"accumulate={accumulate} would part the rows of a batch, but documents that are read "
            "in segments have one state for all rows; leave accumulate out"
        )


def check_longest(model: nn.Module, documents: Documents) -> None:
    """A ValueError for documents that are longer, in whole segments, than a model can read."""
    most, c = getattr(model, "max_len", None), documents.segment
    segments = max(-(-(len(document) - 1) // c) for document in documents.documents)
    if isinstance(most, int) and segments * c > most:
        raise ValueError(
            f"the longest document takes {segments} segments of {c}, {segments * c} positions, "
            f"more than the model's max_len={most}; build the model with a larger max_len, or the "
            "task with shorter documents"
        )


def try_documents(model: Any, part: Segment) -> Tensor:
    """The logits of a first segment; raises where a model cannot begin a new document after it."""
    logits, state = model.advance(part.inputs, None)
    model.cleared(state, torch.ones_like(part.begins))
    checked: Tensor = logits
    return checked
