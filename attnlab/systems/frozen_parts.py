"""Parts of a system that training leaves as they are."""

from typing import ClassVar, Self

from torch import nn


def frozen(module: nn.Module) -> nn.Module:
    """The module itself, in evaluation mode, none of whose parameters is trained.

    Gradients still pass through it to what stands in front of it.
    """
    return module.eval().requires_grad_(False)


class WithFrozenParts(nn.Module):
    """A module some of whose parts, by their names in ``keeps``, stay frozen: in evaluation mode
    too, whatever mode the whole is put into."""

    keeps: ClassVar[tuple[str, ...]] = ()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self.keeps:
            getattr(self, name).eval()
        return self
