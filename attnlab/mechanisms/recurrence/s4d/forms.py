"""The forms that make no n × n matrix: the recurrence, Fourier transforms, and chunks."""

from attnlab.core import state_space
from attnlab.core.forms import form
from attnlab.core.probe import note
from attnlab.core.shapes import Tokens
from attnlab.mechanisms.recurrence.s4d.system import (
    Learned,
    S4DOptions,
    system,
)

# ---- recurrent


@form
def recurrent(x: Tokens, learned: Learned, *, options: S4DOptions = S4DOptions()) -> Tokens:
    """The recurrence, token by token."""
    parts = system(learned, options)
    out, state = state_space.recurrent(x, state_space.initial_state(x, learned.B.shape[1]), *parts)
    note("state", state)
    return out + learned.skip * x


# ---- fft


@form
def fft(x: Tokens, learned: Learned, *, options: S4DOptions = S4DOptions()) -> Tokens:
    """The kernel by a Vandermonde product, then a convolution by Fourier transforms."""
    mixed = state_space.convolved(x, *system(learned, options))
    return mixed + learned.skip * x


# ---- chunked


@form
def chunked(x: Tokens, learned: Learned, *, options: S4DOptions = S4DOptions()) -> Tokens:
    """The matrix inside chunks of c tokens, the state from one chunk to the next."""
    parts = system(learned, options)
    begin = state_space.initial_state(x, learned.B.shape[1])
    out, state = state_space.advance(x, begin, *parts, chunk=options.chunk)
    note("state", state)
    return out + learned.skip * x
