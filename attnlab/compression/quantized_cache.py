r"""A cache of few bits: keys rounded channel by channel, values token by token (KIVI).

$$s = \frac{\max x - \min x}{2^b - 1},\qquad
  q = \mathrm{round}\left(\frac{x - \min x}{s}\right),\qquad
  \hat x = s\,q + \min x,\qquad |x - \hat x| \le s / 2$$

Keys have a few channels that are large for every token. So the numbers of one channel share s and
the minimum, over ``group`` tokens; with a scale for each token the large channels would decide the
steps of all others. Values have no such channels: a token's numbers share them, ``group`` of them
each. A number costs b bits and 2 · 16 / group for s and the minimum: 3 bits with b = 2 and groups
of 32.

The newest tokens stay as they are. Keys wait until ``residual`` of them are there and are then
rounded together, as their channels need tokens to share a scale; of the values exactly the last
``residual`` are exact. A call of ``step`` compares its own tokens with each other exactly, and
rounds afterwards: a long prompt is read as without rounding, as KIVI does.

    small = quantized_cache(model, bits=2)      # a copy, with the same weights
    attnlab.generate(small, prompt, 100)
    attnlab.measure.cache.kept(small, 100_000)

Departures: s and the minimum are of the layer's own dtype, 16 bits wide if it is. A group whose
numbers are all equal has the step 1, and is kept exactly; with a step of 0 the released packing
would divide by it. Keys are rounded after they have been turned, as there.

Liu, Yuan, Jin, Zhong, Xu, Braverman, Chen, Hu. KIVI: A Tuning-Free Asymmetric 2bit Quantization for
KV Cache, ICML 2024, arXiv:2402.02750.
"""

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.options import Options, Size

BYTE = 8
M = TypeVar("M", bound=nn.Module)

# ---- rounding


class Rounded(NamedTuple):
    """Codes of b bits, 8 / b of them in a byte of the last axis, and what they stand for: the least
    number and the step of each group."""

    codes: Tensor
    step: Tensor
    least: Tensor


def rounded(x: Float[Tensor, "... n"], bits: int) -> Rounded:
    """Each row of the last axis, of which all numbers share a scale, as codes of ``bits`` bits."""
    least, most = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (most - least) / (2**bits - 1)
    step = torch.where(step > 0, step, torch.ones_like(step))
    codes = ((x - least) / step).round().clamp(0, 2**bits - 1).to(torch.uint8)
    return Rounded(_packed(codes, bits), step, least)


def restored(kept: Rounded, bits: int) -> Float[Tensor, "... n"]:
    """The numbers that the codes stand for, each at most half a step from what it was."""
    return _unpacked(kept.codes, bits).to(kept.step.dtype) * kept.step + kept.least


