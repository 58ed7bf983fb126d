"""What a Memorizing Transformer keeps between two calls."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.cache import KeyValueCache
from attnlab.core.carried import check_ended
from attnlab.mechanisms.learned.memorizing_transformer.segments import MemorizingOptions, Past


class MemoryState(NamedTuple):
    """What later queries may need: the past, and keys and values of the present segment so far.

    Until the segment ends the past is handed on as it is, not copied. ``length`` is the number of
    positions read so far, ``begins`` is where the document of each sequence begins.
    """

    past: Past
    own: KeyValueCache
    length: int
    begins: Int[Tensor, "b"]

    @classmethod
    def of(cls, k: Tensor, v: Tensor, options: MemorizingOptions) -> "MemoryState":
        """After a text whose keys (b, h, m, d), as ``unit`` makes them, and values these are."""
        length = k.shape[2]
        start = options.start(length)
        low = max(0, start - options.reach)
        past = Past.of(k[:, :, low:start], v[:, :, low:start], None, options)
        own = KeyValueCache(k[:, :, start:], v[:, :, start:])
        return cls(past, own, length, torch.zeros(len(k), dtype=torch.int64, device=k.device))

    def cleared(self, ended: Bool[Tensor, "b"]) -> "MemoryState":
        """The state after the end of a document in those sequences where ``ended`` is True: later
        tokens attend to nothing of what was read so far."""
        check_ended(ended, len(self.begins))
        new = self._replace(begins=self.begins.masked_fill(ended, self.length))
        return new._replace(past=self.past.hiding(new.seen[:, : self.past.length]))

    def extended(self, k: Tensor, v: Tensor, options: MemorizingOptions) -> "MemoryState":
        """With the keys and values of new positions of the present segment."""
        if self.own.length != self.length % options.segment:
            raise ValueError(
                f"the state was made with other segments than of {options.segment} tokens: it is "
                "another layer's; start anew with state=None"
            )
        own = KeyValueCache.extended(self.own, k, v)
        return self._replace(own=own, length=self.length + k.shape[2])

    def stored(self, options: MemorizingOptions) -> "MemoryState":
        """This state where the segment goes on; after its end it is part of the past."""
        if self.own.length < options.segment:
            return self
        drop = max(0, self.past.length + self.own.length - options.reach)
        both = zip(self.past[:2], self.own, strict=True)
        k, v = (torch.cat([x, y], dim=2)[:, :, drop:] for x, y in both)
        empty = KeyValueCache(*(x[:, :, :0] for x in self.own))
        past = Past.of(k, v, self.seen[:, drop:], options)
        return self._replace(past=past, own=empty)

    @property
    def first(self) -> int:
        """The position of the first key that is kept."""
        return self.length - self.own.length - self.past.length

    @property
    def seen(self) -> Bool[Tensor, "b m"]:
        """Which of the keys that are kept are of the present document."""
        at = torch.arange(self.first, self.length, device=self.begins.device)
        return at >= self.begins[:, None]
