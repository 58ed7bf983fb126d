"""Recurrent layers: what the pages of recurrences share.

A recurrent layer reads tokens from left to right and carries a state, a ``NamedTuple`` of tensors
(b, …). What is written here does not depend on what the state holds.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.carried import reset_rows
from attnlab.core.heads import check_input, zero_nonfinite_padding
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import Restore, listening, note, restoring
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked

MAPS = ("weights", "scores")
"""What is noted for each pair of positions, (b, h, n, n), or (h, n, n) of all sequences alike."""
ROWS = ("queries", "keys", "values", "gate", "gates", "steps")
"""What is noted for each position, (…, n, width)."""


def skipping_padding(
    run: Callable[[Tokens], Tokens], x: Tokens, padding: TokenPadding, rows: tuple[str, ...] = ROWS
) -> Tokens:
    """``run`` on the real tokens of each sequence as if they stood alone; zeros at padding.

    The real tokens are moved to the front, in their order, so that no padded token comes between
    two of them; ``run`` is causal, so what follows them changes nothing. What is noted meanwhile
    for each pair of positions, or under one of the names ``rows`` for each position, is moved back.
    """
    if padding is None:
        return run(x)
    order = (~padding).int().argsort(dim=1, stable=True)
    back = order.argsort(dim=1)
    with restoring(_moved(back, padding, rows)) if listening() else nullcontext():
        out = run(zero_nonfinite_padding(x, padding).gather(1, order[..., None].expand_as(x)))
    return _rows_moved(out, back, padding)


def _moved(back: Tensor, padding: Tensor, rows: tuple[str, ...]) -> Restore:
    def restore(name: str, value: Any) -> Any:
        if name in rows:
            return _rows_moved(value, back, padding)
        if name in MAPS:  # the columns are the rows of the transpose
            each = value if value.ndim == 4 else value.expand(len(back), -1, -1, -1)
            return _rows_moved(_rows_moved(each, back, padding).mT, back, padding).mT
        return value

    return restore


def _rows_moved(x: Tensor, back: Tensor, padding: Tensor) -> Tensor:
    """(b, …, n, width) in the order of the caller; zeros at padding."""
    b, n = padding.shape
    to, real = (at.view(b, *[1] * (x.ndim - 3), n, 1) for at in (back, padding))
    return x.take_along_dim(to, -2).masked_fill(~real, 0)


def check_state(state: Any, needed: Any) -> None:
    """Raise a sentence unless ``state`` is of the kind of ``needed``, the state at the beginning,
    and every tensor has the shape, dtype and device of the one there."""
    if not isinstance(state, type(needed)):
        raise TypeError(
            f"the state should be a {type(needed).__qualname__}, got a "
            f"{type(state).__qualname__}: give back what step of this layer returned, or "
            "state=None to begin"
        )
    for name, found, wanted in zip(needed._fields, state, needed, strict=True):
        if not isinstance(found, Tensor):
            raise TypeError(
                f"the state's `{name}` should be a tensor, got a {type(found).__name__}: give back "
                "what step returned, or state=None to begin"
            )
        if _kind(found) != _kind(wanted):
            raise ValueError(
                f"the state's `{name}` is {_words(found)}, but this call needs {_words(wanted)}: "
                "start a new batch with state=None, and give each layer its own state"
            )


def _kind(x: Tensor) -> tuple[torch.Size, torch.dtype, torch.device, torch.layout]:
    return x.shape, x.dtype, x.device, x.layout


def _words(x: Tensor) -> str:
    kind = "" if x.layout == torch.strided else "sparse "
    return f"{kind}{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)} on {x.device}"


class Hidden(NamedTuple):
    """The state of a cell whose output is all that it carries: dim numbers per sequence."""

    hidden: Float[Tensor, "b dim"]

    def cleared(self, ended: Bool[Tensor, "b"]) -> "Hidden":
        """Zeros, as at the beginning, in those sequences whose document has ``ended``."""
        return reset_rows(self, ended)


class Cell(nn.Module):
    """A layer whose state is its last output: (b, n, dim) → (b, n, dim); zeros at padding.

    A page gives ``form``, one of its functions: ``form(x, *parameters, before=…)``. A state is
    never rounded to half precision, in which a long sum stops growing, and never detached; whoever
    wants to stop gradients detaches it between two calls of ``step``.
    """

    def __init__(self, dim: int, name: str, form: Callable[..., Tensor]) -> None:
        super().__init__()
        self.dim, self.name, self.form = dim, name, form

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        self._check_input(x)
        run = lambda real: self.form(real, *self.parameters())  # noqa: E731
        return skipping_padding(run, x, padding, rows=("state",))

    @checked
    def step(self, x: NewTokens, state: Hidden | None = None) -> tuple[NewTokens, Hidden]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self._check_input(x)
        fresh = Hidden(torch.zeros_like(upcast(x[:, 0])))
        if state is None:
            state = fresh
        check_state(state, fresh)
        out = self.form(*map(upcast, (x, *self.parameters())), before=state.hidden)
        new = Hidden(out[:, -1].clone())  # a view would keep all of them
        return out.to(x.dtype), note("state", new)

    def _check_input(self, x: Tokens) -> None:
        check_input(x, "x", self.dim, next(self.parameters()))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, form={self.name!r}"


def initial_hidden(x: Tokens, before: Float[Tensor, "b dim"] | None) -> Float[Tensor, "b dim"]:
    """The state before the first token: zeros unless ``before`` is given."""
    return torch.zeros_like(upcast(x)[:, 0]) if before is None else upcast(before)


def run_gru_kernel(
    x: Tensor, of_input: Tensor, of_state: Tensor, input_bias: Tensor, state_bias: Tensor,
    before: Tensor | None,
) -> Tensor:  # fmt: skip
    """The states (b, n, dim) that PyTorch's GRU kernel computes, noted.

    Its weights are those of ``torch.nn.GRU``: matrices (3 dim, dim) and biases (3 dim,) of the
    reset gate, the update gate and the candidate.
    """
    weights = as_kernels_read(of_input, of_state, input_bias, state_bias)
    with no_autocast(x.device):
        h = initial_hidden(x, before)[None]
        states, _ = torch.gru(upcast(x), h, weights, *kernel_options())
    return note("state", states).to(x.dtype)


def kernel_options() -> tuple[bool, int, float, bool, bool, bool]:
    """What ``torch.gru`` and ``torch.lstm`` are told: with biases, one layer, no dropout, whether
    to keep what a gradient needs (cuDNN has none otherwise, whatever the layer's mode), one
    direction, the batch first."""
    return True, 1, 0.0, torch.is_grad_enabled(), False, True


def as_kernels_read(*weights: Tensor) -> list[Tensor]:
    """The weights of such a kernel; on a GPU parts of one tensor, or cuDNN warns at each call that
    it has to copy them."""
    if not weights[0].is_cuda:
        return list(weights)
    whole = torch.cat([weight.flatten() for weight in weights])
    parts = whole.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


def glorot(*shape: int) -> nn.Parameter:
    """Matrices (…, out, in) from a uniform distribution of variance 2 / (in + out)."""
    bound = (6 / (shape[-1] + shape[-2])) ** 0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
