"""What a layer with a memory attends to, token by token, or what its state holds.

``recorded`` runs one layer on one sequence. A layer whose queries attend to a memory gives an
`Attended`: its weights by position, and which positions are in which memory while each segment is
read. A recurrent layer gives a `Carried`: its state after every token.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.card import Card
from attnlab.core.precision import upcast
from attnlab.core.probe import record
from attnlab.core.recurrence import Cell
from attnlab.mechanisms.learned import memorizing_transformer
from attnlab.mechanisms.learned.memorizing_transformer import MemorizingAttention
from attnlab.mechanisms.memory import block_recurrent, compressive_transformer, transformer_xl
from attnlab.mechanisms.memory.block_recurrent import BlockRecurrent, Gate
from attnlab.mechanisms.memory.compressive_transformer import CompressiveTransformer
from attnlab.mechanisms.memory.transformer_xl import TransformerXL
from attnlab.mechanisms.recurrence import bistable, gru, lstm, rwkv
from attnlab.mechanisms.recurrence.rwkv import RWKV

AHEAD, SEGMENT, NEAR, FAR, LOST = range(5)
"""Where a position is while a segment is read: not read yet, in the segment, in the memory, in the
compressed or searched memory, or nowhere any more."""


@dataclass(frozen=True)
class Attended:
    """A layer that attends to its segment and to what it remembers.

    ``segment``  c: how many tokens are read at once
    ``near``     what the memory of positions as they were is called, ``far`` the other one, or ""
    ``covers``   how many positions a column of the far memory stands for, itself the first
    ``weights``  (h, n, n) by position; those of a column of the far memory stand at its first
    ``zones``    (segments, n) uint8: AHEAD, SEGMENT, NEAR, FAR or LOST
    """

    card: Card
    segment: int
    near: str
    far: str
    covers: int
    weights: Tensor
    zones: Tensor

    def shares(self) -> Tensor:
        """(h, n, 3): the weight that each query gives to its segment, to NEAR and to FAR."""
        of_query = self.zones[torch.arange(self.weights.shape[1]) // self.segment]
        masks = [of_query == zone for zone in (SEGMENT, NEAR, FAR)]
        return torch.stack([(self.weights * mask).sum(-1) for mask in masks], dim=-1)


@dataclass(frozen=True)
class Carried:
    """A layer that carries a state.

    ``what``       what a number of the state is, in words
    ``states``     (r, n, dim): r vectors after every token
    ``half_life``  (dim,): after how many tokens half is left in a channel, where the layer's
                   parameters alone say so
    ``every``      after how many tokens the state changes
    """

    card: Card
    what: str
    states: Tensor
    half_life: Tensor | None = None
    every: int = 1

    def change(self) -> Tensor:
        """(r, dim): by how much of its standard deviation a channel changes from one state to the
        next, on the mean; 0 for a channel that never changes."""
        moved = self.states[:, :: self.every].diff(dim=1).abs().mean(1)
        spread = self.states[:, :: self.every].std(dim=1, correction=0)
        return torch.where(spread > 0, moved / spread.clamp(min=1e-12), 0).nan_to_num(0)


Recorder = Callable[[Card, Any, Tensor], Attended | Carried]


def recorded(layer: nn.Module, x: Tensor) -> Attended | Carried:
    """What ``layer`` does with its inputs x (1, n, dim)."""
    card, read = FILMED[type(layer)]
    return read(card, layer, x)


def _of_naive(layer: nn.Module, x: Tensor) -> Any:
    """What the naive form of a layer notes: weights by position."""
    written_out: Any = copy.copy(layer)  # shares all parameters
    written_out.form = "naive"
    with record() as notes:
        written_out(x)
    return notes


def _places(n: int, segment: int) -> tuple[Tensor, Tensor]:
    """The first position of each segment (s, 1), and all positions (n,)."""
    return torch.arange(0, n, segment)[:, None], torch.arange(n)


def _zones(start: Tensor, j: Tensor, segment: int, near: int) -> Tensor:
    """The zones of positions j, with a memory of ``near`` positions before the segment."""
    zones = torch.full((len(start), len(j)), LOST, dtype=torch.uint8)
    zones[(j >= start - near) & (j < start)] = NEAR
    zones[(j >= start) & (j < start + segment)] = SEGMENT
    zones[j >= start + segment] = AHEAD
    return zones


def _transformer_xl(card: Card, layer: TransformerXL, x: Tensor) -> Attended:
    options = layer.options
    weights = _of_naive(layer, x).last("weights")[0]
    zones = _zones(*_places(x.shape[1], options.segment), options.segment, options.memory)
    return Attended(card, options.segment, "memory", "", 1, weights.cpu(), zones)


def _compressive(card: Card, layer: CompressiveTransformer, x: Tensor) -> Attended:
    options, n = layer.options, x.shape[1]
    notes = _of_naive(layer, x)
    start, j = _places(n, options.segment)
    zones = _zones(start, j, options.segment, options.memory)
    covers = 1 if options.compression == "most_used" else options.rate
    kept = notes.last("kept")[0].cpu().nonzero().flatten()
    for at in range(len(start)):
        first = kept[kept < start[at] - options.memory][-options.compressed :]
        zones[at, (first[:, None] + torch.arange(covers)).flatten()] = FAR
    weights = notes.last("weights")[0].cpu()
    return Attended(card, options.segment, "memory", "compressed memory", covers, weights, zones)


def _memorizing(card: Card, layer: MemorizingAttention, x: Tensor) -> Attended:
    options = layer.options
    weights = _of_naive(layer, x).last("weights")[0].cpu()
    start, j = _places(x.shape[1], options.segment)
    zones = _zones(start, j, options.segment, options.cache)
    last = start - options.delay
    zones[(zones == LOST) & (j < last) & (j >= last - options.memory)] = FAR
    far = "searched memory" if options.memory else ""
    return Attended(card, options.segment, "cache", far, 1, weights, zones)


def _stepped(layer: Any, x: Tensor, read: Callable[[Any], Tensor]) -> Tensor:
    """(r, n, dim): what ``read`` finds in the state (1, …) after each token."""
    state, found = None, []
    for token in x.split(1, dim=1):
        _, state = layer.step(token, state)
        found.append(upcast(read(state)[0]).cpu())
    states = torch.stack(found, dim=-2)
    return states if states.ndim == 3 else states[None]


def _rwkv(card: Card, layer: RWKV, x: Tensor) -> Carried:
    states = _stepped(layer, x, lambda state: state.values / state.weights)
    half_life = math.log(2) / layer.decay.exp()
    what = "mean of the values so far, weighted by key and age"
    return Carried(card, what, states, half_life.cpu())


def _block_recurrent(card: Card, layer: BlockRecurrent, x: Tensor) -> Carried:
    states = _stepped(layer, x, lambda state: state.states)
    gates = [each for each in layer.update.modules() if isinstance(each, Gate)]
    biases: list[Tensor] = [each.bias for each in gates if isinstance(each.bias, Tensor)]
    half_life = None
    if len(biases) == len(gates):  # all of them fixed
        kept = torch.stack(biases).sigmoid().prod(0)  # of a state, from block to block
        half_life = (layer.options.block * math.log(2) / -kept.log()).cpu()
    return Carried(card, "number of a state vector", states, half_life, layer.options.block)


def _lstm(card: Card, layer: Any, x: Tensor) -> Carried:
    return Carried(card, "number of the memory c", _stepped(layer, x, lambda state: state.memory))


def _cell(card: Card, layer: Cell, x: Tensor) -> Carried:
    return Carried(card, "number of the state h", _stepped(layer, x, lambda state: state.hidden))


FILMED: dict[type, tuple[Card, Recorder]] = {
    TransformerXL: (transformer_xl.CARD, _transformer_xl),
    CompressiveTransformer: (compressive_transformer.CARD, _compressive),
    MemorizingAttention: (memorizing_transformer.CARD, _memorizing),
    BlockRecurrent: (block_recurrent.CARD, _block_recurrent),
    RWKV: (rwkv.CARD, _rwkv),
    lstm.LSTM: (lstm.CARD, _lstm),
    gru.GRU: (gru.CARD, _cell),
    bistable.BRC: (bistable.CARDS[0], _cell),
    bistable.NBRC: (bistable.CARDS[1], _cell),
}
"""The layers that can be filmed → their card, and how each is recorded."""
