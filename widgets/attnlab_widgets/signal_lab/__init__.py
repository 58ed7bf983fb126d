"""What does a kernel do to a signal, and what does the pole of a state space do to the kernel?

    SignalLab()                                              # drag the pole, draw the signal
    SignalLab("chirp", "S4D-LegS")                           # by name
    SignalLab([0, 1, 0.5, …], torch.tensor([-0.3 + 2j]))     # a signal (n,), poles (r,)
    SignalLab("noise", layer)                                # the kernels of a trained S4D

A signal goes through a diagonal state space, or a few taps: impulse response, spectrum, the lower
triangular Toeplitz matrix that is its map, the state after every token, and the output. Everything
is computed on the page, so a saved file stays alive.
"""

from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor, nn

from attnlab.core import state_space
from attnlab.core.arguments import check_list, check_number
from attnlab.core.arrays import numbers
from attnlab.core.convolution import fourier_convolution, toeplitz
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab_widgets.base import STATIC, Checked, Choice, as_trait_error
from attnlab_widgets.legend import SaysUntrained
from attnlab_widgets.signal_lab import presets, words
from attnlab_widgets.signal_lab.picture import picture

LEAST_TOKENS, MOST_TOKENS, MOST_POLES, MOST_KERNELS = 4, 128, 32, 16
LEAST_STEP, LARGEST_STEP, LARGEST_POLE, LARGEST = 1e-4, 10.0, 1000.0, 100.0
FREQUENCIES = 129
"""Of the spectrum, from 0 to half a turn per token."""
_SHAPE = ("poles", "weights", "skip", "taps")
"""What makes it another kernel: steps and rule may differ."""
_PARTS = ("poles", "weights", "step", "rule", "skip", "taps")


