r"""Reversible layers: backward computes the activations again from the output of the last layer.

A residual stream in two halves (Gomez et al. 2017), each sublayer reading one and adding to the
other:

$$Y_1 = X_1 + \mathrm{Attention}(X_2),\qquad Y_2 = X_2 + \mathrm{FeedForward}(Y_1),$$

so that the inputs of a layer follow from its outputs,

$$X_2 = Y_2 - \mathrm{FeedForward}(Y_1),\qquad X_1 = Y_1 - \mathrm{Attention}(X_2),$$

and none need be kept: the backward pass goes from the last layer to the first, computes the inputs
of one sublayer, runs it again, takes its gradients and forgets it. What is kept for backward is the
last Y_1 and Y_2, whatever the number of layers; the price is one more forward pass. (Checkpointing,
``TinyTransformer(checkpoint=True)``, has the same price and keeps the input of every layer.)

Both halves start as the embedding; their mean goes to the last layer norm. A layer norm stands at
the beginning of each sublayer: one after the sum could not be undone. X_2 and X_1 are recomputed up
to rounding, which is enough in float32; half precisions lose digits in every layer.

The random numbers of a sublayer (dropout) are the same when it runs again: the state of the
generators is kept for each sublayer in training, some 5 kB on the CPU, whatever the length.

Feed-forward layers in pieces (``FeedForward`` with ``chunks``) are the other half of this saving:
their hidden layer is four times as wide as the stream.

Kitaev, Kaiser, Levskaya, Reformer: The Efficient Transformer, ICLR 2020, arXiv:2001.04451, section
3. Gomez, Ren, Urtasun, Grosse, The Reversible Residual Network: Backpropagation Without Storing
Activations, NeurIPS 2017, arXiv:1707.04585. Departures: the authors concatenate the two halves at
the end, where we take the mean, so that the width stays.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import get_device_states, set_device_states

from attnlab.models.layers import Residual, Stack


class Sublayer(NamedTuple):
    """What one sublayer adds to the stream, and the parameters that this depends on."""

    run: Callable[[Tensor], Tensor]
    parameters: tuple[nn.Parameter, ...]


def reversible(x: Tensor, sublayers: Sequence[Sublayer]) -> Tensor:
    """Both halves from ``x`` through the sublayers, and their mean; nothing else kept."""
    first, second = _Reversible.apply(sublayers, x, x, *_used(sublayers).values())
    return (first + second) / 2


def _used(sublayers: Sequence[Sublayer]) -> dict[int, nn.Parameter]:
    """Each parameter that takes a gradient, once: sublayers may share one."""
    return {id(p): p for part in sublayers for p in part.parameters if p.requires_grad}


class _Reversible(torch.autograd.Function):
    """(a, b) → (b, a + f(b)) for each sublayer f, and back."""

    @staticmethod
    def forward(
        ctx: Any, sublayers: Sequence[Sublayer], a: Tensor, b: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.sublayers, ctx.settings = sublayers, []
        for part in sublayers:
            ctx.settings.append(Settings.now(b))
            a, b = b, a + part.run(b)
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (b, c), (grad_b, grad_c) = ctx.saved_tensors, grads
        found: dict[int, Tensor | None] = dict.fromkeys(_used(ctx.sublayers))
        for part, settings in zip(reversed(ctx.sublayers), reversed(ctx.settings), strict=True):
            own = list(_used([part]).values())
            with torch.enable_grad(), settings.again():
                b = b.detach().requires_grad_()
                added = part.run(b)
            of_b, *of_own = torch.autograd.grad(
                added, [b, *own], grad_c, allow_unused=True, materialize_grads=True
            )
            for parameter, grad in zip(own, of_own, strict=True):
                before = found[id(parameter)]
                found[id(parameter)] = grad if before is None else before + grad
            b, c = c - added.detach(), b.detach()
            grad_b, grad_c = grad_c, grad_b + of_b
        return None, grad_b, grad_c, *found.values()


class Settings(NamedTuple):
    """The states of the random generators and of autocast, under which a sublayer ran."""

    kind: str
    on_cpu: Tensor
    devices: list[int]
    on_devices: list[Tensor]
    autocast: tuple[bool, torch.dtype] | None

    @classmethod
    def now(cls, x: Tensor) -> "Settings":
        kind, autocast = x.device.type, None
        if torch.amp.is_autocast_available(kind):
            autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        return cls(kind, torch.get_rng_state(), *get_device_states(x), autocast)

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same states inside; afterwards those of before."""
        with ExitStack() as inside:
            if self.autocast is not None:
                enabled, dtype = self.autocast
                inside.enter_context(torch.autocast(self.kind, dtype=dtype, enabled=enabled))
            kind = self.kind if self.devices else "cuda"  # of no device
            inside.enter_context(torch.random.fork_rng(self.devices, device_type=kind))
            torch.set_rng_state(self.on_cpu)
            set_device_states(self.devices, self.on_devices, device_type=kind)
            yield


class ReversibleStack(Stack):
    """The blocks of a ``Stack`` of pre-norm layers on a stream in two halves."""

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
        if checkpoint or memory is not None or memory_padding is not None:
            raise ValueError(
                "reversible layers keep nothing that checkpoint=True could drop, and have no "
                "cross-attention to a memory; leave both out."
            )
        parts = [part for block in self.blocks for part in _sublayers(block, padding, structure)]
        return self.norm(reversible(x, parts))

    def step(
        self,
        x: Float[Tensor, "b t dim"],
        states: list[Any],
        memory: Float[Tensor, "b m dim"] | None = None,
        memory_padding: Bool[Tensor, "b m"] | None = None,
        structure: Any = None,
    ) -> tuple[Float[Tensor, "b t dim"], list[Any]]:
        """``forward`` for the next t positions only."""
        first, second, after = x, x, []
        for block, state in zip(self.blocks, states, strict=True):
            read = block.attention_residual.read(second)  # type: ignore[operator, union-attr]
            out, state = block.attention.step(read, state)  # type: ignore[operator, union-attr]
            _, feed_forward = _sublayers(block, None, structure)
            first = first + out
            second = second + feed_forward.run(first)
            after.append(state)
        return self.norm((first + second) / 2), after


def _sublayers(block: Any, padding: Tensor | None, structure: Any) -> tuple[Sublayer, Sublayer]:
    """Attention and the feed-forward layer, each after its layer norm."""
    given = {"structure": structure} if block.told else {}
    attention = partial(block.attention, padding=padding, **given)
    return (
        _sublayer(block.attention, block.attention_residual, attention),
        _sublayer(block.feed_forward, block.feed_forward_residual, block.feed_forward),
    )


def _sublayer(module: nn.Module, residual: Residual, call: Callable[..., Tensor]) -> Sublayer:
    def run(x: Tensor) -> Tensor:
        return residual.dropped(call(residual.read(x)))

    return Sublayer(run, (*module.parameters(), *residual.parameters()))
