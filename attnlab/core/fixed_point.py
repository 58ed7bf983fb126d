"""Fixed points z = f(z): when one counts as found, and two ways to look for it."""

import math
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from attnlab.core.options import Options, Size

Step: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class SolverOptions(Options):
    """When a fixed point counts as found, and how it is sought.

    tolerance: the largest norm of f(z) − z beside that of f(z), of every sequence.
    most_steps: the number of steps after which it is an error that no fixed point was found.
    window: how many differences of past steps Anderson's acceleration mixes.
    inexact: go on with the last step where the solver has not converged, with a warning.
    """

    tolerance: float = 1e-3
    most_steps: Size = 100
    window: Size = 1
    inexact: bool = False

    def check(self) -> None:
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance should be between 0 and 1, got {self.tolerance}")


class NoFixedPointError(ValueError):
    """The solver has not converged; the message gives the residual and what may help."""


class NotExactWarning(UserWarning):
    """The solver has not converged, and ``inexact`` lets it go on; the message has the residual."""


def iterated(f: Step, z: Tensor, options: SolverOptions) -> Tensor:
    """The fixed point of f, by applying f again and again from z."""
    for _ in range(options.most_steps):
        new = f(z)
        residual = residuals(new, new - z)
        if (residual <= options.tolerance).all():
            return new
        z = new
    return _not_found(z, residual, options)


def anderson(f: Step, z: Tensor, options: SolverOptions) -> Tensor:
    """The fixed point of f, by Anderson's acceleration from z.

    Of r = f(z) − z and f(z), the differences of past steps are mixed so that the norm of r would be
    least if f were linear. Each vector along the last axis has a mixing of its own. Where a mixture
    is worse than what it was mixed from, it is dropped for f alone. Each sequence has the result of
    the step at which its residual was small enough, whatever others need.
    """
    past: deque[tuple[Tensor, Tensor]] = deque(maxlen=options.window)
    result = plain = old = z
    bound = torch.full(z.shape[:1], math.inf, device=z.device)
    running = torch.ones_like(bound, dtype=torch.bool)
    for step in range(options.most_steps):
        new = f(z)
        r = new - z
        residual = residuals(new, r)
        result = new if running.all() else torch.where(running[:, None, None], new, result)
        running &= ~(residual <= options.tolerance)
        if not running.any():
            return result
        if step:
            past.append((r - old, new - plain))
        worse = residual > bound
        z = torch.where(worse[:, None, None], plain, new - mixed(r, past))
        bound = residual.masked_fill(worse, math.inf) if past else bound
        plain, old = new, r
        if len(past) == options.window:  # not kept while f runs, as the next one replaces it
            past.popleft()
        del new, r
    return _not_found(result, residual[running], options)


def mixed(r: Tensor, past: Sequence[tuple[Tensor, Tensor]]) -> Tensor | float:
    """Σ γᵢ Δfᵢ with the γ that make ‖r − Σ γᵢ Δrᵢ‖ least."""
    if not past:
        return 0.0
    wide = torch.promote_types(r.dtype, torch.float32)
    differences = [dr.to(wide) for dr, _ in past]
    gram = torch.stack(
        [torch.stack([(a * b).sum(-1) for b in differences], -1) for a in differences], -2
    )
    right = torch.stack([(a * r).sum(-1) for a in differences], -1)
    finfo = torch.finfo(wide)  # where the differences tell nothing, γ = 0: a step without mixing
    least = 10 * finfo.eps * gram.diagonal(dim1=-2, dim2=-1).sum(-1) + finfo.tiny
    gram.diagonal(dim1=-2, dim2=-1).add_(least[..., None])
    gamma = torch.linalg.solve(gram, right).to(r.dtype)
    return sum(gamma[..., i, None] * df for i, (_, df) in enumerate(past))


def residuals(new: Tensor, r: Tensor) -> Tensor:
    """The norm of r beside that of f(z), of each sequence."""
    wide = torch.promote_types(new.dtype, torch.float32)
    top, bottom = (each.detach().to(wide).flatten(1).norm(dim=1) for each in (r, new))
    return top / (bottom + torch.finfo(wide).tiny)


def _not_found(last: Tensor, left: Tensor, options: SolverOptions) -> Tensor:
    """The last step where that is enough, with a warning; else an error."""
    residual = left.max().item()
    found = (
        f"the layers have reached no fixed point: after {options.most_steps} steps the relative "
        f"residual is {residual:.2g}, and tolerance is {options.tolerance:g}"
    )
    if options.inexact and math.isfinite(residual):
        warnings.warn(f"{found}. The gradient is not exact.", NotExactWarning, stacklevel=2)
        return last
    raise NoFixedPointError(
        f"{found}; give more most_steps or a larger tolerance; if that does not help, the layers "
        "do not contract: train with a lower learning rate, take inexact=True to go on with the "
        "last step, or take depth='shared', which has a fixed number of steps"
    )
