r"""Scaling laws: the loss of a size and a number of tokens, fitted to trainings or as published.

A law has a floor, which no model goes below, and a term for each quantity that falls as a power:

$$L(x_1, \dots, x_K) = E + \sum_k A_k\, x_k^{-\alpha_k}$$

Hoffmann and others have two, the parameters N and the tokens D; with one, the compute C, it is the
curve of a budget. Given C = 6 N D FLOPs, the best of two terms is

$$N_{best} = G \left(\frac C 6\right)^{\frac{\beta}{\alpha + \beta}}, \qquad
  D_{best} = \frac{C}{6 N_{best}}, \qquad
  G = \left(\frac{\alpha A}{\beta B}\right)^{\frac{1}{\alpha + \beta}}$$

``fit_law`` minimises Huber's loss of the logarithms, as Hoffmann and others do, from several
starts: one training that failed moves it little, and it has no step where E passes a measured loss.
A straight line through logarithms would leave the floor out, and find a power that is too small.

The intervals are from resampled residuals (the bootstrap): the differences of the logarithms from
the law, enlarged for the parameters that were fitted, are drawn again and added to it. They hold
chance, not a law of another form: beyond the sizes that were trained, only a training can say.

``HOFFMANN`` and ``KAPLAN`` are the published ones, in nats per token of their own texts and their
own vocabularies. Kaplan's N leaves the embeddings out; its loss has no floor,

$$L(N, D) = \left[\left(\frac{N_c}{N}\right)^{\alpha_N / \alpha_D} + \frac{D_c}{D}
  \right]^{\alpha_D}$$

Kaplan, McCandlish, Henighan, Brown, Chess, Child, Gray, Radford, Wu, Amodei. Scaling Laws for
Neural Language Models. 2020, arXiv:2001.08361, equation 1.5, section 6 and appendix A. Hoffmann,
Borgeaud, Mensch, and others. Training Compute-Optimal Large Language Models. NeurIPS 2022,
arXiv:2203.15556, equations 2 to 4 and 10.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attnlab.core.integers import check_integer
from attnlab.core.options import check_value

Array = np.ndarray[Any, np.dtype[np.float64]]

DELTA = 1e-3
"""Where Huber's loss of the logarithms passes from squares to absolute values (Hoffmann et al.)."""

PETAFLOP_DAY = 1e15 * 24 * 3600
"""FLOPs of a petaflop/s-day, in which Kaplan and others give compute."""

# ---- laws


@dataclass(frozen=True)
class Law:
    """E + Σ A x^-α: ``floor`` is E; ``factors`` and ``exponents`` have a number for each term."""

    floor: float
    factors: tuple[float, ...]
    exponents: tuple[float, ...]

    def loss(self, *x: float) -> float:
        """The loss at one value above 0 for each term, such as ``loss(parameters, tokens)``."""
        _check_inputs(x, len(self.factors))
        terms = zip(self.factors, self.exponents, x, strict=True)
        return self.floor + sum(A * value**-alpha for A, alpha, value in terms)

    def best(self, flops: float) -> tuple[float, float]:
        """The parameters and the tokens of the least loss at 6 N D FLOPs."""
        if len(self.factors) != 2:
            raise ValueError(
                "a budget is shared between parameters and tokens, and this law has "
                f"{len(self.factors)} term{'s' * (len(self.factors) != 1)} in the place of two"
            )
        (flops,) = _check_inputs((flops,), 1)
        (A, B), (alpha, beta) = self.factors, self.exponents
        parameters = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
        parameters *= (flops / 6) ** (beta / (alpha + beta))
        return parameters, flops / (6 * parameters)

    def __str__(self) -> str:
        terms = zip(self.factors, self.exponents, strict=True)
        return " + ".join([f"{self.floor:.3f}", *(f"{A:.4g} x^-{alpha:.3f}" for A, alpha in terms)])


HOFFMANN = Law(1.69, (406.4, 410.7), (0.34, 0.28))
"""Of parameters and tokens: Hoffmann et al., equation 10."""


@dataclass(frozen=True)
class Kaplan:
    """Kaplan's law of parameters without embeddings and tokens; it has no floor."""

    parameters: float = 6.4e13
    tokens: float = 1.8e13
    alpha_parameters: float = 0.076
    alpha_tokens: float = 0.103

    def loss(self, parameters: float, tokens: float) -> float:
        """Equation 1.5."""
        N, D = _check_inputs((parameters, tokens), 2)
        ratio = self.alpha_parameters / self.alpha_tokens
        return float(((self.parameters / N) ** ratio + self.tokens / D) ** self.alpha_tokens)

    def best(self, flops: float) -> tuple[float, float]:
        """The parameters and the tokens of the least loss for a compute in FLOPs, each by a power
        law of its own: appendix A. Their product is not flops / 6, as its compute is that of
        training at a batch size far below the critical one."""
        (flops,) = _check_inputs((flops,), 1)
        days = flops / PETAFLOP_DAY
        return 1.3e9 * days**0.73, 2e10 * days**0.27


