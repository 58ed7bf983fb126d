"""Time and memory of layers as they run here: several in comparison, interleaved.

Three passes are timed: "forward" (without gradients), "both" (forward and backward, gradients of
the input and of all parameters) and "decode" (the output of one more token after n). A form is
timed only if it is proved: on a short sequence, in this process, in 64-bit numbers, its output and
gradients are those of `naive`. A layer that is not of the catalogue has one form, so there is
nothing to prove.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.catalog import remembered
from attnlab.core.suggest import choose
from attnlab.measure.costs import Layer, after, decodes
from attnlab.measure.memory import allocated
from attnlab.measure.subject import Subject, check_length
from attnlab.measure.timing import Timing, compare

Pass = Literal["forward", "both", "decode"]
PASSES: Mapping[str, str] = {
    "forward": "forward, without gradients",
    "both": "forward and backward",
    "decode": "one token after n others",
}
PROVED_AT = 300  # tokens: several blocks and chunks


class Unproved(ValueError):
    """A form that does not equal `naive`; nothing is reported about it."""


@dataclass(frozen=True)
class Measurement:
    """Times of one pass of one layer on one sequence of n tokens.

    `seconds` has one entry for each round; rounds of layers that were measured together belong to
    each other. `quartiles` are (lower, upper). `peak_bytes` is the most memory allocated at once
    during the pass, beside what was there before; None where it was not asked for.
    """

    subject: Layer
    n: int
    of: str
    seconds: tuple[float, ...]
    median: float
    quartiles: tuple[float, float]
    threads: int
    device: str
    peak_bytes: int | None = None


def measured(
    layers: Sequence[Layer],
    n: int,
    *,
    passes: Sequence[str] = ("forward",),
    rounds: int = 5,
    warmup: int = 1,
    threads: int = 2,
    device: str = "cpu",
    dtype: str = "float32",
    seed: int = 0,
    memory: bool = False,
) -> list[Measurement]:
    """Time every layer at length n, A B C A B C …, so that a slow second slows all of them alike.

    A layer that does not decode has no entry for "decode". Raises Unproved for a form that differs
    from `naive`, ValueError where a layer refuses the length.
    """
    n = check_length(n)
    for which in passes:
        choose("pass", which, PASSES)
    calls: dict[str, tuple[Layer, str, Callable[[], object]]] = {}
    for number, one in enumerate(layers):
        if isinstance(one, Subject):
            prove(one)
        for which in passes:
            if which != "decode" or decodes(one):
                call = call_of(one, n, which, device=device, dtype=dtype, seed=seed)
                calls[f"{number} {which}"] = one, which, call
    if not calls:
        return []
    timed = compare(
        {name: call for name, (_, _, call) in calls.items()},
        repeats=rounds, warmup=warmup, threads=threads,
    )  # fmt: skip
    peaks = {name: allocated(call, device) for name, (_, _, call) in calls.items() if memory}
    return [
        _measurement(calls[each.name], each, n, threads, device, peaks.get(each.name))
        for each in timed
    ]


def _measurement(
    what: tuple[Layer, str, Any], timed: Timing, n: int, threads: int, device: str,
    peak: int | None,
) -> Measurement:  # fmt: skip
    return Measurement(
        what[0], n, what[1], timed.seconds, timed.median, timed.quartiles, threads, device, peak
    )


def call_of(
    layer: Layer,
    n: int,
    which: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    seed: int = 0,
) -> Callable[[], object]:
    """One pass of the layer at length n as a function without arguments."""
    kind = dtype_of(dtype)
    if which == "decode":
        module, state = after(layer, n, device)
        token = layer.sequence(1, device, seed).detach()
        return functools.partial(_decode, module, token, state)
    module = layer.layer(n, device, seed).to(kind)
    x = layer.sequence(n, device, seed).detach().to(kind)
    told = layer.extra_inputs(n, device)
    if which == "forward":
        return functools.partial(_forward, module, x, told)
    return functools.partial(_both, module, x.requires_grad_(), told)


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def dtype_of(name: str) -> torch.dtype:
    """The precision of that name: float32, bfloat16 or float64."""
    return choose("dtype", name, _DTYPES)


@torch.no_grad()
def _forward(module: Callable[..., Any], x: Tensor, told: Mapping[str, Any]) -> object:
    return module(x, **told)


@torch.no_grad()
def _decode(module: nn.Module, token: Tensor, state: Any) -> object:
    return module.step(token, state)  # type: ignore[operator]


def _both(module: nn.Module, x: Tensor, told: Mapping[str, Any]) -> object:
    leaves = [x, *(p for p in module.parameters() if p.requires_grad)]
    return torch.autograd.grad(total(module(x, **told)), leaves, allow_unused=True)


def total(out: Any) -> Tensor:
    """A number to differentiate: the sum of an output, or of all of several outputs."""
    parts = [part for part in out if isinstance(part, Tensor)] if isinstance(out, tuple) else [out]
    summed: Tensor = sum(part.sum() for part in parts if part.requires_grad)  # type: ignore[assignment]
    return summed


@remembered
def prove(layer: Subject) -> None:
    """Compare the layer's form with `naive` on a short sequence, output and gradients.

    Done once in a process. Raises Unproved, with the largest difference, where they are not equal.
    """
    if layer.form == "naive":
        return
    own, naive = (_evaluated(one) for one in (layer, layer.with_form("naive")))
    for name, mine in own.items():
        if not torch.allclose(mine, naive[name], rtol=1e-6, atol=1e-8, equal_nan=True):
            apart = (mine - naive[name]).abs().max().item()
            raise Unproved(
                f"{layer.label} is not measured: {name} differs from naive's by {apart:.1e} at "
                f"n = {PROVED_AT}; mend the form first, as a wrong result has no time"
            )


def _evaluated(layer: Subject) -> dict[str, Tensor]:
    """Output and gradients, in 64-bit numbers; the same parameters and input for every form."""
    module = layer.layer(PROVED_AT).double()
    x = layer.sequence(PROVED_AT).detach().double().requires_grad_()
    out = module(x, **layer.extra_inputs(PROVED_AT))
    out = out[0] if isinstance(out, tuple) else out
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    named = {"its gradient of the input": x} | {
        f"its gradient of {name}": p for name, p in module.named_parameters() if p.requires_grad
    }
    found = torch.autograd.grad((out * weights).sum(), list(named.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(named.items(), found, strict=True)
    }
    return {"its output": out.detach(), **gradients}
