r"""Diagonal state spaces: linear recurrences of complex numbers, and the convolutions they are.

In continuous time a mode is a complex number that decays, turns and is driven by the input:

$$x' = A x + B u,\qquad y = 2\, \mathrm{Re} \sum_r C_r x_r,\qquad \mathrm{Re}\, A < 0$$

With a step of time d per token (*discretisation*) it is a recurrence, and its impulse response a
kernel, so that the same layer is a recurrent network and a convolution:

$$x_k = \bar A x_{k-1} + \bar B u_k,\qquad y = K * u,\qquad K_k = 2\, \mathrm{Re} \sum_r C_r
\bar B_r \bar A_r^k$$

``zoh`` (zero-order hold) is exact for an input that is held during each step, ``bilinear`` is the
trapezoidal rule:

$$\bar A = e^{dA},\ \bar B = \frac{e^{dA} - 1}{A} B;\qquad \bar A = \frac{1 + dA/2}{1 - dA/2},\
\bar B = \frac{d}{1 - dA/2} B$$

Only one of each pair of conjugate modes is kept, which is why the real part is taken twice. Letters
of this page: ``dim`` channels, ``r`` modes of each.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from attnlab.core.chunks import handed_on
from attnlab.core.convolution import fourier_convolution, toeplitz
from attnlab.core.integers import check_integer
from attnlab.core.precision import exact_dtype, no_autocast, upcast
from attnlab.core.probe import note
from attnlab.core.suggest import choose
from attnlab.core.tracing import is_abstract

Modes = Complex[Tensor, "dim r"]
Held = Float[Tensor, "b dim r 2"]
"""The state of every mode as its real and imaginary part."""

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}

# ---- discretisation


def zero_order_hold(dA: Tensor) -> tuple[Tensor, Tensor]:
    """Ā, and B̄ / (d B): e^z and (e^z - 1) / z, which is 1 at 0. For real or complex z = d A."""
    vanishes = dA == 0
    z = dA.masked_fill(vanishes, 1)
    return dA.exp(), (torch.expm1(z) / z).masked_fill(vanishes, 1)


def bilinear(dA: Tensor) -> tuple[Tensor, Tensor]:
    """Ā, and B̄ / (d B), by the trapezoidal rule."""
    half = dA / 2
    return (1 + half) / (1 - half), 1 / (1 - half)


def softmax_hold(dA: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Ā, and B̄ / (d B), such that the response to n tokens is that of DSS: with z = d A its
    k-th number is e^{zk} / (z Σ_l e^{zl}), l < n (Gupta et al., 2022, proposition 1)."""
    decay, drive = zero_order_hold(dA)
    return decay, drive / torch.expm1(n * dA)


RULES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "zoh": zero_order_hold,
    "bilinear": bilinear,
}


def discretised(
    A: Complex[Tensor, "... r"], step: Float[Tensor, "..."], rule: str = "zoh"
) -> tuple[Complex[Tensor, "... r"], Complex[Tensor, "... r"]]:
    """Ā and B̄ (for B = 1) of poles ``A`` under one ``step`` of time for each row of them.

    Raises ValueError for poles to the right of the imaginary axis, whose responses grow without
    bound, for steps that are not positive, and for anything that is not finite.
    """
    choose("rule", rule, RULES)
    _check_poles(A)
    _check_steps(step)
    decay, drive = RULES[rule](A * step[..., None])
    drive = drive * step[..., None]
    if not is_abstract(A) and not bool((decay.isfinite() & drive.isfinite()).all()):
        raise ValueError(
            "the discretisation overflows: step · A is too large for its numbers; take smaller "
            "steps or poles nearer to 0"
        )
    return decay, drive


def _check_poles(A: Any) -> None:
    if not isinstance(A, Tensor) or not A.is_complex():
        kind = A.dtype if isinstance(A, Tensor) else type(A).__name__
        raise TypeError(
            f"the poles should be a complex tensor, got {kind}; torch.complex(real, imaginary) "
            "makes one"
        )
    if is_abstract(A):
        return
    if not bool(A.isfinite().all()):
        raise ValueError("a pole is NaN or infinite")
    if bool((A.real > 0).any()):
        raise ValueError(
            f"a pole has the real part {A.real.max().item():.3g}: its response grows without "
            "bound; a stable pole has a negative one"
        )


