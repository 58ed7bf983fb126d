"""Trees and graphs as a second input of a layer: which tokens are connected.

A `TreeBatch` or a `GraphBatch` describes b sequences of n tokens, of which some may be padding.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def cached(method: Callable[[Any], Any]) -> Any:
    """A property that is computed when it is first asked for, and kept.

    While ``torch.compile`` traces nothing is kept (it does not follow functools' own).
    """

    def found(self: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self)
        if method.__name__ not in vars(self):
            vars(self)[method.__name__] = method(self)
        return vars(self)[method.__name__]

    return property(found, doc=method.__doc__)


class Structure(ABC):
    """What trees and graphs have in common: a subclass is a frozen dataclass of tensors."""

    padding: Bool[Tensor, "b n"]  # True = a token of the structure
    missing: ClassVar[str]
    """What to say where a layer is not given its structure."""

    def __len__(self) -> int:
        return len(self.padding)

    @abstractmethod
    def __getitem__(self, rows: slice) -> Self:
        """The structures of some of the sequences."""

    @abstractmethod
    def pooled(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b dim"]:
        """One vector for each sequence, from which a model classifies it."""

    def to(self, device: torch.device | str) -> Self:
        """A copy on another device."""
        own: Any = self
        return type(self)(*(getattr(self, each.name).to(device) for each in fields(own)))

    def check_fits(self, b: int, n: int, device: torch.device) -> None:
        """A ValueError unless these are the structures of b sequences of n tokens on ``device``."""
        own = self.padding
        if own.shape != (b, n):
            raise ValueError(
                f"the structure is that of {own.shape[0]} sequences of {own.shape[1]} tokens, but "
                f"there are {b} of {n}"
            )
        if own.device != device:
            raise ValueError(
                f"the structure is on {own.device} but the tokens are on {device}; move it with "
                ".to(device)"
            )

    @classmethod
    def fitting(
        cls, structure: "Structure | None", x: Float[Tensor, "b n dim"], padding: Tensor | None
    ) -> Self:
        """``structure``, or a sentence unless it is that of the sequences x (b, n, dim).

        ``padding``, if it is given, should be that of the structure.
        """
        if structure is None:
            raise ValueError(cls.missing)
        if not isinstance(structure, cls):
            raise TypeError(
                f"the structure should be a {cls.__name__}, got a {type(structure).__name__}"
            )
        structure.check_fits(x.shape[0], x.shape[1], x.device)
        if padding is None or padding is structure.padding or torch.compiler.is_compiling():
            return structure
        if not torch.equal(padding, structure.padding):
            raise ValueError(
                "`padding` differs from that of the structure, which says itself which tokens are "
                "real; leave the padding out"
            )
        return structure