KAPLAN = Kaplan()


def _check_inputs(x: Sequence[float], terms: int) -> tuple[float, ...]:
    if len(x) != terms:
        raise ValueError(f"this law takes {terms} value{'s' * (terms != 1)}, got {len(x)}")
    values = tuple(check_value("each value of a law", value, float) for value in x)
    if min(values) <= 0:
        raise ValueError(f"each value of a law should be above 0, got {min(values)!r}")
    return values


# ---- fit


@dataclass(frozen=True)
class LawFit:
    """A fitted ``law``, and the laws that resampled residuals give.

    scatter: the standard deviation of the logarithms about the law, of as many trainings as are
        left after its parameters.
    """

    law: Law
    level: float
    scatter: float
    drawn: tuple[Law, ...]
    residuals: tuple[float, ...]
    seed: int

    def interval(self, part: str, term: int = 0) -> tuple[float, float]:
        """The interval of the "floor", or of the "factor" or the "exponent" of a term."""
        if part not in ("floor", "factor", "exponent"):
            raise ValueError(f"part should be 'floor', 'factor' or 'exponent', got {part!r}")
        term = check_integer("term", term, at_least=0)
        if term >= len(self.law.factors):
            raise ValueError(f"term should be below {len(self.law.factors)}, got {term}")
        found = {
            "floor": [law.floor for law in self.drawn],
            "factor": [law.factors[term] for law in self.drawn],
            "exponent": [law.exponents[term] for law in self.drawn],
        }
        return self._between(found[part])

    def band(self, *x: float) -> tuple[float, float]:
        """The interval in which the loss of one more training at x is expected."""
        self.law.loss(*x)
        noise = np.random.default_rng(self.seed).choice(self.residuals, len(self.drawn))
        pairs = zip(self.drawn, noise, strict=True)
        return self._between([law.loss(*x) * math.exp(each) for law, each in pairs])

    def _between(self, values: Sequence[float]) -> tuple[float, float]:
        tail = (1 - self.level) / 2
        low, high = np.quantile(values, (tail, 1 - tail))
        return float(low), float(high)


def fit_law(
    inputs: Sequence[Sequence[float]], losses: Sequence[float], *,
    level: float = 0.95, draws: int = 200, seed: int = 0, delta: float = DELTA,
) -> LawFit:  # fmt: skip
    """The law with a floor that ``losses`` follow, one for each training.

    inputs: for each term the values of all trainings, such as ``(parameters, tokens)``. Seeds are
        trainings of equal values.

    Raises ValueError in a sentence where no law can be found: fewer different trainings than the
    law has parameters, an input with fewer than three values, losses that do not fall.
    """
    level = check_value("level", level, float)
    if not 0 < level < 1:
        raise ValueError(f"level should lie between 0 and 1, such as 0.95, got {level!r}")
    draws = check_integer("draws", draws, at_least=1)
    delta = check_value("delta", delta, float)
    if delta <= 0:
        raise ValueError(f"delta should be above 0, got {delta!r}")
    x, y = _checked(inputs, losses)
    starts = _starts(x, y)
    found, costs = _descend(starts, np.tile(y, (len(starts), 1)), x, delta)
    order = np.argsort(costs)
    best = found[order[0]]
    residuals = y - _logs(best[None], x)[0][0]
    freedom = len(y) - len(best)
    scatter = math.sqrt(float(residuals @ residuals) / freedom) if freedom else math.inf
    wider = (residuals - residuals.mean()) * math.sqrt(len(y) / max(1, freedom))
    chance = np.random.default_rng(seed)
    again = (y - residuals) + chance.choice(wider, (draws, len(y)))
    tried = np.concatenate([found[order[:1]], found[order[1:2]], starts[order[:2]]])
    many, values = _descend(np.repeat(tried, draws, 0), np.tile(again, (len(tried), 1)), x, delta)
    chosen = values.reshape(len(tried), draws).argmin(0) * draws + np.arange(draws)
    laws = tuple(_law(each) for each in many[chosen])
    return LawFit(_law(best), level, scatter, laws, tuple(map(float, wider)), seed + 1)


