r"""Equilibrium: the same layers again and again, until the stream does not change any more.

Let $g(z)$ be what the layers add to a stream $z$ in one pass, and $x$ the normalised input, which
is given to every pass. The output is the stream that the layers leave as it is:

$$z^* = f(z^*; x),\qquad f(z; x) = x + g(z)$$

It is what infinitely many layers with the same weights would give. How it is found does not
matter, and neither does where the search began if f contracts, so the forward pass keeps nothing
of its steps. Nor does the backward pass: with $J = \partial f / \partial z$ at $z^*$, the gradient
of the loss with respect to the weights θ follows from the equation itself,

$$\frac{\partial \ell}{\partial\theta} = y\,\frac{\partial f}{\partial\theta},\qquad
y = \frac{\partial \ell}{\partial z^*}(I - J)^{-1},\qquad\text{so that}\quad
y = y J + \frac{\partial \ell}{\partial z^*},$$

another fixed point, whose steps are vector-Jacobian products of one pass. What is kept is $z^*$,
whatever the number of steps; inside the backward pass one pass of the layers is kept.

Both are solved by Anderson's acceleration (``anderson``), up to ``tolerance``. Each token has
its own mixing of past steps, so no token is told of later ones and causality is kept; only the
number of steps is that of all tokens together. If f does not contract there may be no fixed point.
A solver that has not converged is an error with its residual, never a gradient.

``naive``     the layers again and again, every pass kept for the backward pass.
``implicit``  Anderson's acceleration, and the gradient by the second fixed point.

Common mistakes: a backward pass through the last step alone, which takes $y = \partial \ell /
\partial z^*$; dropout that draws another mask in each step, so that there is no fixed point (here
a solve has one mask); layers that add much to a stream of small embeddings, which then do not
contract (this is why x is normalised).

Departures.
- Anderson's acceleration in the place of Broyden's method, as in the authors' later work
- the input is added to the stream of a pre-norm layer, where the authors add a projection of it to
  queries, keys and values of a post-norm layer
- dropout draws one mask for each pass of the layers, where the authors share it over positions too

Bai, Kolter, Koltun. Deep Equilibrium Models. NeurIPS 2019, arXiv:1909.01377, section 3. Walker, Ni,
Anderson Acceleration for Fixed-Point Iterations, SIAM Journal on Numerical Analysis 2011.
"""

import math
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from attnlab.core.branches import Layer, used
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.replay import Settings

Step: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Solver(Options):
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


# ---- forms


def naive(x: Tensor, layers: Sequence[Layer], options: Solver = Solver()) -> Tensor:
    """z ← x + g(z) until nothing changes, everything kept."""
    x = F.layer_norm(x, x.shape[-1:])
    return iterated(lambda z: x + added(z, layers), x, options)


def implicit(x: Tensor, layers: Sequence[Layer], options: Solver = Solver()) -> Tensor:
    """``naive`` by Anderson's acceleration; the gradient from the fixed point alone."""
    x = F.layer_norm(x, x.shape[-1:])
    branches = [branch for layer in layers for branch in layer.branches]
    out: Tensor = _Equilibrium.apply(layers, options, x, *used(branches).values())
    return out


FORMS = {"naive": naive, "implicit": implicit}


def added(z: Tensor, layers: Sequence[Layer]) -> Tensor:
    """g(z): the sum of what the branches of the layers add."""
    total: Any = 0
    for layer in layers:
        for branch in layer.branches:
            out = branch.run(z)
            z, total = z + out, total + out
    return total


