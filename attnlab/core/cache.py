"""Keys and values of the past, for decoding one token at a time."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class KeyValueCache(NamedTuple):
    """All keys (b, g, t, d) and values (b, g, t, e) so far: g·t·(d + e) numbers per sequence."""

    keys: Float[Tensor, "b g t d"]
    values: Float[Tensor, "b g t e"]

    @classmethod
    def extended(
        cls, past: "KeyValueCache | None", keys: Tensor, values: Tensor
    ) -> "KeyValueCache":
        """``past`` followed by the new keys and values; ``past`` itself is left as it was."""
        if past is None:
            return cls(keys, values)
        if past.keys.shape[0] != keys.shape[0]:
            raise ValueError(
                f"the cache holds {past.keys.shape[0]} sequences, but {keys.shape[0]} came; "
                "start a new batch with state=None"
            )
        for name, old, new in (("keys", past.keys, keys), ("values", past.values, values)):
            if (old.shape[1], old.shape[3]) != (new.shape[1], new.shape[3]):
                raise ValueError(
                    f"the cache holds {name} of {old.shape[1]} heads of width {old.shape[3]}, but "
                    f"{new.shape[1]} of width {new.shape[3]} came: it is another layer's state"
                )
        return cls(torch.cat((past.keys, keys), dim=2), torch.cat((past.values, values), dim=2))
