"""What a layer keeps that reads a text segment by segment: the inputs that later queries may need.

Inputs are kept, not keys and values: today's projections are applied to them at every call.
"""

from typing import NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.carried import check_inputs, mask_after_reset


class _Read(Protocol):
    """A named tuple with the inputs of the present segment, and which columns may be seen."""

    @property
    def segment(self) -> Tensor: ...
    @property
    def seen(self) -> Tensor: ...


State = TypeVar("State", bound=_Read)


class Reading:
    """How every state of inputs goes on within a segment, and ends with a document."""

    __slots__ = ()

    def cleared(self: State, ended: Bool[Tensor, "b"]) -> State:
        """The state after the end of a document in those sequences where ``ended`` is True: later
        tokens attend to nothing of what was read so far."""
        new: State = self._replace(seen=mask_after_reset(self.seen, ended))  # type: ignore[attr-defined]
        return new

    def extended(self: State, x: Tensor) -> State:
        """With new inputs of the segment."""
        seen = torch.cat((self.seen, self.seen.new_ones(x.shape[:2])), dim=1)
        segment = torch.cat((self.segment, x), dim=1)
        new: State = self._replace(segment=segment, seen=seen)  # type: ignore[attr-defined]
        return new


class _Inputs(NamedTuple):
    memory: Float[Tensor, "b m dim"]
    segment: Float[Tensor, "b s dim"]
    seen: Bool[Tensor, "b r"]


class SegmentState(Reading, _Inputs):
    """The inputs that later queries may need, and which of them are of the present document.

    ``memory``   inputs before the present segment, without gradient (b, m, dim).
    ``segment``  those of the present segment so far (b, s, dim); its next token is number s of it.
    ``seen``     for the m + s of both: True if it may be attended to.
    """

    __slots__ = ()

    @classmethod
    def checked(
        cls, state: "SegmentState | None", x: Tensor, segment: int, memory: int
    ) -> "SegmentState":
        """The state, or an empty one for None; raises for that of a layer with other lengths."""
        if state is None:
            nothing = x.new_zeros(len(x), 0, x.shape[2])
            return cls(nothing, nothing, nothing[..., 0].bool())
        most = {"memory": (state.memory, memory), "segment": (state.segment, segment - 1)}
        check_inputs(most, state.seen, x)
        return state

    def closed(self, segment: int, memory: int) -> "SegmentState":
        """This state; after the last token of a segment, the memory before the next one."""
        if self.segment.shape[1] < segment:
            return self
        inputs = torch.cat((self.memory, self.segment.detach()), dim=1)
        low = max(0, inputs.shape[1] - memory)
        return SegmentState(inputs[:, low:], self.segment[:, :0], self.seen[:, low:])
