"""What a small language model predicts with each choice of its heads silenced, in one pass.

A head is silent where its output is replaced by zeros before the output projection: it attends as
before, and nothing of it reaches the residual stream. The batch is the list of all choices: row s
runs with those heads silent whose bit is set in s.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.lens.logit_parts import Part, logit_parts
from attnlab.lens.stream import followed
from attnlab.lens.watch import watch
from attnlab.models.tiny import TinyTransformer

MOST_HEADS, MOST_TOKENS, MOST_BYTES = 8, 64, 200_000
BIASES = ("bias", "norm bias", "output bias")
MASKED = 255  # the level of a pair that may not be attended to
Head = tuple[int, int]


@dataclass(frozen=True)
class States:
    """All choices of ``heads`` (k of them) on one text of n tokens.

    ``guesses``  (2^k, n) the token that the model predicts after each token
    ``maps``     for each layer (variants, heads of that layer, n, n) levels of the weights: the
                 square root of a weight × 254, or MASKED. A layer depends on the switches of
                 the layers below it only: state s has variant s mod 2^(heads below)
    """

    heads: list[Head]
    guesses: NDArray[np.int64]
    maps: dict[int, NDArray[np.uint8]]


@dataclass(frozen=True)
class Written:
    """Who writes each token that comes, in some of the choices: ``attnlab.lens.logit_parts``.

    ``parts``   P of them, in the order of the model; all biases are one, "bias"
    ``values``  (choices, n - 1, P) float32: what each part adds to the logit of the token that
                comes, above the mean of all logits. They sum to ``logits`` - ``means``
    ``logits``  (choices, n - 1) float32: that logit, as the model computes it
    ``means``   (choices, n - 1) float32: the mean of all logits there
    """

    parts: list[Part]
    values: NDArray[np.float32]
    logits: NDArray[np.float32]
    means: NDArray[np.float32]


def layers_of(model: Any) -> dict[str, Heads]:
    """The attention layers of a language model, by name; an error for any other model."""
    if not isinstance(model, TinyTransformer):
        raise TypeError(f"`model` should be a TinyTransformer, got {type(model).__name__}")
    if model.kind != "language_model":
        raise ValueError(f"`model` should be a language model, got one of kind={model.kind!r}")
    found = {
        name.removesuffix(".heads"): module
        for name, module in model.named_modules()
        if isinstance(module, Heads)
    }
    if not found:
        raise ValueError("`model` has no attention heads that could be silenced")
    return found


def run(model: TinyTransformer, ids: Tensor, heads: Sequence[Head]) -> States:
    """Every choice of ``heads`` on ``ids`` (n,); ``heads`` are in order of layers."""
    layers = layers_of(model)
    gains = _gains(layers, heads, _choices(len(heads)))
    parameter = next(model.parameters())
    batch = ids.to(parameter.device).expand(2 ** len(heads), -1)
    with _silenced(layers, gains), _resting(model), watch(model) as seen, torch.no_grad():
        guesses = model(batch).argmax(-1)
    calls = {call.name: call for call in seen}
    maps = {
        layer: _levels(calls, name, [h for at, h in heads if at == layer],
                       2 ** sum(at < layer for at, _ in heads))
        for layer, name in enumerate(layers) if any(at == layer for at, _ in heads)
    }  # fmt: skip
    return States(list(heads), guesses.cpu().numpy(), maps)


def written(model: TinyTransformer, ids: Tensor, heads: Sequence[Head]) -> Written:
    """The parts of the logits of the tokens that come, for every choice of ``heads``, or, where
    these need more than ``MOST_BYTES``, for the first choice alone, in which no head is silent.

    A ValueError for a model whose logits are no sum of known parts."""
    layers = layers_of(model)
    ids = ids.to(next(model.parameters()).device)[None]
    found = _written(model, ids, layers, heads, _choices(len(heads))[:1])
    if found.values.nbytes * 2 ** len(heads) <= MOST_BYTES:
        found = _written(model, ids, layers, heads, _choices(len(heads)))
    return found


def switches(model: TinyTransformer, ids: Tensor, heads: Sequence[Head]) -> dict[Part, int]:
    """The number in ``heads`` of the head that writes each part of a logit; parts of the others are
    left out. Layers that share their parameters have the same heads, so that one of ``heads`` may
    write several parts."""
    layers = [*layers_of(model).values()]
    run = followed(model, ids.to(next(model.parameters()).device)[None])
    found = {}
    for step in run.steps:
        at = next((at for at, layer in enumerate(layers) if layer is step.heads), None)
        for number, (layer, head) in enumerate(heads):
            if layer == at:
                found[Part(step.what, step.layer, head)] = number
    return found


def _written(
    model: TinyTransformer, ids: Tensor, layers: dict[str, Heads], heads: Sequence[Head],
    choices: Tensor,
) -> Written:  # fmt: skip
    batch = ids.expand(len(choices), -1)
    coming = batch.roll(-1, 1)  # the last asks for the first, and is left out
    with _silenced(layers, _gains(layers, heads, choices)):
        above = logit_parts(model, batch, coming, others="mean")
        logits = logit_parts(model, batch, coming).logits[:, :-1].double()
    means = logits - above.logits[:, :-1].double()
    sums: dict[Part, Tensor] = {}
    for part, value in zip(above.parts, above.values, strict=True):
        name = Part("bias") if part.what in BIASES else part
        sums[name] = sums[name] + value if name in sums else value
    if (bias := sums.pop(Part("bias"), None)) is not None:
        sums[Part("bias")] = bias  # the last
    values = torch.stack([*sums.values()], -1)[:, :-1]
    plain = [each.float().cpu().numpy() for each in (values, logits, means)]
    return Written([*sums], *plain)


def _choices(count: int) -> Tensor:
    """(2^count, count): 1 where a head is silent."""
    return torch.arange(2**count)[:, None] >> torch.arange(count) & 1


def _gains(layers: dict[str, Heads], heads: Sequence[Head], choices: Tensor) -> dict[str, Tensor]:
    """By what the output of each head of a layer is multiplied in each choice."""
    gains = {}
    for layer, (name, module) in enumerate(layers.items()):
        gain = torch.ones(len(choices), 1, module.heads, 1)
        for bit, (its_layer, head) in enumerate(heads):
            if its_layer == layer:
                gain[:, 0, head, 0] = 1 - choices[:, bit]
        gains[name] = gain
    return gains


def _levels(calls: dict[str, Any], name: str, heads: list[int], variants: int) -> NDArray[np.uint8]:
    try:
        weights = calls[name].weights[:variants, heads].float().cpu()
    except (KeyError, ValueError):
        raise ValueError(
            f"the layer {name!r} has heads but no attention weights to show, so its heads cannot "
            "stand on the switchboard; choose a model with softmax attention"
        ) from None
    levels = (254 * weights.clamp(0, 1).sqrt()).round().to(torch.uint8)
    mask = calls[name].mask
    if mask is not None:
        heads = heads if mask.shape[1] > 1 else [0] * len(heads)
        allowed = mask[:variants, heads].cpu().expand_as(levels)
        levels = levels.masked_fill(~allowed, MASKED)
    found: NDArray[np.uint8] = levels.numpy()
    return found


@contextmanager
def _silenced(layers: dict[str, Heads], gains: dict[str, Tensor]) -> Iterator[None]:
    """What each head gives to the output projection, times its gain (b, 1, heads, 1)."""

    def scaled(gain: Tensor) -> Any:
        def hook(_module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x = given[0].unflatten(-1, (gain.shape[2], -1))
            return ((x * gain.to(x)).flatten(-2), *given[1:])

        return hook

    handles = [
        layer.output.register_forward_pre_hook(scaled(gains[name]))
        for name, layer in layers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _resting(model: nn.Module) -> Iterator[None]:
    """In eval mode, and then as before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