class _Equilibrium(torch.autograd.Function):
    """z* = x + g(z*), and the gradient by y = y J + ∂ℓ/∂z*."""

    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[Layer], options: Solver, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.layers, ctx.options, ctx.settings = layers, options, Settings.now(x)

        again = iter([nullcontext()])  # the first step moves the generators on

        def step(z: Tensor) -> Tensor:
            with next(again, None) or ctx.settings.again():  # one dropout mask for all steps
                new = note("states", x + added(z, layers))
            note("residual", lambda: _residuals(new, new - z))
            return new

        z = anderson(step, x, options)
        ctx.save_for_backward(z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        own = list(used([branch for layer in ctx.layers for branch in layer.branches]).values())
        with torch.enable_grad(), ctx.settings.again():
            z = ctx.saved_tensors[0].detach().requires_grad_()
            out = added(z, ctx.layers)

        def step(y: Tensor) -> Tensor:
            return torch.autograd.grad(out, z, y, retain_graph=True)[0] + grad

        y = anderson(step, grad, ctx.options)
        of_own = torch.autograd.grad(out, own, y, allow_unused=True, materialize_grads=True)
        return None, None, y, *of_own


# ---- solvers


def iterated(f: Step, z: Tensor, options: Solver) -> Tensor:
    """The fixed point of f, by applying f again and again from z."""
    for _ in range(options.most_steps):
        new = f(z)
        residual = _residuals(new, new - z)
        if (residual <= options.tolerance).all():
            return new
        z = new
    return _not_found(z, residual, options)


def anderson(f: Step, z: Tensor, options: Solver) -> Tensor:
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
        residual = _residuals(new, r)
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


def _residuals(new: Tensor, r: Tensor) -> Tensor:
    """The norm of r beside that of f(z), of each sequence."""
    wide = torch.promote_types(new.dtype, torch.float32)
    top, bottom = (each.detach().to(wide).flatten(1).norm(dim=1) for each in (r, new))
    return top / (bottom + torch.finfo(wide).tiny)


def _not_found(last: Tensor, residuals: Tensor, options: Solver) -> Tensor:
    """The last step where that is enough, with a warning; else an error."""
    residual = residuals.max().item()
    found = (
        f"the layers have reached no fixed point: after {options.most_steps} steps the relative "
        f"residual is {residual:.2g}, and tolerance is {options.tolerance:g}. "
    )
    if options.inexact and math.isfinite(residual):
        warnings.warn(f"{found}The gradient is not exact.", NotExactWarning, stacklevel=2)
        return last
    raise NoFixedPointError(
        f"{found}Give more most_steps or a larger tolerance. If that does not help, the layers do "
        "not contract: train with a lower learning rate, take inexact=True to go on with the last "
        "step, or take depth='shared', which has a fixed number of steps"
    )


# ---- module


class Equilibrium(Way):
    """The fixed point of all layers of a stack together; one layer is enough."""

    reads_branches = True

    def __init__(self, options: Solver = Solver()) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return str(self.options)

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        return implicit(x, layers, self.options)

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """The same where the layers carry a state on: each step reads on from the same state, and
        the state after the last one stays."""
        x = F.layer_norm(x, x.shape[-1:])
        held = [(layer, layer.state) for layer in layers if hasattr(layer, "state")]

        def step(z: Tensor) -> Tensor:
            for layer, state in held:
                layer.state = state
            return x + added(z, layers)

        return anderson(step, x, self.options)


# ---- card

L, x, p = letters("L x p")

CARD = Card(
    __doc__,
    name="equilibrium",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=2 * x, parameters=L * p, equals="a fixed point of the layers"),
    options=Solver,
    build=Equilibrium,
    notes={"implicit": ("states", "residual")},
    variants=({"tolerance": 1e-12, "most_steps": 1000},),
    aliases=("deq", "deep_equilibrium"),
    demo="""
    >>> def sizes(layers):  # elements that the forward pass keeps
    ...     found = []
    ...     given = {"dim": 32, "layers": layers, "depth": "equilibrium"}
    ...     model = attnlab.TinyTransformer(50, **given)
    ...     keep = lambda saved: found.append(saved.numel()) or saved
    ...     with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
    ...         model(torch.arange(20)[None])
    ...     return sum(found)
    >>> sizes(3) == sizes(1)  # they do not grow with the layers
    True
    """,
)
