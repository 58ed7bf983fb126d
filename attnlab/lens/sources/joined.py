"""Attention that a model computes in parts, put together into one map.

Generation computes the rows of a map one after the other, as tokens come (``decoded``); a Swin
transformer computes it window by window (``Windowed``). Both have what `layers` reads of a record:
``name``, ``shape``, ``weights``, ``values`` and ``mask``.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Call(Protocol):
    """What is read of an attention call; `attnlab.lens.record.Attention` is one."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int, int]: ...
    @property
    def weights(self) -> Tensor: ...
    @property
    def values(self) -> Tensor | None: ...
    @property
    def mask(self) -> Tensor | None: ...


@dataclass
class Weights:
    """A call of which the weights alone are known: (b, h, n, m)."""

    name: str
    weights: Tensor
    values: Tensor | None = None
    mask: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        b, h, n, m = self.weights.shape
        return b, h, n, m


class Decoded:
    """Successive calls of one module while it generates: their rows below one another.

    What a token could not see yet, when its row was computed, has the weight 0 and is masked.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)
        self.name = calls[0].name.partition("#")[0]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        b, h, _, m = self._calls[-1].shape
        return b, h, sum(call.shape[2] for call in self._calls), m

    @property
    def weights(self) -> Tensor:
        m = self.shape[3]
        rows = [_widened(call.weights, m) for call in self._calls]
        return torch.cat(rows, dim=2)

    @property
    def values(self) -> Tensor | None:
        return self._calls[-1].values

    @property
    def mask(self) -> Tensor | None:
        m = self.shape[3]
        rows = []
        for call in self._calls:
            b, _, n, known = call.shape
            mask = torch.ones(1, 1, n, known, dtype=torch.bool) if call.mask is None else call.mask
            rows.append(_widened(mask.expand(b, max(mask.shape[1], 1), n, known).cpu(), m))
        heads = max(row.shape[1] for row in rows)
        found = torch.cat([row.expand(-1, heads, -1, -1) for row in rows], dim=2)
        return None if bool(found.all()) else found


def _widened(rows: Tensor, m: int) -> Tensor:
    """The same rows with m columns: zeros, or False, at the keys that came later."""
    return torch.cat([rows, rows.new_zeros(*rows.shape[:-1], m - rows.shape[-1])], dim=-1)


def decoded(calls: Sequence[Call]) -> list[Call]:
    """The calls of each module as one, where the recording is that of a generation.

    It is one where some module is called again and again with keys that grow by its queries. Other
    modules that are called often (layers that share their weights) stay as they are.
    """
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        groups[call.name.partition("#")[0]].append(call)
    steps = {_lengths(group) for group in groups.values() if _grows(group)}
    if not steps:
        return list(calls)
    found: list[Call] = []
    for group in groups.values():
        together = _grows(group) or (_lengths(group) in steps and _same_keys(group))
        found += [Decoded(group)] if together and len(group) > 1 else group
    return found


def _grows(group: Sequence[Call]) -> bool:
    """Whether each call has the keys of the one before and as many more as it has queries."""
    keys = 0
    for call in group:
        _, _, n, m = call.shape
        if m != keys + n or call.shape[:2] != group[0].shape[:2]:
            return False
        keys = m
    return len(group) > 1


def _same_keys(group: Sequence[Call]) -> bool:
    return len({(*call.shape[:2], call.shape[3]) for call in group}) == 1


def _lengths(group: Sequence[Call]) -> tuple[int, ...]:
    return tuple(call.shape[2] for call in group)


@dataclass(frozen=True)
class Windows:
    """How a layer divides a grid of ``rows`` × ``columns`` tokens into windows of ``high`` ×
    ``wide``, after moving it up and left by ``shift``."""

    rows: int
    columns: int
    high: int
    wide: int
    shift: tuple[int, int] = (0, 0)

    def places(self) -> Tensor:
        """(windows, tokens): the place of each token in the grid, -1 where it is padding."""
        tall = -(-self.rows // self.high) * self.high
        broad = -(-self.columns // self.wide) * self.wide
        y = (torch.arange(tall) + self.shift[0]) % tall
        x = (torch.arange(broad) + self.shift[1]) % broad
        inside = (y < self.rows)[:, None] & (x < self.columns)
        grid = (y[:, None] * self.columns + x).masked_fill(~inside, -1)
        grid = grid.view(tall // self.high, self.high, broad // self.wide, self.wide)
        return grid.transpose(1, 2).flatten(2).flatten(0, 1)


class Windowed:
    """A call with one row of the batch per window, as one map of the whole grid."""

    def __init__(self, call: Call, windows: Windows) -> None:
        self._call = call
        self._places = windows.places()
        self._n = windows.rows * windows.columns
        self.name = call.name

    @classmethod
    def of(cls, call: Call, windows: Windows | None) -> Call:
        """The call as one map, if it has one row of the batch for each of the windows."""
        if windows is None:
            return call
        b, _, n, m = call.shape
        count, size = windows.places().shape
        return cls(call, windows) if n == m == size and b % count == 0 else call

    @property
    def shape(self) -> tuple[int, int, int, int]:
        b, h, _, _ = self._call.shape
        return b // len(self._places), h, self._n, self._n

    @property
    def weights(self) -> Tensor:
        return self._spread(self._call.weights)

    @property
    def mask(self) -> Tensor:
        """Tokens of other windows are out of reach."""
        b, _, n, m = self._call.shape
        mask = self._call.mask
        mask = torch.ones(1, 1, n, m, dtype=torch.bool) if mask is None else mask.cpu()
        return self._spread(mask.expand(b, max(1, mask.shape[1]), n, m))

    @property
    def values(self) -> Tensor | None:
        values = self._call.values
        if values is None:
            return None
        count = len(self._places)
        values = values.unflatten(0, (-1, count))  # (b, windows, g, tokens, e)
        b, _, g, _, e = values.shape
        whole = values.new_zeros(b, g, self._n + 1, e)
        for at, places in enumerate(self._places.to(values.device)):
            whole[:, :, places] = values[:, at]
        return whole[:, :, : self._n]

    def _spread(self, parts: Tensor) -> Tensor:
        """(b · windows, h, tokens, tokens) → (b, h, n, n); padding goes into a last row."""
        parts = parts.unflatten(0, (-1, len(self._places)))
        b, _, h, _, _ = parts.shape
        whole = parts.new_zeros(b, h, self._n + 1, self._n + 1)
        for at, places in enumerate(self._places.to(parts.device)):
            whole[:, :, places[:, None], places] = parts[:, at]
        return whole[:, :, : self._n, : self._n]
