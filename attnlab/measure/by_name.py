"""What the layer of a mechanism of that name costs, counted and timed, and whether it decodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnlab.catalog import card
from attnlab.measure.costs import Cost, Layer, counted
from attnlab.measure.costs import decodes as steps
from attnlab.measure.measured import Measurement, measured
from attnlab.measure.subject import Subject, subject

Options = Mapping[str, Any]


def flops(name: str, n: int, dim: int, heads: int, options: Options) -> Cost:
    """Counted, forward. Raises ValueError in the mechanism's words where it refuses the options."""
    return counted(_subject(name, dim, heads, options), n)


def times(
    layers: Sequence[tuple[str, Options]], n: int, dim: int, heads: int, *,
    backward: bool = False, rounds: int = 5,
) -> list[Measurement]:  # fmt: skip
    """Each layer timed on one sequence of n tokens, with the threads that PyTorch has."""
    subjects = [_subject(name, dim, heads, options) for name, options in layers]
    return timed(subjects, n, backward=backward, rounds=rounds)


def timed(
    layers: Sequence[Layer], n: int, *, backward: bool = False, rounds: int = 5
) -> list[Measurement]:
    """The times of layers that need not be of the catalogue."""
    which = "both" if backward else "forward"
    threads = torch.get_num_threads()
    return measured(layers, n, passes=(which,), rounds=rounds, threads=threads)


def _subject(name: str, dim: int, heads: int, options: Options) -> Subject:
    return subject(name, dim=dim, heads=heads, **options)


TRIED, KEPT = 37, 23
"""Tokens of the sequence on which causality is tried; the first of them that stay the same."""


def decodes(name: str) -> tuple[bool, str]:
    """Whether a mechanism decodes from left to right, and the answer in a sentence: tried out, or
    the card's reason where it is never causal."""
    known = card(name)
    if known.causal == "never":
        return False, f"no: {known.causal_reason}"
    return tried(subject(name, dim=32, heads=2, **known.small_options))


def tried(small: Layer) -> tuple[bool, str]:
    """Whether a layer decodes, tried out.

    As a causal layer it must give the first tokens the same outputs whatever follows them, and
    must give the next token's output by ``step`` from a state.
    """
    layer = small.caused().layer(TRIED).double()
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        x, other = torch.randn(2, 1, TRIED, small.dim, dtype=torch.double, generator=drawn)
        other[:, :KEPT] = x[:, :KEPT]
        before, after = (layer(each)[:, :KEPT] for each in (x, other))
    if not torch.allclose(before, after, rtol=0, atol=1e-9):
        return False, "no: what follows a token changes its output"
    if not steps(small.caused()):
        return False, "no: it is causal, but has no step that gives one token after another"
    return True, "yes: the first outputs stay whatever follows, and it has a step"
