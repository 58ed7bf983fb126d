"""One run of a TinyTransformer, taken down sublayer by sublayer: what each read and what it added.

The stream of a model begins with the vectors of the tokens at their positions. Each sublayer
(attention, cross-attention, feed-forward layer) reads it and joins it again, and the last norm and
the output matrix make logits of what it is in the end. ``followed`` runs the model once, as it is,
and keeps every one of these tensors; pages such as ``logit_parts`` compute from them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.modes import mode
from attnlab.models.tiny import TinyTransformer, check_model

WHAT = ("attention", "cross", "feed_forward")


@dataclass
class Step:
    """One sublayer of a run.

    ``what``      "attention", "cross" (cross-attention) or "feed_forward"
    ``layer``     of the stack, from 0
    ``before``    (b, n, dim) the stream that it joins, ``after`` the stream then
    ``read``      (b, n, dim) what the sublayer itself reads: behind the norm of a pre-norm join
    ``added``     (b, n, dim) what the sublayer gives to its join
    ``joined``    (b, n, h · e) what its heads give to the output projection, side by side; None
                  where there are no heads whose sum is ``added``, and ``whole`` then says why
    """

    join: Any
    before: Tensor
    what: str = ""
    layer: int = 0
    sublayer: Any = None
    read: Tensor = field(default_factory=lambda: torch.empty(0))
    added: Tensor | None = None
    after: Tensor = field(default_factory=lambda: torch.empty(0))
    joined: Tensor | None = None
    heads: Heads | None = None
    whole: str | None = None
    _projected: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.what.replace('_', '-')} {self.layer}"


@dataclass
class Stream:
    """What one run of ``model`` computed, in order.

    ``tokens``    (b, n, dim) the vectors of the tokens before anything is added for their
                  positions; None where they cannot be told apart
    ``start``     (b, n, dim) the stream before the first layer
    ``steps``     the sublayers, two for each layer, three with cross-attention
    ``norm``      the last norm, an ``nn.Identity`` where the joins leave the stream normalised
    ``logits``    (b, n, vocab), or (b, classes) of a classifier
    """

    model: TinyTransformer
    tokens: Tensor | None
    start: Tensor
    steps: list[Step]
    norm: nn.Module
    logits: Tensor

    @property
    def end(self) -> Tensor:
        """(b, n, dim): the stream that the last norm reads."""
        return self.steps[-1].after if self.steps else self.start

    @property
    def layers(self) -> int:
        return self.steps[-1].layer + 1

    def after_layers(self) -> list[Tensor]:
        """The stream before the first layer, and after each one."""
        last = {step.layer: step.after for step in self.steps}
        return [self.start, *last.values()]

    def real(self, padding: Tensor | None) -> Tensor:
        """(b, n) bool, True = a real token: ``padding``, or all."""
        if padding is None:
            return torch.ones(self.start.shape[:2], dtype=torch.bool, device=self.start.device)
        return padding.to(self.start.device)

    def of(self, layer: int, what: str = "attention") -> Step:
        """One sublayer of a layer, self-attention unless it is named; a ValueError without it."""
        for step in self.steps:
            if (step.layer, step.what) == (layer, what):
                return step
        names = ", ".join(step.name for step in self.steps)
        raise ValueError(f"there is no {what!r} in layer {layer!r}; there are {names}")


def last_norm(stack: Any) -> Any:
    """The norm between the last layer of a stack and the output matrix."""
    own = isinstance(stack.norm, nn.Identity) and hasattr(stack.depth, "norm")
    return stack.depth.norm if own else stack.norm


def stack_of(model: TinyTransformer) -> Any:
    """The stack that the logits come from: the decoder, if there is one."""
    return model.encoder if model.decoder is None else model.decoder


def followed(
    model: TinyTransformer, tokens: Tensor, padding: Tensor | None = None, **more: Any
) -> Stream:
    """Run a model in evaluation mode and without gradients, and keep what every sublayer did.

    ``tokens`` (b, n), ``padding`` (b, n) bool, True = a real token, and ``more`` are what the model
    is called with, such as ``source=``. Of an encoder-decoder the decoder is followed.

    The model is left as it was. Raises a ValueError for a model whose layers do not stand one
    after another on one stream, such as reversible ones, or whose block has no sublayers.
    """
    check_model(model)
    model = getattr(model, "_orig_mod", model)
    stack = stack_of(model)
    taker = _Taker(model, stack)
    with mode(model, training=False), torch.no_grad(), taker.listening():
        logits = model(tokens, padding, **more)
    return taker.stream(logits)


class _Taker:
    """The hooks of one run, and what they see."""

    def __init__(self, model: TinyTransformer, stack: Any) -> None:
        self.model, self.stack, self.norm = model, stack, last_norm(stack)
        self.steps: list[Step] = []
        self.open: list[Step] = []
        self.starts: list[Tensor] = []
        self.ends: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.kinds: dict[int, str] = {}
        for block in stack.blocks:
            if not block.sublayers():
                raise ValueError(
                    f"block={model.config['block']!r} is a block of a paper, not attention and a "
                    "feed-forward layer that join one stream, so what it adds has no parts to "
                    "name; take block='layers'"
                )
            both = zip(WHAT, (block.attention, block.cross, block.feed_forward), strict=True)
            self.kinds |= {id(each): what for what, each in both if each is not None}

    @contextmanager
    def listening(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for handle in self._hooks():
                hooks.callback(handle.remove)
            yield

    def _hooks(self) -> Iterator[Any]:
        yield self.stack.depth.register_forward_pre_hook(
            lambda _, given: self.starts.append(given[0])
        )
        yield self.norm.register_forward_pre_hook(lambda _, given: self.ends.append(given[0]))
        if isinstance(self.model.embedding, nn.Module) and not self.model.embeds_by_position:
            yield self.model.embedding.register_forward_hook(
                lambda _, __, out: self.tokens.append(out)
            )
        done: set[int] = set()
        for block in self.stack.blocks:
            for join, sublayer in block.sublayers():
                if id(join) not in done:
                    yield join.register_forward_pre_hook(self._begin)
                    yield join.register_forward_hook(self._end)
                if id(sublayer) not in done:
                    yield sublayer.register_forward_hook(self._given)
                    for heads in _heads_of(sublayer):
                        yield heads.output.register_forward_hook(self._project)
                done |= {id(join), id(sublayer)}

    def _begin(self, join: nn.Module, given: tuple[Any, ...]) -> None:
        self.open.append(Step(join, given[0]))

    def _given(self, sublayer: nn.Module, given: tuple[Any, ...], out: Tensor) -> None:
        step = self.open[-1] if self.open else None
        if step is None or id(sublayer) not in self.kinds:
            return
        if step.added is not None:
            raise ValueError(f"{step.name} was called twice in one join: it is not a plain sum")
        step.what, step.sublayer = self.kinds[id(sublayer)], sublayer
        step.read, step.added = given[0], out

    def _project(self, _output: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        if self.open:
            self.open[-1]._projected.append((given[0], out))

    def _end(self, _join: nn.Module, _given: Any, out: Tensor) -> None:
        step = self.open.pop()
        step.after = out
        self.steps.append(step)

    def stream(self, logits: Tensor) -> Stream:
        steps = self.steps
        if not self._chained():
            name = type(self.stack.depth).__name__
            raise ValueError(
                f"with depth={name} the layers do not stand one after another on one stream, so "
                "the end is no sum of what they add; take depth='plain'"
            )
        layer = -1
        for step in steps:
            layer += step.what == "attention"
            step.layer = layer
            if step.what != "feed_forward":
                _find_heads(step)
        tokens = self.tokens[-1] if self.tokens else None
        start = self.starts[-1]
        if tokens is not None and tokens.shape != start.shape:
            tokens = None
        return Stream(self.model, tokens, start, steps, self.norm, logits)

    def _chained(self) -> bool:
        """Whether each sublayer joins the stream that the one before has left."""
        if not self.steps or len(self.starts) != 1 or len(self.ends) != 1:
            return False
        if any(step.added is None for step in self.steps):
            return False
        left = [self.starts[0], *(step.after for step in self.steps)]
        taken = [*(step.before for step in self.steps), self.ends[0]]
        return all(map(torch.equal, left, taken))


def _heads_of(sublayer: nn.Module) -> list[Heads]:
    return [part for part in sublayer.modules() if isinstance(part, Heads)]


def _find_heads(step: Step) -> None:
    """The heads whose outputs, each through its rows of the output matrix, sum to the sublayer's;
    or a sentence that says why there are none."""
    name, found = type(step.sublayer).__name__, _heads_of(step.sublayer)
    if len(found) != 1 or len(step._projected) != 1:
        step.whole = f"{name} is no sum over heads, so it is one part"
        return
    if found[0].value_dim == 1:
        step.whole = f"{name} has a head for each channel, so it is one part"
        return
    (joined, projected), added = step._projected[0], step.added
    assert added is not None
    fits = projected.shape == added.shape and torch.equal(projected, added)
    if not fits or joined.shape[-1] % found[0].heads:
        step.whole = f"{name} does more after its output matrix, so it is one part"
        return
    step.joined, step.heads = joined, found[0]
