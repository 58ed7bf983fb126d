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
whatever the number of steps. Inside the backward pass one pass of the layers is kept: first without
what only the gradients of the weights need, while y is sought, and then once more with it.

Both are solved by Anderson's acceleration (``anderson``), up to ``tolerance``. Each token has
its own mixing of past steps, so no token is told of later ones and causality is kept; only the
number of steps is that of all tokens together. If f does not contract there may be no fixed point.
A solver that has not converged is an error with its residual, never a gradient.

So a training ends where it makes f expand. The penalty of Bai, Koltun and Kolter (2021) stands
against it: a weight γ times the mean squared norm of the rows of J, estimated with one random ε
(Hutchinson's estimate), is added to the loss,

$$\gamma\,\frac{\lVert \varepsilon J\rVert^2}{n\,\mathrm{dim}},\qquad
\varepsilon \sim \mathcal N(0, I),\qquad
\mathbb{E}\,\lVert\varepsilon J\rVert^2 = \lVert J\rVert_F^2$$

at $z^*$, through which no gradient goes. f contracts if the norm of J is below 1. The penalty
holds down a mean, not this norm, so it makes a fixed point likely and does not promise one: in
three trainings on bytes of text at a learning rate of 1e-2, which stopped after 9, 27 and 25 steps,
the first and the third went on to the end, 150 steps, with γ = 10; the second stopped sooner with
it, after 17, and went on with γ = 30. The penalty costs a pass of the layers, its backward pass and
the derivative of that in each step of the training.

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
- the penalty is part of every training step, where the authors add it to some, drawn at random

Bai, Kolter, Koltun. Deep Equilibrium Models. NeurIPS 2019, arXiv:1909.01377, section 3. Bai,
Koltun, Kolter. Stabilizing Equilibrium Models by Jacobian Regularization. ICML 2021,
arXiv:2106.14342. Walker, Ni. Anderson Acceleration for Fixed-Point Iterations. SIAM Journal on
Numerical Analysis 2011.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnlab.core.branches import Layer, used
from attnlab.core.card import Card, letters
from attnlab.core.charges import charge
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.fixed_point import SolverOptions, anderson, iterated, residuals
from attnlab.core.probe import note
from attnlab.core.replay import Settings

# ---- options


@dataclass(frozen=True, kw_only=True)
class EquilibriumOptions(SolverOptions):
    """penalty: weight γ of the Jacobian penalty while training; 0 leaves it out."""

    penalty: float = 0.0

    def check(self) -> None:
        super().check()
        if self.penalty < 0:
            raise ValueError(f"penalty should be at least 0, got {self.penalty}")


# ---- forms


def naive(x: Tensor, layers: Sequence[Layer], options: SolverOptions = SolverOptions()) -> Tensor:
    """z ← x + g(z) until nothing changes, everything kept."""
    x = F.layer_norm(x, x.shape[-1:])
    return iterated(lambda z: x + added(z, layers), x, options)


def implicit(
    x: Tensor, layers: Sequence[Layer], options: SolverOptions = SolverOptions()
) -> Tensor:
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


def jacobian(z: Tensor, layers: Sequence[Layer], noise: Tensor) -> Tensor:
    """‖ε J‖² / (b n dim) with ε = ``noise``, which can be differentiated.

    A ValueError for layers that define no second derivative.
    """
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the fast kernels define none
        z = z.detach().requires_grad_()
        out = added(z, layers)
        try:
            row = torch.autograd.grad(out, z, noise, create_graph=True)[0]
        except RuntimeError as error:
            raise ValueError(
                f"penalty needs layers that can be differentiated twice ({error}); leave the "
                "penalty out, or take other layers"
            ) from error
    return row.square().mean()


class _Equilibrium(torch.autograd.Function):
    """z* = x + g(z*), and the gradient by y = y J + ∂ℓ/∂z*."""

    @staticmethod
    def forward(
        ctx: Any, layers: Sequence[Layer], options: SolverOptions, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.layers, ctx.options, ctx.settings = layers, options, Settings.now(x)

        again = iter([nullcontext()])  # the first step moves the generators on

        def step(z: Tensor) -> Tensor:
            with next(again, None) or ctx.settings.again():  # one dropout mask for all steps
                new = note("states", x + added(z, layers))
            note("residual", lambda: residuals(new, new - z))
            return new

        z = anderson(step, x, options)
        ctx.save_for_backward(z)
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        forbid_double_backward("depth='equilibrium'")
        own = list(used([branch for layer in ctx.layers for branch in layer.branches]).values())
        z = ctx.saved_tensors[0].detach()
        y = _sought(z, grad, ctx, own)
        with torch.enable_grad(), ctx.settings.again():
            out = added(z, ctx.layers)
        of_own = torch.autograd.grad(out, own, y, allow_unused=True, materialize_grads=True)
        return None, None, y, *of_own


def _sought(z: Tensor, grad: Tensor, ctx: Any, own: Sequence[nn.Parameter]) -> Tensor:
    """The y of y = y J + grad. The pass that gives J is kept as long as this function runs."""
    with torch.enable_grad(), ctx.settings.again(), _constant(own):
        z = z.detach().requires_grad_()
        out = added(z, ctx.layers)

    def step(y: Tensor) -> Tensor:
        return torch.autograd.grad(out, z, y, retain_graph=True)[0] + grad

    return anderson(step, grad, ctx.options)


@contextmanager
def _constant(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Inside the block nothing is kept for the gradients of these parameters."""
    for each in parameters:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in parameters:
            each.requires_grad_()


# ---- module


class Equilibrium(Way):
    """The fixed point of all layers of a stack together; one layer is enough."""

    reads_branches = True

    def __init__(self, options: EquilibriumOptions = EquilibriumOptions()) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return str(self.options)

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        settings = Settings.now(x)
        z = implicit(x, layers, self.options)
        if self.training and self.options.penalty and torch.is_grad_enabled():
            noise = torch.randn_like(z)
            with settings.again():  # the dropout mask of the solve
                charge("jacobian", self.options.penalty * jacobian(z, layers, noise))
        return z

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """The form for layers that carry a state on: each step reads on from the same state, and
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
    options=EquilibriumOptions,
    build=Equilibrium,
    notes={"implicit": ("states", "residual")},
    variants=(
        {"tolerance": 1e-9, "penalty": 1.0},
        {"tolerance": 1e-12, "most_steps": 1000},
    ),
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
