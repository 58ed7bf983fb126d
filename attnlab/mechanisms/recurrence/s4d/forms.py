"""The forms that make no n × n matrix: the recurrence, Fourier transforms, and chunks."""

from attnlab.core import state_space
from attnlab.core.precision import wide
from attnlab.core.probe import note
from attnlab.core.shapes import Tokens, checked
from attnlab.mechanisms.recurrence.s4d.system import (
    PerChannel,
    PerMode,
    StateSpace,
    Weights,
    system,
)

# ---- recurrent


@checked
def recurrent(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The recurrence, token by token."""
    parts = system(frequency, log_decay, log_step, B, C, options)
    out, state = state_space.recurrent(wide(x), state_space.nothing(x, B.shape[1]), *parts)
    note("state", state)
    return (out + wide(skip) * wide(x)).to(x.dtype)


# ---- fft


@checked
def fft(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The kernel by a Vandermonde product, then a convolution by Fourier transforms."""
    mixed = state_space.convolved(wide(x), *system(frequency, log_decay, log_step, B, C, options))
    return (mixed + wide(skip) * wide(x)).to(x.dtype)


# ---- chunked


@checked
def chunked(
    x: Tokens, frequency: PerMode, log_decay: PerMode, log_step: PerChannel, B: Weights,
    C: Weights, skip: PerChannel, *, options: StateSpace = StateSpace(),
) -> Tokens:  # fmt: skip
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    parts = system(frequency, log_decay, log_step, B, C, options)
    begin = state_space.nothing(x, B.shape[1])
    out, state = state_space.advance(wide(x), begin, *parts, chunk=options.chunk)
    note("state", state)
    return (out + wide(skip) * wide(x)).to(x.dtype)