def _check_steps(step: Any) -> None:
    if not isinstance(step, Tensor) or not step.is_floating_point():
        kind = step.dtype if isinstance(step, Tensor) else type(step).__name__
        raise TypeError(f"step should be a tensor of real numbers, got {kind}")
    if not is_abstract(step) and not bool((step.isfinite() & (step > 0)).all()):
        raise ValueError(
            "step should be positive and finite, for each channel: the time between tokens"
        )


# ---- the kernel


def powers(z: Tensor, n: int) -> Tensor:
    """z⁰ … z^(n - 1) on a new last axis, by doubling: log₂ n products."""
    found, top = torch.ones_like(z)[..., None], z[..., None]
    while found.shape[-1] < n:
        found, top = torch.cat((found, found * top), dim=-1), top * top
    return found[..., :n]


def kernel(decay: Modes, weight: Modes, n: int) -> Float[Tensor, "dim n"]:
    """K_k = 2 Re Σ_r weight_r decay_r^k for k < n; ``weight`` is C B̄, and sets the precision.

    A product with the Vandermonde matrix of the decays. As k = i c + j with c of about √n, it is a
    product of two short ones, and no array of dim · r · n numbers is made. Powers are computed in
    double precision: n equal roundings of a decay would add up.
    """
    check_integer("n", n, at_least=1)
    short, exact = max(1, round(n**0.5)), decay.to(_exact(decay))
    coarse = weight[..., None] * powers(exact**short, -(-n // short))
    left, right = (x.to(weight.dtype) for x in (coarse.mT, powers(exact, short)))
    return 2 * torch.view_as_real(left @ right)[..., 0].flatten(1)[:, :n]


def convolved(
    x: Float[Tensor, "b n dim"], decay: Modes, drive: Modes, C: Modes
) -> Float[Tensor, "b n dim"]:
    """The convolution with the kernel by Fourier transforms. Notes the kernel."""
    with no_autocast(x.device):
        K = note("kernel", kernel(decay, (C * drive).to(C.dtype), x.shape[1]))
    return fourier_convolution(x.mT, K).mT


def as_complex(parts: Float[Tensor, "... 2"]) -> Complex[Tensor, "..."]:
    """Real and imaginary parts as complex numbers; like PyTorch's, of any strides."""
    return torch.complex(parts[..., 0], parts[..., 1])


def _exact(z: Tensor) -> torch.dtype:
    return COMPLEX[exact_dtype(z.device)]


# ---- the recurrence


def initial_state(x: Float[Tensor, "b n dim"], modes: int) -> Held:
    """The state before the first token."""
    return upcast(x).new_zeros(len(x), x.shape[2], modes, 2)


def recurrent(
    x: Float[Tensor, "b n dim"], state: Held, decay: Modes, drive: Modes, C: Modes
) -> tuple[Float[Tensor, "b n dim"], Held]:
    """The recurrence, token by token; and the state after the last. ``C`` sets the precision."""
    h, out = as_complex(state), []
    decay, drive = decay.to(C.dtype), drive.to(C.dtype)
    for u in upcast(x).unbind(1):
        h = decay * h + drive * u[..., None]
        out.append(2 * (C * h).real.sum(dim=-1))
    return torch.stack(out, dim=1).to(x.dtype), torch.view_as_real(h)


def advance(
    x: Float[Tensor, "b n dim"], state: Held, decay: Modes, drive: Modes, C: Modes, *, chunk: int
) -> tuple[Float[Tensor, "b n dim"], Held]:
    """``recurrent``, c tokens at a time: inside a chunk by its Toeplitz matrix, from one to the
    next by the state. Unlike a Fourier transform this is exactly causal; 2 n dim (c + 4 r) FLOPs.
    """
    check_integer("chunk", chunk, at_least=1)
    c = min(chunk, x.shape[1])
    whole = x.shape[1] - x.shape[1] % c
    with no_autocast(x.device):
        out, state = _Tables(decay, drive, C, c).read(upcast(x)[:, :whole], state)
        if whole < x.shape[1]:
            rest = upcast(x)[:, whole:]
            last, state = _Tables(decay, drive, C, rest.shape[1]).read(rest, state)
            out = torch.cat((out, last), dim=1)
    return out.to(x.dtype), state


class _Tables:
    """What c tokens and a state do to c outputs and to the state after them, in each channel."""

    def __init__(self, decay: Modes, drive: Modes, C: Modes, c: int) -> None:
        past = powers(decay.to(_exact(decay)), c + 1)
        self.c, self.decay = c, past[..., -1].to(C.dtype)
        response = 2 * ((C * drive)[..., None] * past[..., :-1]).real.sum(dim=1)
        self.inside = toeplitz(response.to(C.real.dtype))  # (dim, c, c)
        into = (drive[..., None] * past[..., :-1].flip(-1)).to(C.dtype)
        self.into = torch.cat((into.real, into.imag), dim=1)  # (dim, 2 r, c)
        out_of = 2 * (C[..., None] * past[..., 1:]).to(C.dtype)
        self.out_of = torch.cat((out_of.real, -out_of.imag), dim=1).mT  # (dim, c, 2 r)

    def read(self, x: Tensor, state: Held) -> tuple[Tensor, Held]:
        """x (b, n, dim) of a length that c divides."""
        (b, n, dim), r = x.shape, state.shape[2]
        k = n // self.c
        cut = x.unflatten(1, (k, self.c)).permute(3, 2, 0, 1).reshape(dim, self.c, b * k)
        wrote = (self.into @ cut).view(dim, 2, r, b, k).permute(3, 0, 4, 2, 1)
        kept = self.decay[:, None, :, None].expand(1, dim, k, r, 1)
        before, h = handed_on(kept, as_complex(wrote)[..., None], as_complex(state)[..., None])
        starts = torch.view_as_real(before[..., 0]).permute(1, 4, 3, 0, 2)
        out = torch.baddbmm(self.inside @ cut, self.out_of, starts.reshape(dim, 2 * r, b * k))
        out = out.view(dim, self.c, b, k).permute(2, 3, 1, 0).reshape(b, n, dim)
        return out, torch.view_as_real(h[..., 0])


# ---- where the poles begin


def lin(modes: int) -> Tensor:
    """S4D-Lin: A_k = -1/2 + i π k, whose kernels are a damped Fourier series."""
    return _poles(torch.pi * torch.arange(modes).double())


def inv(modes: int) -> Tensor:
    """S4D-Inv: A_k = -1/2 + i (N / π)(N / (2k + 1) - 1) with N = 2 · modes, near those of LegS."""
    N = 2 * modes
    return _poles(N / torch.pi * (N / (2 * torch.arange(modes).double() + 1) - 1))


def real(modes: int) -> Tensor:
    """S4D-Real: A_k = -(k + 1), the eigenvalues of HiPPO-LegS."""
    decays = torch.arange(1, modes + 1).double()
    return torch.complex(-decays, torch.zeros_like(decays))


def _poles(frequencies: Tensor) -> Tensor:
    return torch.complex(torch.full_like(frequencies.double(), -0.5), frequencies.double())


def hippo(state: int) -> tuple[Float[Tensor, "r r"], Float[Tensor, "r"]]:
    """HiPPO-LegS: the dense A (r, r) and B (r) whose state is the past in Legendre polynomials.

    e^{tA} B has the entries √(2i + 1) e^{-t} P_i(2 e^{-t} - 1) (Gu et al., 2020, appendix E).
    """
    i = torch.arange(state, dtype=torch.float64)
    root = (2 * i + 1).sqrt()
    A = -(root[:, None] * root).tril(-1) - torch.diag(i + 1)
    return A, root


@functools.cache
def _normal(state: int) -> tuple[Tensor, Tensor, Tensor]:
    with torch.device("cpu"):  # whatever the default device: it is computed once and kept
        A, B = hippo(state)
        P = B / 2**0.5
        skew = A + P[:, None] * P + 0.5 * torch.eye(state)
        values, vectors = torch.linalg.eigh(-1j * skew)
        kept = values > 0
        # Of either sign, by processor: the same seed is to give the same layer everywhere.
        turned = vectors * vectors[0].sgn().conj()
        return _poles(values[kept]), turned[:, kept], B


def legs(modes: int) -> tuple[Tensor, Tensor, Tensor]:
    """S4D-LegS: A (r), B (r) and the eigenvectors V (2 r, r) of the normal part of HiPPO-LegS.

    A_LegS + P Pᵀ with P_i = √(i + 1/2) is -1/2 plus a skew matrix, so that its eigenvectors are
    unitary; of each conjugate pair the one with Im A > 0 is kept, and B = V* B_LegS / 2: with half
    of the input the normal part alone tends to LegS where the input is smooth.
    """
    A, V, B = (x.to(torch.get_default_device()) for x in _normal(2 * modes))
    return A, V.mH @ B.to(V.dtype) / 2, V
