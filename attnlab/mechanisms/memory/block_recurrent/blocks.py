"""One block: the attention of its tokens, and how the states read it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Options, Size
from attnlab.core.precision import call_upcast, no_autocast, upcast
from attnlab.core.probe import note
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.memory.block_recurrent.updates import EPS

States = Float[Tensor, "r dim"]


@dataclass(frozen=True, kw_only=True)
class BlockRecurrentOptions(Options):
    """The lengths: by default those for one sentence (the paper has 512 and 512).

    ``block``   how many tokens are read by one step of the recurrence.
    ``states``  how many state vectors there are.
    ``itself``  whether the window of a query ends with the query itself, or before it.
    """

    block: Size = 6
    states: Size = 4
    itself: bool = True

    def sees(self, i: Tensor, j: Tensor) -> Tensor:
        """Which keys j are in the window of the queries i: c of them."""
        back = i - j
        low = 0 if self.itself else 1
        return (back >= low) & (back < low + self.block)


def unit(x: Tensor) -> Tensor:
    """Queries or keys as they are compared; half precisions become float32."""
    return F.normalize(upcast(x), dim=-1)


def _weights(q: Tensor, k: Tensor, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of unit queries and keys, with a scale for each head."""
    return masked_softmax((q @ k.mT) * upcast(scale).abs()[:, None, None], mask)


Known = tuple[Tensor, Tensor, Tensor, Tensor]


class Block(NamedTuple):
    """What is the same for all blocks: the learned parts. Queries and keys of tokens are given to
    its methods with unit length."""

    ids: States
    gain: Float[Tensor, "dim"]
    of_states: Float[Tensor, "4 h d dim"]
    scale: Float[Tensor, "4 h"]
    cell: nn.Module | None

    def read(
        self, q: Tensor, cross_q: Tensor, k: Tensor, v: Tensor, known: Known, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The output of tokens (b, 2h, t, d), and their weights over the keys."""
        _, _, state_k, state_v = known
        with no_autocast(q.device):
            weights = _weights(q, k, self.scale[0], mask)
            crossed = note("cross_weights", _weights(cross_q, state_k, self.scale[1]))
            return torch.cat((weights @ upcast(v), crossed @ state_v), dim=1), weights

    def advanced(self, k: Tensor, v: Tensor, s: Tensor, known: Known, mask: Tensor) -> Tensor:
        """The states (b, r, dim) after they have read the keys of the window under ``mask``."""
        if self.cell is None:
            return s
        q, cross_q, state_k, state_v = known
        with no_autocast(s.device):
            own = _weights(q, state_k, self.scale[2]) @ state_v
            read = note("state_weights", _weights(cross_q, k, self.scale[3], mask)) @ upcast(v)
            a = torch.cat((own, read), dim=1).transpose(1, 2).flatten(2)
            changed: Tensor = call_upcast(self.cell, s, a)
        return changed

    def known(self, s: Tensor) -> Known:
        """Both queries, the keys and the values of the states, each (b, h, r, d)."""
        with no_autocast(s.device):
            named = F.rms_norm(s, self.gain.shape, upcast(self.gain), EPS) + upcast(self.ids)
            q, cross_q, k, v = torch.einsum("brm,fhdm->fbhrd", named, upcast(self.of_states))
        return unit(q), unit(cross_q), unit(k), v
