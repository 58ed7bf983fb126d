"""The levels of a Fenwick tree: which token lies in which, and how their states become others."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.matrix_memory import PerHead, PerToken
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import SelfKeys, SelfValues

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


def ruled(
    step: PerToken, level: Levels, log_A: PerHead, scale: LevelScales
) -> tuple[Tensor, Tensor, Tensor]:
    """Δ and log a, (b, h, n, 1), from ``step``; λ (b, h, n, levels) from ``level``."""
    check_levels(level.shape[-1])
    delta = F.softplus(step)[..., None]
    log_a = -log_A.exp()[:, None, None] * delta
    lam = F.softplus(scale[:, None] * level)
    return note("steps", delta), note("decays", log_a), note("levels", lam)


def states_of(k: SelfKeys, written: SelfValues, log_a: Tensor, levels: int) -> States:
    """The states after n tokens from the beginning: of token n - 1 and of the blocks before it,
    each a product of its keys, that have faded up to token n - 1, with what they write."""
    n = k.shape[2]
    later = F.pad(log_a[:, :, 1:], (0, 0, 0, 1)).flip(2).cumsum(2).flip(2)
    faded, sizes = later.exp() * k, [1] + [0] * (levels - 1)
    for digit in range((n - 1).bit_length()):
        sizes[min(digit + 1, levels - 1)] += (n - 1) & 1 << digit
    parts = (x.split(sizes[::-1], dim=2)[::-1] for x in (faded, written))
    return torch.stack([keys.mT @ values for keys, values in zip(*parts, strict=True)], dim=2)
