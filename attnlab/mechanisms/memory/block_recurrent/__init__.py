r"""Block-Recurrent Transformer: attention nearby, and state vectors that read each block.

A recurrent network carries what it has read in a state, token by token, which is slow and forgets.
Here a whole block of c tokens is one step of the recurrence, and the state is r vectors. Two
attentions go in each direction. Tokens attend to the tokens before them (a sliding window of c) and
to the states; states attend to each other and to the tokens of the window:

$$Y = [\mathrm{att}(q_e; k_e, v_e);\ \mathrm{att}(q_e'; k_s, v_s)]\, W_O,\qquad a =
[\mathrm{att}(q_s; k_s, v_s);\ \mathrm{att}(q_s'; k_e, v_e)]$$

with $q_e, q_e', k_e, v_e$ made of the tokens and $q_s, q_s', k_s, v_s$ of the states: keys and
values serve both directions, queries do not. The first is the *vertical* direction, up to the next
layer; the second is *horizontal*, on to the next block, through a gate in place of a residual
connection:

$$s_{+} = s \odot g + z \odot (1 - g),\quad g = \sigma(b) \quad \text{(fixed)},$$

$$s_{+} = s \odot \sigma(W_f h + b_f + 1) + z \odot \sigma(W_i h + b_i - 1) \quad \text{(LSTM)}$$

``update`` says what z is. "skip": $z = a W_S$, and nothing else (the best in the paper). "single":
$z = \tanh(W_2\, \mathrm{relu}(W_1 a))$. "dual": the first, a gate, then $z = W_2\,
\mathrm{relu}(W_1\, n(s'))$ and a second gate. h is what the last matrix of z is applied to. Fixed
gates are learned too, but are the same for all tokens: a moving average. All tokens of a block read
the state from before the block, so a block is computed in parallel.

The states would all do the same without a name: learned vectors are added to $n(s)$ (RMSNorm with
a gain) before the projections. Queries and keys have unit length, and each of the four attentions
has a learned scale for each head. States see the whole window, two blocks, without a mask.

Cost: for n tokens $4h\,n\,d\,(2c + r)$ FLOPs and for the states $4h\,n\,d\,r\,(2c + r) / c$; the
state does not grow with n. Through keys and values a token sees one block back, through the states
everything. The n / c steps follow one another: the next states are not linear in those before.

``naive``    each block with all n keys, under a mask.
``chunked``  each block with the keys of two blocks.

``BlockRecurrent.step`` takes any number of next tokens, and the state of all before them, whose
keys and values are those of the weights that made them. Gradients pass from block to block; they
end where the caller detaches a state (``fit(segment=…)``; the paper after 8 blocks).
``layer.cleared(state, ended)`` begins new documents.

The paper's letters: W is our c, S is r, $E$ and $C$ are tokens and states.

Common mistakes: tokens that read the state of their own block, which sees their future; a norm
between the gates, by which a frozen state changes; residual connections beside the gate.

Readings. z has no tanh with the LSTM gate except in "single", as in the authors' code.

Departures.
- the mixing part alone: the feed-forward network of tokens is the model's. That of states (single
  and dual) is here.
- nothing is attended to before the first token, where the authors' code has zero keys. These take
  part in its softmax.
- a query attends to itself unless itself=False. It attends to c keys in all; ``itself=False`` gives
  the c tokens before it, as in the authors' code.
- positions are added at the embedding, in place of a T5 bias
- scales start at √d and biases of fixed gates at 1. With such biases both gates are the same.

Gives up. What is more than a block back must fit into a few state vectors.

Hutchins, Schlag, Wu, Dyer, Neyshabur. Block-Recurrent Transformers. NeurIPS 2022,
arXiv:2203.07852, section 3.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.carried import mask_after_reset, step_in_segments
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import NewTokens, Queries, SelfKeys, TokenPadding, Tokens, checked
from attnlab.mechanisms.memory.block_recurrent.blocks import (
    Block,
    BlockRecurrentOptions,
    States,
    unit,
)
from attnlab.mechanisms.memory.block_recurrent.state import BlockState, checked_state
from attnlab.mechanisms.memory.block_recurrent.updates import EPS, Gate, StateUpdate

__all__ = [
    "CARD", "EPS", "FORMS", "OF_STATES", "Block", "BlockRecurrent", "BlockRecurrentOptions",
    "BlockState", "Gate", "StateUpdate", "chunked", "naive", "unit",
]  # fmt: skip

BothOutputs = Float[Tensor, "b hh n e"]  # of h heads to tokens, then of h heads to states

# ---- naive


@checked
def naive(
    q: Queries, cross_q: Queries, k: SelfKeys, v: SelfKeys, start: States, ids: States,
    gain: Float[Tensor, "dim"], of_states: Float[Tensor, "4 h d dim"], scale: Float[Tensor, "4 h"],
    *, padding: TokenPadding = None, cell: nn.Module | None = None,
    options: BlockRecurrentOptions = BlockRecurrentOptions(),
) -> BothOutputs:  # fmt: skip
    """The equation (Hutchins et al., section 3), dense: each block with all n keys under a mask.

    ``start`` are the states before the first block, ``ids`` what is added to them, ``of_states``
    the weights of both queries, keys and values, ``scale`` those of the tokens' two attentions and
    of the states' two. ``cell(s, a)`` gives the next states (b, r, dim) from the old ones and from
    what they have read, (b, r, 2 h d); without it they stay as they are.
    """
    return _in_blocks(
        Block(ids, gain, of_states, scale, cell), (q, cross_q, k, v), start, padding, options,
        all_keys=True,
    )  # fmt: skip


# ---- chunked


@checked
def chunked(
    q: Queries, cross_q: Queries, k: SelfKeys, v: SelfKeys, start: States, ids: States,
    gain: Float[Tensor, "dim"], of_states: Float[Tensor, "4 h d dim"], scale: Float[Tensor, "4 h"],
    *, padding: TokenPadding = None, cell: nn.Module | None = None,
    options: BlockRecurrentOptions = BlockRecurrentOptions(),
) -> BothOutputs:  # fmt: skip
    """``naive``, where each block has the keys of two blocks only."""
    return _in_blocks(
        Block(ids, gain, of_states, scale, cell), (q, cross_q, k, v), start, padding, options,
        all_keys=False,
    )  # fmt: skip


def _in_blocks(
    block: Block, tokens: tuple[Tensor, ...], start: Tensor, padding: Tensor | None,
    options: BlockRecurrentOptions, *, all_keys: bool,
) -> Tensor:  # fmt: skip
    (q, cross_q, k), v = map(unit, tokens[:3]), tokens[3]
    (b, _, n, _), c = q.shape, options.block
    there = torch.ones(b, n, dtype=torch.bool, device=q.device) if padding is None else padding
    at = torch.arange(n, device=q.device)
    s = upcast(start).expand(b, -1, -1)
    states, out, maps = [s], [], []
    for first in range(0, n, c):
        end = min(n, first + c)
        rows, keys = slice(first, end), slice(0, n) if all_keys else slice(max(0, first - c), end)
        seen = there[:, None, None, keys]
        mask, known = options.sees(at[rows, None], at[keys]) & seen, block.known(s)
        mixed, weights = block.read(
            q[:, :, rows], cross_q[:, :, rows], k[:, :, keys], v[:, :, keys], known, mask
        )
        out.append(mixed.to(v.dtype))
        maps.append(weights)
        if end - first == c:
            near = (at[keys] >= first - c) & (at[keys] < end)
            s = block.advanced(k[:, :, keys], v[:, :, keys], s, known, near & seen)
            states.append(s)
    if all_keys:
        note("weights", lambda: torch.cat(maps, dim=2))
    note("states", lambda: torch.stack(states, dim=1))
    return torch.cat(out, dim=2) * there[:, None, :, None]


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "chunked": chunked}

# ---- module


class BlockRecurrent(Layer):
    """Sliding-window attention beside a recurrent state, causal: (b, n, dim) → (b, n, dim).

    ``forward`` reads documents from their beginning, ``step`` reads on. With the update "skip"
    12 dim² parameters, a fixed gate of dim, and 2 r dim for states and ids; zeros at padding.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        update: Literal["skip", "single", "dual"] = "skip",
        gate: Literal["fixed", "lstm"] = "fixed",
        form: Literal["naive", "chunked"] = "chunked",
        options: BlockRecurrentOptions = BlockRecurrentOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        if dim % heads:
            raise ValueError(
                f"heads={heads} does not divide dim={dim}: choose heads among the divisors of dim"
            )
        d = dim // heads
        self.tokens = Heads(dim, 2 * heads, kv_heads=heads, head_dim=d)
        self.form, self.options = form, options
        self.of_states = nn.Parameter(torch.randn(4, heads, d, dim) * dim**-0.5)
        self.start = nn.Parameter(torch.randn(options.states, dim) * 0.1)
        self.ids = nn.Parameter(torch.randn(options.states, dim))
        self.gain = nn.Parameter(torch.ones(dim))
        self.scale = nn.Parameter(torch.full((4, heads), d**0.5))
        self.update = StateUpdate(dim, update, gate)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.tokens.project(x, padding=padding)
        q, cross_q = q.chunk(2, dim=1)
        out = FORMS[self.form](
            q, cross_q, k, v, self.start, self.ids, self.gain, self.of_states, self.scale,
            padding=padding, cell=self.update, options=self.options,
        )  # fmt: skip
        return self.tokens.merge(out)

    @checked
    def step(self, x: NewTokens, state: BlockState | None = None) -> tuple[NewTokens, BlockState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.tokens.check_input(x, "x")
        state = checked_state(state, x, self.start, self.tokens, self.options)
        c = self.options.block
        out, state = step_in_segments(self._read, x, state, c - state.keys.shape[2] % c, c)
        return self.tokens.merge(out), state

    def _read(self, x: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
        """Tokens of one block, and the state after them."""
        c, t, s = self.options.block, x.shape[1], state.states
        block = Block(self.ids, self.gain, self.of_states, self.scale, self.update)
        q, k, v = self.tokens.project(x)
        keys, values = torch.cat((state.keys, unit(k)), dim=2), torch.cat((state.values, v), dim=2)
        seen = torch.cat((state.seen, state.seen.new_ones(x.shape[:2])), dim=1)
        at = torch.arange(keys.shape[2], device=x.device)
        mask = self.options.sees(at[-t:, None], at) & seen[:, None, None]
        (q, cross_q), known = unit(q).chunk(2, dim=1), block.known(s)
        out, _ = block.read(q, cross_q, keys, values, known, mask)
        if len(at) % c == 0:
            s = block.advanced(keys, values, s, known, seen[:, None, None])
            keys, values, seen = keys[:, :, -c:], values[:, :, -c:], seen[:, -c:]
        return out.to(v.dtype), BlockState(keys, values, note("states", s), seen)

    def cleared(self, state: BlockState, ended: Bool[Tensor, "b"]) -> BlockState:
        """The state after the end of a document in those sequences where ``ended`` is True: later
        tokens find the states of the beginning, and attend to nothing of what was read so far."""
        seen = mask_after_reset(state.seen, ended)
        states = torch.where(ended[:, None, None], upcast(self.start), state.states)
        return state._replace(states=states, seen=seen)


# ---- card

h, n, m, d, dim, c, r = letters("h n m d dim c r")
OF_STATES = 4 * h * r * d * (2 * dim + r) / c * n  # their projections, and among each other

CARD = Card(
    __doc__,
    name="block_recurrent",
    family="memory",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="its states hold what was read before",
    options=BlockRecurrentOptions,
    letters={"c": "block", "r": "states"},
    positions_reason="its biases tell the distances, and its states stand at no position",
    time={
        "naive": 4 * h * n * m * d * (1 + r / c) + 4 * h * n * r * d + OF_STATES,
        "chunked": 4 * h * n * d * (2 * c + 3 * r) + OF_STATES,
    },
    launches=dict.fromkeys(FORMS, n / c),
    memory={
        "naive": 2 * h * n * d + h * c * m + h * r * m,
        "chunked": 2 * h * n * d + h * (c + r) * 2 * c,
    },
    notes={
        "naive": ("cross_weights", "weights", "states"),
        "chunked": ("cross_weights", "states"),
    },
    variants=(
        {"block": 3, "states": 2, "update": "dual"},
        {"block": 4, "states": 3, "update": "single", "gate": "lstm", "itself": False},
    ),
    build=BlockRecurrent,
    aliases=("block_recurrent_transformer",),
    small_options={"block": 8, "states": 4},
)