def _checked(inputs: Any, losses: Any) -> tuple[Array, Array]:
    """The logarithms of the inputs (K, r) and of the losses (r,), of r trainings."""
    try:
        x, y = np.atleast_2d(np.asarray(inputs, dtype=float)), np.asarray(losses, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(
            "inputs are lists of numbers of one length, one list for each term of the law, and "
            "losses a list of numbers"
        ) from None
    if x.ndim != 2 or y.shape != x.shape[1:]:
        raise ValueError(
            "each input needs one value for each loss, got inputs of shape "
            f"{x.shape} and losses of shape {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y > 0).all()):
        raise ValueError("inputs and losses should be finite numbers above 0")
    different, parameters = len({*zip(*x.tolist(), strict=True)}), 1 + 2 * len(x)
    if different < parameters:
        raise ValueError(
            f"a law of {len(x)} term{'s' * (len(x) != 1)} has {parameters} parameters, and "
            f"{different} different sizes cannot tell them; train at least {parameters}"
        )
    for number, own in enumerate(x):
        values = np.unique(own)
        if len(values) < 3:
            raise ValueError(
                f"input {number} has {len(values)} different values; a power and a floor need "
                "at least three"
            )
        small, large = (float(y[own == end].mean()) for end in (values[0], values[-1]))
        if large >= small:
            raise ValueError(
                f"the losses do not fall with input {number}: {small:.4g} in the mean at its "
                f"smallest value and {large:.4g} at its largest, so there is no power to fit"
            )
    return np.log(x), np.log(y)


def _starts(x: Array, y: Array) -> Array:
    """(starts, 1 + 2 K): log E, log A and log α of each term."""
    made = []
    least, middle = math.exp(y.min()), math.exp(float(y.mean()))
    for share, *alphas in itertools.product((0.2, 0.6, 0.9), *[(0.1, 0.3, 0.8)] * len(x)):
        part = (middle - share * least) / len(x)
        terms = [math.log(part) + a * float(own.mean()) for a, own in zip(alphas, x, strict=True)]
        made.append([math.log(share * least), *terms, *map(math.log, alphas)])
    return np.asarray(made)


def _logs(theta: Array, x: Array) -> tuple[Array, Array]:
    """The logarithms of the law (s, r) for s sets of parameters, and the shares of its parts
    (s, r, 1 + K)."""
    k = len(x)
    powers = theta[:, None, 1 : k + 1] - np.exp(theta[:, None, k + 1 :]) * x.T[None]
    parts = np.concatenate([np.broadcast_to(theta[:, None, :1], (*powers.shape[:2], 1)), powers], 2)
    top = parts.max(2, keepdims=True)
    total = top[..., 0] + np.log(np.exp(parts - top).sum(2))
    return total, np.exp(parts - total[..., None])


def _descend(
    theta: Float[Array, "s p"], y: Float[Array, "s r"], x: Float[Array, "k r"], delta: float,
    steps: int = 150,
) -> tuple[Array, Array]:  # fmt: skip
    """Levenberg's and Marquardt's descent of s fits at once: parameters, and Huber's loss of each.

    Far residuals count by δ / |residual|, which makes the least squares Huber's.
    """
    k, damping = len(x), np.full(len(theta), 1e-2)
    low = np.concatenate([[-20.0], np.full(k, -30.0), np.full(k, math.log(1e-3))])
    high = np.concatenate([[20.0], np.full(k, 300.0), np.full(k, math.log(10.0))])
    cost = _huber(y - _logs(theta, x)[0], delta)
    for _ in range(steps):
        logs, shares = _logs(theta, x)
        left = y - logs
        slopes = np.concatenate(
            [shares, -shares[..., 1:] * np.exp(theta[:, None, k + 1 :]) * x.T[None]], 2
        )
        weights = np.minimum(1, delta / np.maximum(np.abs(left), 1e-300))[..., None]
        normal = slopes.transpose(0, 2, 1) @ (weights * slopes)
        scale = np.einsum("spp->sp", normal)
        normal = normal + (damping[:, None] * (scale + 1e-12))[..., None] * np.eye(theta.shape[1])
        pull = (slopes * weights * left[..., None]).sum(1)
        tried = np.clip(theta + np.linalg.solve(normal, pull[..., None])[..., 0], low, high)
        value = _huber(y - _logs(tried, x)[0], delta)
        better = value < cost
        theta, cost = np.where(better[:, None], tried, theta), np.where(better, value, cost)
        damping = np.clip(np.where(better, damping / 4, damping * 4), 1e-9, 1e9)
    return theta, cost


def _huber(left: Array, delta: float) -> Array:
    """Summed over the last axis, divided by δ."""
    far = np.abs(left)
    found: Array = np.where(far < delta, far**2 / (2 * delta), far - delta / 2).sum(-1)
    return found


def _law(theta: Array) -> Law:
    k = len(theta) // 2
    values = np.exp(theta)
    factors, exponents = values[1 : k + 1].tolist(), values[k + 1 :].tolist()
    return Law(float(values[0]), tuple(factors), tuple(exponents))
