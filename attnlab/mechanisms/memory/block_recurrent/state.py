"""What is kept between two calls."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core.carried import check_carried
from attnlab.core.heads import Heads
from attnlab.core.precision import upcast
from attnlab.mechanisms.memory.block_recurrent.blocks import BlockRecurrentOptions


class BlockState(NamedTuple):
    """What is kept of all that was read: keys and values of up to two blocks, and the states."""

    keys: Float[Tensor, "b h m d"]
    """Of unit length: of the block before, and of the present one so far."""
    values: Float[Tensor, "b h m d"]
    states: Float[Tensor, "b r dim"]
    """After the last whole block; in float32 at least, as a long sum in half precision stalls."""
    seen: Bool[Tensor, "b m"]
    """Which keys are of the present document."""


def checked_state(
    state: BlockState | None, x: Tensor, start: Tensor, heads: Heads, options: BlockRecurrentOptions
) -> BlockState:
    """The state, or that before the first token for None; raises for that of another layer."""
    h, d = heads.kv_heads, heads.head_dim
    if state is None:
        nothing = x.new_zeros(len(x), h, 0, d)
        states = upcast(start).expand(len(x), -1, -1)
        return BlockState(upcast(nothing), nothing, states, nothing[:, 0, :, 0].bool())
    of_states = (options.states, heads.dim)
    wider = {"keys": (state.keys, (h, None, d)), "states": (state.states, of_states)}
    check_carried(wider, len(x), upcast(x))
    m = state.keys.shape[2]
    others = {"values": (state.values, (h, m, d)), "seen": (state.seen, (m,))}
    check_carried(others, len(x), x)
    if m >= 2 * options.block:
        raise ValueError(
            f"the state holds {m} keys, but this layer keeps less than two blocks of "
            f"{options.block}: it is another layer's state; start with state=None"
        )
    return state
