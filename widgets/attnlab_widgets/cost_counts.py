"""What the layer of a mechanism costs, counted and timed, and whether it decodes.

Counting runs the layer on the meta device, which computes nothing; what needs numbers there runs on
the processor.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.catalog import build, card
from attnlab.core.card import Card
from attnlab.measure.count import count
from attnlab.measure.timing import Timing, compare

Options = tuple[tuple[str, Any], ...]
"""The options of a mechanism as sorted pairs, so that they can be remembered."""


class Flops(NamedTuple):
    """Of a layer on one sequence, and without its linear maps, which is what a card claims."""

    layer: int
    mixing: int


def layer_of(
    name: str, n: int, dim: int, heads: int, options: Options = (), *,
    causal: bool = False, device: str = "cpu",
) -> nn.Module:  # fmt: skip
    """A layer in evaluation mode that can take n tokens, causal where asked for or always so."""
    known = card(name)
    given = dict(options)
    if "max_len" in known.option_names() and "max_len" not in given:
        given["max_len"] = max(n, known.options().max_len)  # type: ignore[attr-defined]
    causal = known.causal == "always" or causal
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        return build(name, dim=dim, heads=heads, causal=causal, **given).eval()


@functools.lru_cache(maxsize=4096)
def flops(name: str, n: int, dim: int, heads: int, options: Options = ()) -> Flops:
    """Counted, forward. Raises ValueError in the mechanism's words where it refuses the options."""
    if card(name).structure is not None:  # whose tables are numbers
        return _flops(name, n, dim, heads, options, "cpu")
    try:
        return _flops(name, n, dim, heads, options, "meta")
    except RuntimeError:  # the layer asks for numbers
        return _flops(name, n, dim, heads, options, "cpu")


def _flops(name: str, n: int, dim: int, heads: int, options: Options, device: str) -> Flops:
    layer = layer_of(name, n, dim, heads, options, device=device)
    x, told = torch.empty(1, n, dim, device=device).normal_(), _told(card(name), n)
    linear = 0

    def book(part: nn.Module, args: tuple[Tensor, ...], _: Any) -> None:
        nonlocal linear
        linear += 2 * args[0].numel() * part.out_features  # type: ignore[operator]

    for part in layer.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_hook(book)
    with torch.no_grad():
        counted = count(lambda: layer(x, **told)).flops
    return Flops(counted, counted - linear)


def times(
    names: Sequence[tuple[str, Options]], n: int, dim: int, heads: int, *, backward: bool = False,
    rounds: int = 5,
) -> list[Timing]:  # fmt: skip
    """Seconds of each layer on one sequence of n tokens, interleaved, so that drift hits all."""
    calls = {
        str(at): _call(name, n, dim, heads, options, backward)
        for at, (name, options) in enumerate(names)
    }
    return compare(calls, repeats=rounds, warmup=1, threads=None)


def _call(
    name: str, n: int, dim: int, heads: int, options: Options, backward: bool
) -> Callable[[], object]:
    layer = layer_of(name, n, dim, heads, options)
    x, told = torch.randn(1, n, dim), _told(card(name), n)

    def forward() -> object:
        with torch.no_grad():
            return layer(x, **told)

    def both() -> object:
        out = layer(x.requires_grad_(), **told)
        return torch.autograd.grad(out.sum(), [x, *layer.parameters()], allow_unused=True)

    return both if backward else forward


def _told(known: Card, n: int) -> Mapping[str, Any]:
    """What a layer is told beside the sequence: an example of its structure."""
    if known.structure is None:
        return {}
    return {"structure": known.structure.example(torch.ones(1, n, dtype=torch.bool))}


TRIED, KEPT = 37, 23
"""Tokens of the sequence on which causality is tried; the first of them that stay the same."""


def decodes(name: str) -> tuple[bool, str]:
    """Whether a mechanism decodes from left to right, tried out, and the answer in a sentence.

    The causal layer must give the first tokens the same outputs whatever follows them, and must
    give the next token's output by `step` from a state.
    """
    known = card(name)
    if known.causal == "never":
        return False, f"no: {known.because}"
    layer = layer_of(name, TRIED, 32, 2, _small(known), causal=True).double()
    with torch.no_grad():
        x = torch.randn(1, TRIED, 32, dtype=torch.double)
        other = x.clone()
        other[:, KEPT:] = torch.randn(1, TRIED - KEPT, 32, dtype=torch.double)
        before, after = (layer(each)[:, :KEPT] for each in (x, other))
    if not torch.allclose(before, after, rtol=0, atol=1e-9):
        return False, "no: what follows a token changes its output"
    if not hasattr(layer, "step"):
        return False, "no: it is causal, but has no step that gives one token after another"
    return True, "yes: the first outputs stay whatever follows, and it has a step"


def _small(known: Card) -> Options:
    return tuple(sorted(known.small.items()))
