"""The levels of a Fenwick tree: which token lies in which, and how their states become others.

Before token t (from 0) lie t tokens; the binary digits of t cut them into blocks, one of 2^(l - 1)
tokens for each digit l that is 1, the largest first. The token itself is level 0.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import chunks
from attnlab.core.carried import reset_rows
from attnlab.core.convolution import last_inputs
from attnlab.core.heads import check_input
from attnlab.core.matrix_memory import MatrixMemory
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state
from attnlab.core.shapes import NewTokens, SelfKeys, SelfValues, checked

States = Float[Tensor, "b h levels d e"]
Levels = Float[Tensor, "b h n levels"]
LevelScales = Float[Tensor, "h levels"]
Seen = Int[Tensor, "b 1"]


class LevelState(NamedTuple):
    """What a layer knows of the tokens before: the last inputs of its convolution, one S for each
    level of every head, and how many tokens there were."""

    inputs: Float[Tensor, "b _ channels"]
    sums: States
    seen: Seen

    def cleared(self, ended: Bool[Tensor, "b"]) -> "LevelState":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)


def beginning(inputs: Tensor, reach: int, heads: int, levels: int, d: int, e: int) -> LevelState:
    """The state before the first of these inputs of the convolution, which reads ``reach`` more."""
    b, _, channels = inputs.shape
    S = upcast(inputs).new_zeros(b, heads, levels, d, e)
    seen = torch.zeros(b, 1, dtype=torch.long, device=inputs.device)
    return LevelState(inputs.new_zeros(b, reach, channels), S, seen)


def initial_states(k: SelfKeys, v: SelfValues, level: Levels) -> tuple[States, Seen]:
    """The states before the first token, one for each level, and that none was read."""
    S = upcast(v).new_zeros(*k.shape[:2], level.shape[-1], k.shape[3], v.shape[3])
    return S, torch.zeros(len(k), 1, dtype=torch.long, device=k.device)


def added_up(S: States, seen: Seen) -> States:
    """The states of the blocks of ``seen`` tokens: what was in levels up to the lowest 1 of this
    number is in the next level. The last level holds all that is older."""
    lowest = seen & -seen  # 0 before the first token
    size = 2 ** torch.arange(S.shape[2], device=S.device)
    last = size == size[-1]
    ends, begins = (size <= lowest) & ~last, size == (2 * lowest).clamp(max=size[-1])
    ends, begins = (x[:, None, :, None, None] for x in (ends, begins))
    whole = S.masked_fill(~ends, 0).sum(dim=2, keepdim=True)
    return S.masked_fill(ends, 0) + whole.masked_fill(~begins, 0)


def of_pairs(lam: Float[Tensor, "... c levels"]) -> Float[Tensor, "... c c"]:
    """Λ: of each pair of tokens the λ of the first, at the level of the second."""
    place = torch.arange(lam.shape[-2], device=lam.device)
    level = torch.frexp((place[:, None] ^ place).double()).exponent.long()  # how many binary digits
    level = level.clamp(max=lam.shape[-1] - 1)
    return lam.gather(-1, level.expand(*lam.shape[:-1], -1))


def check_levels(levels: int) -> None:
    """Raise where there is none for the past."""
    if levels < 2:
        raise ValueError(f"levels={levels} should be at least 2: the first is the token itself")


def weights_of(level: Levels, scale: LevelScales) -> Levels:
    """λ = softplus(scale · level), by which a query weights what it reads of each level."""
    check_levels(level.shape[-1])
    return note("levels", F.softplus(scale[:, None] * level))


def block_sizes(n: int, levels: int) -> list[int]:
    """How many of n tokens each level holds for the last of them; the last level holds all that is
    older."""
    sizes = [1] + [0] * (levels - 1)
    for digit in range((n - 1).bit_length()):
        sizes[min(digit + 1, levels - 1)] += (n - 1) & 1 << digit
    return sizes


def states_of(k: SelfKeys, written: SelfValues, log_a: Tensor, levels: int) -> States:
    """The states after n tokens from the beginning: of token n - 1 and of the blocks before it,
    each a product of its keys, that have faded up to token n - 1, with what they write."""
    later = F.pad(log_a[:, :, 1:], (0, 0, 0, 1)).flip(2).cumsum(2).flip(2)
    faded, sizes = later.exp() * k, block_sizes(k.shape[2], levels)
    parts = (x.split(sizes[::-1], dim=2)[::-1] for x in (faded, written))
    return torch.stack([keys.mT @ values for keys, values in zip(*parts, strict=True)], dim=2)


def erased_states_of(
    k: SelfKeys, v: SelfValues, b: Tensor, log_a: Tensor, levels: int, chunk: int
) -> States:
    """``states_of`` where a token also erases, by the step ``b``, what its key reads.

    Block after block; the states of the blocks before are more columns of values, and pass through
    the block's transitions without a value of their own.
    """
    sizes = block_sizes(k.shape[2], levels)[::-1]
    S = chunks.initial_state(k, v)[..., :0]
    for ki, vi, bi, ai in zip(*(x.split(sizes, dim=2) for x in (k, v, b, log_a)), strict=True):
        own = F.pad(vi, (S.shape[-1], 0))
        S = F.pad(S, (0, vi.shape[-1]))
        if ki.shape[2]:
            _, S = chunks.advance(ki, ki, own, S, chunk, log_decay=ai, erase=bi)
    return S.unflatten(-1, (levels, -1)).movedim(-2, 2).flip(2)


class LevelMemory(MatrixMemory):
    """A `MatrixMemory` whose heads keep one S for each of ``most`` levels.

    A page gives ``_read``, the outputs of the first tokens and the states after them, and
    ``_follow``, those of the next tokens after the states of ``seen`` ones.
    """

    most: int

    @abstractmethod
    def _read(self, *given: Tensor) -> tuple[Tensor, States]:
        """The outputs of the first tokens, and the states after them."""

    @abstractmethod
    def _follow(self, S: States, seen: Seen, *given: Tensor) -> tuple[Tensor, States]:
        """The outputs of the next tokens after the states of ``seen`` ones, and those after."""

    @checked
    def step(  # type: ignore[override]  # its state has a field more
        self, x: NewTokens, state: LevelState | None = None
    ) -> tuple[NewTokens, LevelState]:
        """The next t tokens given the state after all before them (None at the beginning)."""
        check_input(x, "x", self.dim, next(self.parameters()))
        inputs, sizes = self._carried(x), (self.most, self.head_dim, self.value_dim)
        begin = beginning(inputs, self.reach, self.value_heads, *sizes)
        convolved, S, seen = begin if state is None else state
        check_state(LevelState(convolved, S, seen), begin)
        given = self._taken(x, inputs, convolved)
        out, S = self._read(*given) if state is None else self._follow(S, seen, *given)
        after = LevelState(last_inputs(inputs, convolved), S, seen + x.shape[1])
        return self._output(out, x, convolved, *given), note("state", after)
