"""Chunks of tokens, and the state that is handed from one to the next."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.core import state_space
from attnlab.core.carried import reset_rows
from attnlab.core.chunks import handed_on
from attnlab.core.convolution import toeplitz
from attnlab.core.forms import upcasting
from attnlab.core.precision import upcast
from attnlab.core.shapes import Outputs, Queries, SelfKeys, SelfValues
from attnlab.core.tracing import on_cpu


def with_skip(map_: Tensor, skip: Tensor) -> Tensor:
    """The matrix of every head (h, n, n), with D on the diagonal."""
    eye = torch.eye(map_.shape[-1], dtype=map_.dtype, device=map_.device)
    return map_ + skip[:, None, None] * eye


def initial_state(k: SelfKeys, v: SelfValues, modes: int) -> Float[Tensor, "b h r d e 2"]:
    """The state before the first token."""
    b, h, _, d = k.shape
    return upcast(v).new_zeros(b, h, modes, d, v.shape[3], 2)


@upcasting
def advance(
    q: Queries, keys: SelfKeys, v: SelfValues, state: Tensor, decay: Tensor, CB: Tensor,
    skip: Tensor, chunk: int,
) -> tuple[Outputs, Tensor]:  # fmt: skip
    """The outputs of the next tokens after ``state``, and the state after them; ``keys`` are
    shifted."""
    kind, c = state_space.COMPLEX[v.dtype], min(chunk, q.shape[2])
    past = state_space.powers(decay, c + 1)  # (h, r, c + 1)
    K = 2 * (CB[..., None] * past[..., :-1]).sum(dim=1).real.to(v.dtype)
    # Of a complex product the real part alone is wanted: real parts and imaginary ones apart.
    read = torch.view_as_real(2 * (CB[..., None] * past[..., 1:]).conj_physical().to(kind))
    fading, past, S, out = torch.view_as_real(past.to(kind)), past.to(kind), state, []
    inside = with_skip(toeplitz(K), skip)
    together = 0 if on_cpu(q) else q.shape[2] // c * c  # a GPU takes all whole chunks at once
    if together:
        qs, ks, vs = (x[:, :, :together].unflatten(2, (-1, c)) for x in (q, keys, v))
        found, S = _together(qs, ks, vs, S, read, fading, past, inside)
        out.append(found.flatten(2, 3))
    rest = (x[:, :, together:] for x in (q, keys, v))
    for qi, ki, vi in zip(*(x.split(c, dim=2) for x in rest), strict=True):
        if not qi.shape[2]:
            break
        t = qi.shape[2]
        near = (qi @ ki.mT * inside[:, :t, :t]) @ vi
        weighed = torch.einsum("hrtc,bhrdec->bhtde", read[:, :, :t], S)
        out.append(near + (qi[..., None, :] @ weighed)[..., 0, :])
        faded = fading[:, :, :t].flip(2)[..., None, :] * ki[:, :, None, ..., None]
        kept = past[..., t, None, None] * state_space.as_complex(S)
        S = torch.view_as_real(kept) + torch.einsum("bhrtdc,bhte->bhrdec", faded, vi)
    return torch.cat(out, dim=2), S


def _together(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor, read: Tensor, fading: Tensor, past: Tensor,
    inside: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The outputs of whole chunks (b, h, N, c, e), and the state after them: the states before the
    chunks follow from one another in 2 √N steps."""
    c, d, e = q.shape[3], q.shape[4], v.shape[4]
    near = (q @ k.mT * inside[:, None]) @ v
    faded = fading[:, None, :, :c].flip(3)[..., None, :] * k[:, :, :, None, ..., None]
    added = torch.einsum("bhnrtdc,bhnte->bhnrdec", faded, v)
    kept = past[:, None, :, c, None].expand(1, -1, q.shape[2], -1, 1)
    before, S = handed_on(
        kept, state_space.as_complex(added).flatten(-2), state_space.as_complex(S).flatten(-2)
    )
    before, S = (torch.view_as_real(x.unflatten(-1, (d, e))) for x in (before, S))
    asked = q[:, :, :, None, ..., None] * read[:, None, :, :c, None]
    return near + torch.einsum("bhnrtdc,bhnrdec->bhnte", asked, before), S


class State(NamedTuple):
    """What a layer knows of the tokens before: dim · (N d + p - 1) numbers per sequence."""

    products: Float[Tensor, "b h r d e 2"]
    keys: Float[Tensor, "b _ dim"]  # the last, before the shift

    def cleared(self, ended: Bool[Tensor, "b"]) -> "State":
        """With nothing of the documents that have ended (b,)."""
        return reset_rows(self, ended)
