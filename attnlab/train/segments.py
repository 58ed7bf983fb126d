"""Training on long rows in segments: the state is carried on, the gradient is not.

A model that keeps a state of what it has read (a cache, a memory, a recurrence) is trained on the
pieces of a row one after the other. Each piece begins with the state that the piece before has
left, without its gradient: truncated backpropagation through time. Only one piece is held at a
time, so the memory of a step does not depend on the length of a row. The weights do not change
within a row, so no state is older than they are, and a checkpoint between two steps needs none.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from attnlab.train.objective import summed_loss
from attnlab.train.task import Batch


def segment_losses(model: Any, part: Batch, segment: int) -> Iterator[Tensor]:
    """The summed loss of each segment, in order; of rows without padding and source."""
    if part.padding is not None or part.source is not None:
        raise ValueError(
            "segment=… trains language models on whole rows, and this task gives a padding or a "
            "source; leave segment out."
        )
    state = None
    for tokens, targets in zip(
        part.inputs.split(segment, dim=1), part.targets.split(segment, dim=1), strict=True
    ):
        logits, state = model.advance(tokens, detached(state))
        yield summed_loss(logits, targets)


def detached(state: Any) -> Any:
    """A state without gradients: its tensors detached, in tuples, named tuples and lists."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, list):
        return [detached(each) for each in state]
    if isinstance(state, tuple):
        parts = [detached(each) for each in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state


def check_segments(model: nn.Module, processes: int) -> None:
    """A ValueError for a model or a launch that cannot train in segments."""
    if not callable(getattr(model, "advance", None)):
        raise ValueError(
            f"segment=… needs a model that reads on from a state, by advance(tokens, state) as "
            f"TinyTransformer has it; {type(model).__name__} has none. Leave segment out."
        )
    if processes > 1:
        raise ValueError(
            f"segment=… trains in one process, and there are {processes}; leave segment out, or "
            "start one process."
        )
