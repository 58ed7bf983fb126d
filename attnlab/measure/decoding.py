"""Rows of a layer that decodes with a state: its bytes, and the time of one more token."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from attnlab.measure.comparison import ratio
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

WORK = "a state of the same size in both"


class Decoder(Protocol):
    """A layer that reads the next tokens given a state, a tuple of tensors."""

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]: ...


def decoding(
    title: str, layer: Decoder, dim: int, lengths: Sequence[int], *, repeats: int, threads: int
) -> Iterator[Row]:
    """One more token after each of ``lengths`` tokens (1, n, dim): the last beside the first."""
    held: list[int] = []
    calls: dict[str, Callable[[], object]] = {}
    for n in lengths:
        with torch.no_grad():
            state = layer.step(torch.randn(1, n, dim))[1]
        held.append(sum(part.untyped_storage().nbytes() for part in state))
        calls[f"{n}"] = partial(_step, layer, torch.randn(1, 1, dim), state)
    span = f"after {lengths[-1]:,} tokens / after {lengths[0]:,}"
    figure, note = f"{title}: bytes of the state {span}", f"{held[-1]:,} bytes"
    yield Row(figure, held[-1] / held[0], "×", at_most=1, note=note)
    near, *_, far = compare(calls, repeats=repeats, threads=threads)
    yield ratio(f"{title}: one token {span}", far, near, work=WORK)


@torch.no_grad()
def _step(layer: Decoder, x: Tensor, state: Any) -> object:
    return layer.step(x, state)