def _packed(codes: Tensor, bits: int) -> Tensor:
    each = codes.unflatten(-1, (-1, BYTE // bits))
    shifts = torch.arange(0, BYTE, bits, device=codes.device, dtype=torch.uint8)
    return (each << shifts).sum(-1, dtype=torch.uint8)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    shifts = torch.arange(0, BYTE, bits, device=packed.device, dtype=torch.uint8)
    return ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(-2)


# ---- cache


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """bits: of a rounded number, 2, 4 or 8. group: numbers that share a scale. residual: tokens
    that stay as they are, a multiple of group."""

    bits: Size = 2
    group: Size = 32
    residual: Size = 128

    def check(self) -> None:
        if self.bits not in (2, 4, 8):
            raise ValueError(f"bits should be 2, 4 or 8, got {self.bits}")
        if self.group % (BYTE // self.bits):
            raise ValueError(
                f"group={self.group} numbers of {self.bits} bits do not fill bytes: give a "
                f"multiple of {BYTE // self.bits}"
            )
        if self.residual % self.group:
            raise ValueError(
                f"residual={self.residual} should be a multiple of group={self.group}: keys are "
                "rounded by whole groups of tokens"
            )


class Cache(NamedTuple):
    """Keys and values of the past: the older ones as codes, the newest as they are.

    old_keys: groups of tokens in the last axis, (b, g, t / group, d, group).
    old_values: groups of channels in the last axis, (b, g, t, e / group, group).
    keys (b, g, r, d), values (b, g, r, e): the newest.
    """

    old_keys: Rounded | None
    old_values: Rounded | None
    keys: Tensor
    values: Tensor

    @property
    def length(self) -> int:
        """The number of positions."""
        groups = 0 if self.old_values is None else self.old_values.codes.shape[2]
        return groups + self.values.shape[2]


def extended(past: Cache | None, k: Tensor, v: Tensor, options: CacheOptions) -> Cache:
    """The cache with the keys and values of the next tokens; what is old enough is rounded."""
    past = past or Cache(None, None, k[:, :, :0], v[:, :, :0])
    keys, values = torch.cat((past.keys, k), dim=2), torch.cat((past.values, v), dim=2)
    whole = keys.shape[2] // options.residual * options.residual
    leaving = max(0, values.shape[2] - options.residual)
    by_channel = keys[:, :, :whole].unflatten(2, (-1, options.group)).mT
    by_token = values[:, :, :leaving].unflatten(3, (-1, options.group))
    return Cache(
        _joined(past.old_keys, by_channel, options.bits),
        _joined(past.old_values, by_token, options.bits),
        keys[:, :, whole:],
        values[:, :, leaving:],
    )


def read(cache: Cache, options: CacheOptions) -> tuple[Tensor, Tensor]:
    """Keys (b, g, t, d) and values (b, g, t, e) of all tokens, the older ones as rounded."""
    keys, values = cache.keys, cache.values
    if cache.old_keys is not None:
        keys = torch.cat((restored(cache.old_keys, options.bits).mT.flatten(2, 3), keys), dim=2)
    if cache.old_values is not None:
        values = torch.cat((restored(cache.old_values, options.bits).flatten(3), values), dim=2)
    return keys, values


def _joined(old: Rounded | None, new: Tensor, bits: int) -> Rounded | None:
    if not new.shape[2]:
        return old
    made = rounded(new, bits)
    if old is None:
        return made
    return Rounded(*(torch.cat(both, dim=2) for both in zip(old, made, strict=True)))


# ---- layers


class QuantizedCacheAttention(nn.Module):
    """A layer of dense attention that decodes from a cache of few bits; all else is the layer's."""

    def __init__(self, attention: DenseAttention, options: CacheOptions) -> None:
        super().__init__()
        width = attention.heads.value_dim
        if width % options.group:
            raise ValueError(
                f"group={options.group} should divide the width of the heads, {width}: the values "
                "of a token are rounded by groups of channels"
            )
        self.attention, self.options = attention, options

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.attention(*args, **kwargs)
        return out

    def step(self, x: Tensor, state: Cache | None = None) -> tuple[Tensor, Cache]:
        """The next t tokens (b, t, dim); they see the older ones rounded, each other exactly."""
        if state is not None and not isinstance(state, Cache):
            raise TypeError(
                "state should be None at the start and then what step returned, got a "
                f"{type(state).__name__}: it may be the state of another mechanism"
            )
        layer = self.attention
        layer.heads.refuse_step(layer.causal)
        q, k, v = layer.heads.project(x, start=0 if state is None else state.length)
        keys, values = (k, v) if state is None else (
            torch.cat(both, dim=2)
            for both in zip(read(state, self.options), (k, v), strict=True)
        )  # fmt: skip
        bias = layer.heads.bias(q.shape[2], keys.shape[2])
        out = layer._attend(q, keys, values, patterns.causal(), bias)
        return layer.heads.merge(out), extended(state, k, v, self.options)


def quantized_cache(model: M, *, bits: int = 2, group: int = 32, residual: int = 128) -> M:
    """A copy of ``model`` whose layers of dense attention decode from a cache of few bits.

    The weights are those of the model, and a call without a state gives what the model gives.
    Raises ValueError where no layer is of that kind (``full``, ``multi_query`` and what shares
    their cache), or where ``group`` does not divide the width of a head.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model should be a module, got a {type(model).__name__}")
    options = CacheOptions(bits=bits, group=group, residual=residual)
    if any(getattr(part, "shares_cache", False) for part in model.modules()):
        raise ValueError(
            "layers of this model share a cache (cache_of), and a cache of few bits is for layers "
            "that keep their own"
        )
    changed: nn.Module = copy.deepcopy(model)
    if isinstance(changed, DenseAttention):
        changed = QuantizedCacheAttention(changed, options)
    found = [
        (parent, name, child)
        for parent in changed.modules()
        if not isinstance(parent, QuantizedCacheAttention)
        for name, child in parent.named_children()
        if isinstance(child, DenseAttention) and child.causal
    ]
    if not found and not isinstance(changed, QuantizedCacheAttention):
        raise ValueError(
            f"{type(model).__name__} has no causal layer that decodes from keys and values, such "
            "as those of full or multi_query attention"
        )
    for parent, name, child in found:
        setattr(parent, name, QuantizedCacheAttention(child, options))
    return changed  # type: ignore[return-value]
