"""Which token sees which, given from outside: what an objective needs that reads in another order.

A layer of attention has a mask of its own: a causal one hides the future. An objective that draws
the order of reading for each text, or opens part of a text to both sides, hands the model a
``Visibility`` as ``structure=``, and layers that can (``takes_visibility``) use it instead.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Visibility:
    """For b sequences of n tokens, what a layer may look at in the place of its own mask.

    allowed: True where the token of the row may attend to the token of the column. Padding is
        hidden beside it.
    positions: where each token stands, if not one after the other; two tokens may stand at one
        position, as a token and the question what it is.
    """

    allowed: Bool[Tensor, "b n n"]
    positions: Int[Tensor, "b n"] | None = None

    def __len__(self) -> int:
        return len(self.allowed)

    def __getitem__(self, rows: slice) -> "Visibility":
        positions = None if self.positions is None else self.positions[rows]
        return Visibility(self.allowed[rows], positions)

    def to(self, device: torch.device | str) -> "Visibility":
        """This visibility on another device."""
        positions = None if self.positions is None else self.positions.to(device)
        return Visibility(self.allowed.to(device), positions)

    def check_fits(self, tokens: Tensor) -> None:
        """A ValueError unless this is for sequences such as ``tokens`` (b, n, …)."""
        b, n = tokens.shape[:2]
        if self.allowed.shape != (b, n, n) or self.allowed.dtype != torch.bool:
            raise ValueError(
                f"the visibility of {b} sequences of {n} tokens should be bool of shape "
                f"{(b, n, n)}, got {self.allowed.dtype} of shape {tuple(self.allowed.shape)}"
            )
        if self.positions is not None and self.positions.shape != (b, n):
            raise ValueError(
                f"the positions of {b} sequences of {n} tokens should be of shape {(b, n)}, got "
                f"{tuple(self.positions.shape)}"
            )
        if self.allowed.device != tokens.device:
            raise ValueError(
                f"the visibility is on {self.allowed.device} but the tokens are on "
                f"{tokens.device}; move it with .to(device)"
            )

    def mask(self, padding: Bool[Tensor, "b n"] | None) -> Bool[Tensor, "b 1 n n"]:
        """What the heads of a layer may attend to."""
        allowed = self.allowed[:, None]
        return allowed if padding is None else allowed & padding[:, None, None]


def check_layer(attention: Any, feed: Any, visibility: Visibility, *, takes: bool) -> None:
    """A ValueError for a layer that cannot be told which token sees which.

    takes: whether the attention is told.
    """
    if not takes:
        raise ValueError(
            f"{type(attention).__name__} decides itself which token sees which, and the objective "
            "gives an order of its own; take attention='full' or another that is dense"
        )
    if visibility.positions is not None and not getattr(feed, "steps", True):
        raise ValueError(
            f"{type(feed).__name__} treats the tokens of a sequence together, and the objective "
            "puts questions beside the text; take a feed-forward layer that treats each token alone"
        )
