"""The layers that every TinyTransformer stacks: attention and feed-forward on a residual stream."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.architecture.depth.checkpointed import again
from attnlab.architecture.depth.plain import Plain
from attnlab.core.branches import Branch, Sublayer
from attnlab.core.depth import Sets
from attnlab.core.options import takes_padding, takes_structure, takes_visibility
from attnlab.core.visibility import Visibility, check_layer
from attnlab.models.shared_cache import Caches


def embedding_std(dim: int) -> float:
    """GPT-2's 0.02, less beyond dim = 128, so that the loss starts near ln(vocab) at any width.

    With a tied output, the logit of the token just read is up to std·dim, since the stream still
    contains its embedding.
    """
    return min(0.02, 2.56 / dim)


class Block(nn.Module):
    """One layer: attention, in a decoder with a source cross-attention, feed-forward.

    ``feed`` is a module of the role ``feed``, and ``join`` makes one of the role ``join`` for each
    sublayer (``attnlab.architecture``).
    """

    def __init__(
        self,
        attention: nn.Module,
        feed: nn.Module,
        join: Callable[[], nn.Module],
        cross: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.takes_structure = takes_structure(attention)
        self.takes_visibility = takes_visibility(attention)
        self.shares_cache: bool = getattr(attention, "shares_cache", False)
        self.attention_residual: Any = join()
        self.cross = cross
        self.cross_takes_structure = cross is not None and takes_structure(cross)
        self.cross_residual: Any = join() if cross is not None else None
        self.feed_forward = feed
        self.feed_sees_padding = takes_padding(feed)
        self.feed_forward_residual: Any = join()
        for own, sublayer in self.sublayers():
            if sublayer is not cross and hasattr(own, "prepare"):
                own.prepare(sublayer)

    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        caches: Caches | None = None,
    ) -> Float[Tensor, "b n dim"]:
        x = self.attention_residual(x, self._attending(padding, structure, caches))
        return self._after_attention(x, memory, memory_padding, structure, padding)

    @property
    def steps(self) -> bool:
        """Whether ``step`` works: a token's output must not depend on how many tokens come with
        it, as it does where experts have a capacity."""
        return hasattr(self.attention, "step") and getattr(self.feed_forward, "steps", True)

    def step(
        self,
        x: Float[Tensor, "b t dim"],
        state: Any,
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        caches: Caches | None = None,
    ) -> tuple[Float[Tensor, "b t dim"], Any]:
        """``forward`` for the next t positions only; ``state`` is that of the attention module."""
        reader = Reader(self.attention, state, {"caches": caches} if self.shares_cache else {})
        # Not as a module: what watches a model would take the join for the layer that attends.
        x = self.attention_residual.forward(x, reader)
        return self._after_attention(x, memory, memory_padding, structure), reader.state

    def _after_attention(
        self, x: Tensor, memory: Tensor | None, memory_padding: Tensor | None, structure: Any,
        padding: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if self.cross is not None:
            given = {"context_padding": memory_padding}
            if self.cross_takes_structure:  # a visibility is of the tokens, not of the source
                given = {"structure": None if isinstance(structure, Visibility) else structure}
            x = self.cross_residual(x, partial(self.cross, context=memory, **given))
        out: Tensor = self.feed_forward_residual(x, self._feeding(padding))
        return out

    def _feeding(self, padding: Tensor | None) -> Sublayer:
        told = self.feed_sees_padding
        return partial(self.feed_forward, padding=padding) if told else self.feed_forward

    def _attending(
        self, padding: Tensor | None, structure: Any, caches: Caches | None = None
    ) -> Sublayer:
        given = {"structure": structure} if self.takes_structure else {}
        given |= {"caches": caches} if self.shares_cache else {}
        if isinstance(structure, Visibility):
            check_layer(self.attention, self.feed_forward, structure, takes=self.takes_visibility)
            given = {"visibility": structure}
        return partial(self.attention, padding=padding, **given)

    def branches(
        self, padding: Tensor | None = None, structure: Any = None, read: Sublayer | None = None
    ) -> tuple[Branch, Branch]:
        """What attention and the feed-forward layer add; ``read`` in the place of attention."""
        attending = self._attending(padding, structure) if read is None else read
        return (
            _branch(self.attention_residual, self.attention, attending),
            _branch(self.feed_forward_residual, self.feed_forward, self._feeding(padding)),
        )

    def sublayers(self) -> list[tuple[Any, nn.Module]]:
        """Each sublayer with the join by which it joins the stream."""
        found = [(self.attention_residual, self.attention), (self.cross_residual, self.cross)]
        found += [(self.feed_forward_residual, self.feed_forward)]
        return [(join, sublayer) for join, sublayer in found if sublayer is not None]


def united(blocks: Sequence[Block], sets: Sets) -> list[Block]:
    """The blocks, whose attention and feed-forward layers are shared as ``sets`` say: so are their
    joins and cross-attention, and layers that share everything are one block."""
    for block, attention, feed in zip(blocks, *sets, strict=True):
        first = blocks[sets.attention.index(attention)]
        block.attention_residual = first.attention_residual
        block.cross, block.cross_residual = first.cross, first.cross_residual
        first = blocks[sets.feed.index(feed)]
        block.feed_forward_residual = first.feed_forward_residual
    used = list(zip(*sets, strict=True))
    return [blocks[used.index(each)] for each in used]


def _branch(join: Any, sublayer: nn.Module, call: Sublayer) -> Branch:
    return Branch(partial(join.branch, f=call), (*sublayer.parameters(), *join.parameters()))


class Reader:
    """An attention module that reads on from a state, which it replaces by the next one."""

    def __init__(self, attention: nn.Module, state: Any, given: Mapping[str, Any]) -> None:
        self.attention, self.state, self.given = attention, state, given

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor
        out, self.state = self.attention.step(x, self.state, **self.given)  # type: ignore[operator]
        return out


class Given:
    """A block with all its other inputs given, as a depth calls it."""

    def __init__(
        self, block: Block, padding: Tensor | None, memory: Tensor | None,
        memory_padding: Tensor | None, structure: Any,
    ) -> None:  # fmt: skip
        self.block, self.padding, self.structure = block, padding, structure
        self.source = (memory, memory_padding, structure)
        self.recomputed = False
        self.start: int | Tensor = 0
        self.caches: Caches = {}

    def __call__(self, x: Tensor) -> Tensor:
        run = again(self.block) if self.recomputed else self.block
        out: Tensor = run(x, self.padding, *self.source, **self.sharing)
        return out

    @property
    def sharing(self) -> dict[str, Any]:
        """The caches of the stack, for blocks that share them."""
        return {"caches": self.caches} if getattr(self.block, "shares_cache", False) else {}

    @property
    def branches(self) -> Sequence[Branch]:
        return self.block.branches(self.padding, self.structure)


class Stepping(Given):
    """A block that reads on from a state, which it replaces by the next one."""

    def __init__(self, block: Block, state: Any, *source: Any) -> None:
        super().__init__(block, None, *source)
        self.state = state

    def __call__(self, x: Tensor) -> Tensor:
        x, self.state = self.block.step(x, self.state, *self.source, **self.sharing)
        return x

    @property
    def branches(self) -> Sequence[Branch]:
        return self.block.branches(read=self._read)

    def _read(self, x: Tensor) -> Tensor:
        out: Tensor
        out, self.state = self.block.attention.step(x, self.state)  # type: ignore[operator]
        return out


class Stack(nn.Module):
    """Layers one after another, as ``depth`` says; then a last norm, unless the joins leave the
    stream normalised."""

    def __init__(self, blocks: Sequence[Any], dim: int, depth: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        # The block of a paper has no sublayers: it says itself whether it is ``normalised``.
        parts = [block.sublayers() for block in blocks]
        joins = [own[-1][0] if own else block for block, own in zip(blocks, parts, strict=True)]
        self.norm = _last_norm(joins, dim)
        self.depth: Any = Plain() if depth is None else depth
        if getattr(self.depth, "takes_norm", False):
            self.depth.norm, self.norm = self.norm, nn.Identity()

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
        if checkpoint and self.depth.reads_branches:
            raise ValueError(
                f"{type(self.depth).__name__} layers keep nothing that checkpoint=True could drop; "
                "leave it out"
            )
        layers = [Given(block, *given) for block in self.blocks]  # type: ignore[arg-type]
        caches: Caches = {}
        for layer in layers:
            layer.recomputed, layer.caches = checkpoint, caches
            if checkpoint and layer.sharing:
                raise ValueError(
                    "checkpoint=True computes each layer again by itself, and these layers share "
                    "keys and values (cache_of); leave it out"
                )
        out: Tensor = self.norm(self.depth(x, layers))
        return out

    def step(
        self,
        x: Float[Tensor, "b t dim"],
        states: list[Any],
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
        start: int | Tensor = 0,
    ) -> tuple[Float[Tensor, "b t dim"], list[Any]]:
        """``forward`` for the next t positions only, of which ``start`` is the first."""
        both = zip(self.blocks, states, strict=True)
        source = (memory, memory_padding, structure)
        layers = [Stepping(block, state, *source) for block, state in both]  # type: ignore[arg-type]
        caches: Caches = {}
        for layer in layers:
            layer.start, layer.caches = start, caches
        out: Tensor = self.norm(self.depth.step(x, layers))
        return out, [layer.state for layer in layers]


def _last_norm(joins: Sequence[Any], dim: int) -> nn.Module:
    """None if the joins leave the stream normalised, or else one of the same kind as theirs."""
    if all(join.normalised for join in joins):
        return nn.Identity()
    return copy.deepcopy(getattr(joins[-1], "norm", nn.LayerNorm(dim)))


def initialise_branches(model: nn.Module, keep: Sequence[nn.Module]) -> None:
    """Each join changes the initial weights of its sublayer, knowing how many there are.

    Modules that the caller built are not changed: they may be trained already.
    """
    done = {id(module) for module in keep}
    for stack in (s for s in model.children() if isinstance(s, Stack)):
        found = [pair for block in stack.blocks for pair in block.sublayers()]  # type: ignore[operator]
        for join, sublayer in found:
            if id(sublayer) not in done:
                join.initialise(sublayer, len(found))
                done.add(id(sublayer))


_NOW = {
    "FeedForward": "attnlab.architecture.feed.mlp.MLP",
    "Residual": "attnlab.architecture.join.pre_norm.PreNorm or post_norm.PostNorm",
    "shrink_residual_branches": "attnlab.models.layers.initialise_branches",
}


def __getattr__(name: str) -> object:
    if name in _NOW:
        raise ImportError(f"attnlab.models.layers.{name} is now {_NOW[name]}")
    raise AttributeError(f"module 'attnlab.models.layers' has no attribute {name!r}")