class SignalLab(SaysUntrained):
    """A signal, a kernel, and what follows from them.

    ``signal``   a name (step, impulse, chirp, noise, …), or 4 to 128 numbers (n,)
    ``kernel``   a name ("one pole", "S4D-Lin", "moving average", …); taps (m,), the newest token's
                 first, or several kernels (count, m); complex poles (r,), whose weights are then
                 1; a layer of class S4D or LightweightConvolution, of which the first 16 channels
                 or heads are offered
    ``untrained``  whether nobody trained the kernels that are given: the picture then says so
                 while one of them is shown

    These, and the following, can be read and set:

    ``poles``    A (r, 2), real and imaginary parts, or complex numbers; at most 32, none with a
                 positive real part. Of each pair of conjugates one is given
    ``weights``  C B of each pole, likewise
    ``step``     the time between tokens, 0.0001 to 10
    ``rule``     "zoh" or "bilinear"
    ``skip``     D, by which a token adds itself
    ``taps``     a kernel in place of that of the poles; empty for none
    ``token``    the token that is read out
    """

    _esm = STATIC / "signal_lab.js"

    signal: Any = Checked().tag(sync=True)
    poles: Any = Checked().tag(sync=True)
    weights: Any = Checked().tag(sync=True)
    step = traitlets.Float(0.1).tag(sync=True)
    rule = Choice(("zoh", "bilinear"), "zoh").tag(sync=True)
    skip = traitlets.Float(0.0).tag(sync=True)
    taps: Any = Checked().tag(sync=True)
    token = traitlets.Int(0).tag(sync=True)
    _signals: Any = traitlets.List().tag(sync=True)
    _kernels: Any = traitlets.List().tag(sync=True)
    _given = traitlets.Int(0).tag(sync=True)  # so many kernels, the first, are the caller's

    def __init__(
        self,
        signal: Any = "step",
        kernel: Any = "one pole",
        *,
        token: int | None = None,
        untrained: bool = False,
        theme: str = "auto",
    ) -> None:
        signals, known = presets.signals(), presets.kernels()
        if isinstance(signal, str):
            named = {one["name"]: one["signal"] for one in signals}
            found = choose("signal", signal, named)
        else:
            found = _signal(signal)
            signals = [{"name": "as given", "signal": found}, *signals]
        own = _kernels(kernel, known)
        state = {name: own[0][name] for name in _PARTS}
        given = [] if isinstance(kernel, str) else own
        if untrained and not given:
            raise ValueError(f"`untrained` goes with kernels that are given, not with {kernel!r}")
        super().__init__(
            _signals=signals, _kernels=[*given, *known], _given=len(given), signal=found,
            token=_place(len(found) // 2 if token is None else token, len(found)), theme=theme,
            untrained=untrained, **state,
        )  # fmt: skip

    # What follows from the state

    def system(self) -> tuple[Tensor, Tensor]:
        """Ā and B̄ (for B = 1) of every pole, (r,) each; complex128."""
        return state_space.discretised(_complex(self.poles), _step_of(self.step), self.rule)

    def impulse_response(self) -> Tensor:
        """(n,) the weights that a token gives to itself, the one before it, …; float64."""
        n = len(self.signal)
        if self.taps:
            found = torch.tensor((self.taps + [0.0] * n)[:n], dtype=torch.float64)
        else:
            decay, drive = self.system()
            found = state_space.kernel(decay[None], (_complex(self.weights) * drive)[None], n)[0]
        found[0] += self.skip
        return found

    def matrix(self) -> Tensor:
        """(n, n) the map: row i holds what token i takes of each token."""
        return toeplitz(self.impulse_response())

    def output(self) -> Tensor:
        """(n,) the signal after the kernel."""
        return fourier_convolution(self._u, self.impulse_response())

    def states(self) -> Tensor:
        """(n, r) the state after every token: of poles the modes x, complex; of m taps the newest
        m inputs."""
        if self.taps:
            past = torch.cat((self._u.new_zeros(len(self.taps) - 1), self._u))
            return past.unfold(0, len(self.taps), 1).flip(1)
        decay, drive = self.system()
        x, found = torch.zeros_like(decay), []
        for u in self._u:
            x = decay * x + drive * u
            found.append(x)
        return torch.stack(found)

    def spectrum(self) -> Tensor:
        """(129,) by what the kernel multiplies waves of 0 to half a turn per token."""
        angles = torch.linspace(0, torch.pi, FREQUENCIES, dtype=torch.float64)
        k = torch.arange(len(self.signal), dtype=torch.float64)
        waves = torch.exp(-1j * angles[:, None] * k)
        return (waves @ self.impulse_response().to(waves.dtype)).abs()

    def description(self) -> str:
        """How long the kernel remembers and how fast it turns, in a sentence or two."""
        K = self.impulse_response().tolist()
        if self.taps:
            return words.of_taps(self.taps, K)
        decays = self.system()[0].tolist()
        return words.of_poles(self.poles, decays, self.step, self.rule, K)

    def still(self) -> Drawing:
        """Poles, kernel, spectrum and map; signal, state and output."""
        return picture(self)

    @property
    def shows_untrained(self) -> bool:
        """Whether a kernel is shown, unchanged, that nobody trained."""
        shown = [getattr(self, name) for name in _SHAPE]
        given = [[one[name] for name in _SHAPE] for one in self._kernels[: self._given]]
        return self.untrained and shown in given

    def __repr__(self) -> str:
        return f"SignalLab: {self.description()}"

    @property
    def _u(self) -> Tensor:
        return torch.tensor(self.signal, dtype=torch.float64)

    # What may be set

    @traitlets.validate("signal")
    def _some_numbers(self, proposal: Any) -> list[float]:
        return as_trait_error(_signal, proposal["value"])

    @traitlets.observe("signal")
    def _keep_token(self, _change: Any) -> None:
        self.token = min(self.token, len(self.signal) - 1)

    @traitlets.validate("poles", "weights")
    def _as_many_as_before(self, proposal: Any) -> list[list[float]]:
        name = proposal["trait"].name
        found = as_trait_error(_poles if name == "poles" else _weights, proposal["value"])
        others = len(self.weights if name == "poles" else self.poles)
        if len(found) != others:
            raise traitlets.TraitError(
                f"`{name}` should hold {others} numbers, as many as there are "
                f"{'weights' if name == 'poles' else 'poles'}, got {len(found)}; make another "
                "SignalLab for another number of poles"
            )
        return found

    @traitlets.validate("step")
    def _a_step(self, proposal: Any) -> float:
        return as_trait_error(_step, proposal["value"])

    @traitlets.validate("skip")
    def _a_skip(self, proposal: Any) -> float:
        return as_trait_error(_skip, proposal["value"])

    @traitlets.validate("taps")
    def _some_taps(self, proposal: Any) -> list[float]:
        value = proposal["value"]
        return [] if isinstance(value, list | tuple) and not value else as_trait_error(_taps, value)

    @traitlets.validate("token")
    def _a_token(self, proposal: Any) -> int:
        return as_trait_error(_place, proposal["value"], len(self.signal))


def _signal(signal: Any) -> list[float]:
    return _near("signal", numbers("signal", signal, "n").tolist(), LEAST_TOKENS)


def _taps(taps: Any) -> list[float]:
    return _near("taps", numbers("taps", taps, "m").tolist(), 1)


def _near(name: str, found: list[float], least: int) -> list[float]:
    if not least <= len(found) <= MOST_TOKENS:
        raise ValueError(f"`{name}` should be {least} to {MOST_TOKENS} numbers, got {len(found)}")
    if max(map(abs, found)) > LARGEST:
        raise ValueError(f"`{name}` has numbers beyond ±{LARGEST:g}; make them smaller")
    return found


def _poles(poles: Any) -> list[list[float]]:
    found = _pairs("poles", poles)
    state_space.discretised(_complex(found), _step_of(1.0))  # refuses what would grow
    return found


def _weights(weights: Any) -> list[list[float]]:
    return _pairs("weights", weights)


def _pairs(name: str, given: Any) -> list[list[float]]:
    """Complex numbers (r,), or pairs (r, 2)."""
    tensor = _as_complex(given)
    array = numbers(name, given if tensor is None else torch.view_as_real(tensor), "r 2")
    if array.shape[1] != 2 or len(array) > MOST_POLES:
        raise ValueError(
            f"`{name}` should be 1 to {MOST_POLES} complex numbers, or pairs (r, 2) of real and "
            f"imaginary parts, got {array.shape}"
        )
    found: list[list[float]] = array.tolist()
    if max(abs(part) for one in found for part in one) > LARGEST_POLE:
        raise ValueError(f"`{name}` has parts beyond ±{LARGEST_POLE:g}; make them smaller")
    return found


def _as_complex(given: Any) -> Tensor | None:
    """What is given as a tensor, if it holds complex numbers."""
    if isinstance(given, list | tuple) and any(isinstance(one, complex) for one in given):
        given = np.array(given)
    if isinstance(given, np.ndarray) and np.iscomplexobj(given):
        given = torch.from_numpy(given)
    if not isinstance(given, Tensor) or not given.is_complex():
        return None
    return given.detach().cpu().resolve_conj().to(torch.complex128)


def _complex(pairs: list[list[float]]) -> Tensor:
    return torch.view_as_complex(torch.tensor(pairs, dtype=torch.float64))


def _step_of(step: float) -> Tensor:
    return torch.tensor(step, dtype=torch.float64)


def _step(step: Any) -> float:
    found = check_number("step", step)
    if not LEAST_STEP <= found <= LARGEST_STEP:
        raise ValueError(f"`step` should be {LEAST_STEP:g} to {LARGEST_STEP:g}, got {found:g}")
    return found


def _skip(skip: Any) -> float:
    return _near("skip", [check_number("skip", skip)], 1)[0]


def _place(token: Any, n: int) -> int:
    found = check_integer("`token`", token)
    if not 0 <= found < n:
        raise ValueError(f"`token` should be 0 to {n - 1} here, got {found}")
    return found


def _kernels(kernel: Any, known: list[presets.Kernel]) -> list[presets.Kernel]:
    """One by name, or those that are given."""
    if isinstance(kernel, str):
        return [choose("kernel", kernel, {one["name"]: one for one in known})]
    if isinstance(kernel, nn.Module):
        return [_checked(one) for one in presets.of_layer(kernel, MOST_KERNELS)]
    if _as_complex(kernel) is not None:
        poles = _complex(_poles(kernel))
        state = presets.of_poles(poles, torch.ones_like(poles))
        return [{"name": "as given", **state, "try": known[0]["try"]}]
    items = check_list("kernel", kernel)
    several = getattr(kernel, "ndim", 1 + any(hasattr(one, "__len__") for one in items)) > 1
    rows = numbers("kernel", kernel, "count m" if several else "m").tolist()
    states = [
        presets.of_taps(torch.tensor(_near("kernel", row, 1), dtype=torch.float64))
        for row in (rows[:MOST_KERNELS] if several else [rows])
    ]
    return [
        {"name": f"kernel {at}" if several else "as given", **state, "try": known[-1]["try"]}
        for at, state in enumerate(states)
    ]


def _checked(kernel: presets.Kernel) -> presets.Kernel:
    if kernel["taps"]:
        _taps(kernel["taps"])
    else:
        _poles(kernel["poles"])
        _step(kernel["step"])
    return kernel
