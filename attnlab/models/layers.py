"""The layers that every TinyTransformer stacks: attention and feed-forward on a residual stream."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint as recompute

from attnlab.core.heads import Heads
from attnlab.core.options import takes_structure


def embedding_std(dim: int) -> float:
    """GPT-2's 0.02, less beyond dim = 128, so that the loss starts near ln(vocab) at any width.

    With a tied output, the logit of the token just read is up to std·dim, since the stream still
    contains its embedding.
    """
    return min(0.02, 2.56 / dim)


class FeedForward(nn.Module):
    """x -> W₂ gelu(W₁ x + b₁) + b₂, at each position alone.

    With ``chunks`` the sequence is treated in so many pieces, one after the other, and backward
    computes the hidden layer of each piece again: the memory of one piece, for one more forward
    pass (Kitaev et al. 2020, section 3).
    """

    def __init__(self, dim: int, hidden: int, chunks: int = 1) -> None:
        super().__init__()
        self.chunks = chunks
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        nn.init.zeros_(self.expand.bias)
        nn.init.zeros_(self.contract.bias)

    def forward(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        if self.chunks == 1:
            return self._of_piece(x)
        pieces = x.chunk(self.chunks, dim=1)
        if not torch.is_grad_enabled():
            return torch.cat([self._of_piece(piece) for piece in pieces], dim=1)
        # Nothing here is random, so no state of a generator need be kept.
        again = partial(recompute, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([again(self._of_piece, piece) for piece in pieces], dim=1)

    def _of_piece(self, x: Tensor) -> Tensor:
        out: Tensor = self.contract(F.gelu(self.expand(x)))
        return out


class Residual(nn.Module):
    """How a sublayer f joins the stream: pre-norm x + f(norm(x)), post-norm norm(x + f(x))."""

    def __init__(self, dim: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.pre = norm == "pre"
        self.dropout = dropout

    def read(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n dim"]:
        return self.norm(x) if self.pre else x

    def add(self, x: Tensor, out: Tensor) -> Tensor:
        x = x + self.dropped(out)
        return x if self.pre else self.norm(x)

    def dropped(self, out: Tensor) -> Tensor:
        """What is added, after dropout."""
        return F.dropout(out, self.dropout, self.training)


class Block(nn.Module):
    """One layer: attention, in a decoder with a source cross-attention, feed-forward."""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        cross: nn.Module | None,
        hidden: int,
        norm: str,
        dropout: float,
        feed_forward_chunks: int = 1,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.told = takes_structure(attention)
        self.attention_residual = Residual(dim, norm, dropout)
        self.cross = cross
        self.cross_told = cross is not None and takes_structure(cross)
        self.cross_residual = Residual(dim, norm, dropout) if cross is not None else None
        self.feed_forward = FeedForward(dim, hidden, feed_forward_chunks)
        self.feed_forward_residual = Residual(dim, norm, dropout)

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
    ) -> Float[Tensor, "b n dim"]:
        given = {"structure": structure} if self.told else {}
        out = self.attention(self.attention_residual.read(x), padding, **given)
        return self._after_attention(x, out, memory, memory_padding, structure)

    def step(
        self,
        x: Float[Tensor, "b t dim"],
        state: Any,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
    ) -> tuple[Float[Tensor, "b t dim"], Any]:
        """``forward`` for the next t positions only; ``state`` is that of the attention module."""
        out, state = self.attention.step(self.attention_residual.read(x), state)  # type: ignore[operator]
        return self._after_attention(x, out, memory, memory_padding, structure), state

    def _after_attention(
        self, x: Tensor, out: Tensor, memory: Tensor | None, memory_padding: Tensor | None,
        structure: Any,
    ) -> Tensor:  # fmt: skip
        x = self.attention_residual.add(x, out)
        if self.cross is not None and self.cross_residual is not None:
            read = self.cross_residual.read(x)
            connections = {"structure": structure}
            given = connections if self.cross_told else {"context_padding": memory_padding}
            out = self.cross(read, context=memory, **given)
            x = self.cross_residual.add(x, out)
        out = self.feed_forward(self.feed_forward_residual.read(x))
        return self.feed_forward_residual.add(x, out)


class Stack(nn.Module):
    """Layers one after another; with pre-norm a last norm, as the stream is not normalised yet."""

    def __init__(self, blocks: Sequence[Block], dim: int, norm: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim) if norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        *,
        checkpoint: bool = False,
    ) -> Float[Tensor, "b n dim"]:
        given = (padding, memory, memory_padding, structure)
        for block in self.blocks:
            if checkpoint and torch.is_grad_enabled():
                x = recompute(block, x, *given, use_reentrant=False)
            else:
                x = block(x, *given)
        return self.norm(x)

    def step(
        self,
        x: Float[Tensor, "b t dim"],
        states: list[Any],
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
    ) -> tuple[Float[Tensor, "b t dim"], list[Any]]:
        after = []
        for block, state in zip(self.blocks, states, strict=True):
            x, state = block.step(x, state, memory, memory_padding, structure)  # type: ignore[operator]
            after.append(state)
        return self.norm(x), after


def shrink_residual_branches(model: nn.Module, keep: Sequence[nn.Module]) -> None:
    """Divide each branch's last matrix by √(number of branches), as GPT-2 does.

    The stream is a sum of that many branches; this keeps its initial variance the same for any
    depth. Modules that the caller built are not changed: they may be trained already.
    """
    kept = {id(part) for module in keep for part in module.modules()}
    for stack in (s for s in model.children() if isinstance(s, Stack)):
        branches = sum(2 if block.cross is None else 3 for block in stack.blocks)
        for part in stack.modules():
            if isinstance(part, FeedForward):
                part.contract.weight.data.div_(math.sqrt(branches))
            elif isinstance(part, Heads) and id(part) not in kept:
                part.output.weight.data.div_(math.sqrt(branches))
