"""Keys and values of the past, for decoding one token at a time."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.shapes import autocasts


class KeyValueCache(NamedTuple):
    """All keys (b, g, t, d) and values (b, g, t, e) so far: g·t·(d + e) numbers per sequence."""

    keys: Float[Tensor, "b g t d"]
    values: Float[Tensor, "b g t e"]

    @property
    def length(self) -> int:
        """The number of positions t."""
        return self.keys.shape[2]

    @classmethod
    def extended(
        cls, past: "KeyValueCache | None", keys: Tensor, values: Tensor
    ) -> "KeyValueCache":
        """``past`` followed by the new keys and values; ``past`` itself is left as it was."""
        if past is None:
            return cls(keys, values)
        _check_past(past)
        if past.keys.shape[0] != keys.shape[0]:
            raise ValueError(
                f"the cache holds {past.keys.shape[0]} sequences, but {keys.shape[0]} came; "
                "start a new batch with state=None"
            )
        for name, old, new in (("keys", past.keys, keys), ("values", past.values, values)):
            _check_same_layer(name, old, new)
        return cls(torch.cat((past.keys, keys), dim=2), torch.cat((past.values, values), dim=2))


def _check_past(past: object) -> None:
    """A cache of keys and values, one each per position."""
    if not isinstance(past, KeyValueCache):
        raise TypeError(
            "state should be None at the start and then what step returned, a KeyValueCache, got a "
            f"{type(past).__name__}: it may be the state of another mechanism"
        )
    for name, part in zip(past._fields, past, strict=True):
        if not isinstance(part, Tensor) or part.ndim != 4 or part.layout != torch.strided:
            found = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(
                f"the cache's {name} should be a dense tensor (b, g, t, d), got {found}"
            )
    keys, values = past
    if keys.shape[:3] != values.shape[:3]:
        raise ValueError(
            f"the cache holds keys of shape {tuple(keys.shape)} but values of shape "
            f"{tuple(values.shape)}; batch, heads and positions should be equal"
        )


def _check_same_layer(name: str, old: Tensor, new: Tensor) -> None:
    if (old.shape[1], old.shape[3]) != (new.shape[1], new.shape[3]):
        raise ValueError(
            f"the cache holds {name} of {old.shape[1]} heads of width {old.shape[3]}, but "
            f"{new.shape[1]} of width {new.shape[3]} came: it is another layer's state"
        )
    if old.device != new.device or (old.dtype != new.dtype and not autocasts(new.device)):
        raise ValueError(
            f"the cache holds {name} of {old.dtype} on {old.device}, but {name} of {new.dtype} on "
            f"{new.device} came; start anew with state=None"
        )
