r"""Which heads are needed: how much the loss changes, to first order, when one is silenced.

Each head gets a gate $\xi_h$, which is 1, before the output projection:

$$y = \sum_h \xi_h\, \mathrm{Att}_h(x)\, W_O^h + b_O,\qquad
  I_h = E_x \left| \frac{\partial L(x)}{\partial \xi_h} \right|
      = E_x \left| \mathrm{Att}_h(x)^\top \frac{\partial L(x)}{\partial \mathrm{Att}_h(x)} \right|$$

L(x) is the loss of one example x, summed over its targets. The absolute value stands inside the
mean: a head that lowers the loss of half of the examples as much as it raises that of the others is
needed, and its mean gradient is 0. ``normalised`` divides by the norm of the layer's importances,
so that layers of large gradients do not go before the others; it also hides the other heads of a
layer with one strong head.

``naive``    one example after the other, one backward pass for each.
``batched``  a gate for each example and head, so that one backward pass gives all gradients. The
             examples of a batch must not depend on each other.

The gradient is exact for a loss that is linear in the layer's output; ``one_by_one`` runs the model
without each head in turn, and ``alone`` with one head of a layer only. A gate of 0 is a removed
head: ``StructuredPruning(units="heads", cut=…)`` masks those of ``order`` and takes them out.

Common mistakes: the absolute value of a gradient that a batch has summed; gradients that are not
cleared between two batches, whose running sums are added; importance measured on the training
images, whose loss is nearly 0.

Michel, Levy, Neubig. Are Sixteen Heads Really Better than One? NeurIPS 2019, arXiv:1905.10650,
section 4.1.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.heads import Heads
from attnlab.core.modes import mode

Importance = dict[str, Tensor]
"""Name of an attention layer → (h,) the importance of its heads."""

Objective = Callable[..., tuple[Tensor, Any]]
"""``(model, batch, generator) -> (sum, count)``, such as ``attnlab.build("next_token")``."""

# ---- forms


def naive(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None = None
) -> Importance:
    """The mean over the examples of |∂L/∂ξ_h|, one example after the other."""
    layers = _checked(model, batch)
    total = {name: torch.zeros(()) for name in layers}
    with mode(model, training=False):
        for row in range(len(batch)):
            gates = {name: _gate(layer, 1) for name, layer in layers.items()}
            for name, found in _gradients(model, batch[row : row + 1], objective, generator, gates):
                total[name] = total[name] + found[0].abs() / len(batch)
    return total


def batched(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None = None
) -> Importance:
    """Computes all examples of the batch in one pass."""
    layers = _checked(model, batch)
    gates = {name: _gate(layer, len(batch)) for name, layer in layers.items()}
    with mode(model, training=False):
        found = _gradients(model, batch, objective, generator, gates)
        return {name: gradient.abs().mean(0) for name, gradient in found}


FORMS = {"naive": naive, "batched": batched}


def _checked(model: nn.Module, batch: Any) -> dict[str, Heads]:
    if not len(batch):
        raise ValueError("the importance of a head is a mean over examples; give at least one")
    return attention_layers(model)


def _gate(layer: Heads, rows: int) -> Tensor:
    home = layer.output.weight
    return torch.ones(rows, layer.heads, dtype=home.dtype, device=home.device, requires_grad=True)


def _gradients(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None,
    gates: Mapping[str, Tensor],
) -> Iterator[tuple[str, Tensor]]:  # fmt: skip
    """Name → ∂L/∂ξ, (b, h), of the summed loss of a batch."""
    with torch.enable_grad(), gated(model, gates):
        loss, _ = objective(model, batch, generator)
        found = torch.autograd.grad(loss, list(gates.values()), materialize_grads=True)
    if not all(each.isfinite().all() for each in found):
        raise ValueError(
            "the gradient at a gate is NaN or infinite, as the loss of this batch or a weight of "
            "the model is"
        )
    return zip(gates, found, strict=True)


# ---- gates


def attention_layers(model: nn.Module) -> dict[str, Heads]:
    """The layers with heads, by name, in the order of the model."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"the model with heads should be a module of PyTorch, got {reprlib.repr(model)}"
        )
    found = {
        name.removesuffix(".heads"): part
        for name, part in model.named_modules()
        if isinstance(part, Heads)
    }
    if not found:
        raise ValueError(f"{type(model).__name__} has no attention layer with heads")
    return found


@contextmanager
def gated(model: nn.Module, gates: Mapping[str, Tensor]) -> Iterator[None]:
    """While this context is open, what each head gives to the output projection is multiplied by
    its gate.

    gates: name of an attention layer → (h,), or (b, h) with a gate for each example and head.
    Raises ValueError where the model reads another number of rows than there are examples.
    """
    layers = attention_layers(model)

    def times(gate: Tensor) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x = given[0].unflatten(-1, (gate.shape[-1], -1))
            if gate.dim() == 2 and len(gate) not in (1, len(x)):
                raise ValueError(
                    f"the model reads {len(x)} rows of a batch of {len(gate)}, so there is no gate "
                    "for each example; take the form `naive`"
                )
            wide = gate[:, None, :, None] if gate.dim() == 2 else gate[:, None]
            return ((x * wide.to(x)).flatten(-2), *given[1:])

        return hook

    with ExitStack() as stack:
        for name, gate in gates.items():
            handle = layers[name].output.register_forward_pre_hook(times(gate))
            stack.callback(handle.remove)
        yield


# ---- what follows from it


def importance(
    model: nn.Module, batches: Iterable[Any], objective: Objective,
    generator: torch.Generator | None = None, *, form: str = "batched",
) -> Importance:  # fmt: skip
    """The importance of each head, (h,) for each layer, in the mean over the examples of several
    batches. objective: as of ``fit``; form: "naive" or "batched".

    Raises ValueError where there are no batches or no heads, and where a gradient is not finite.
    """
    total: Importance = {}
    rows = 0
    for batch in batches:
        for name, each in FORMS[form](model, batch, objective, generator).items():
            total[name] = total.get(name, torch.zeros_like(each)) + len(batch) * each
        rows += len(batch)
    if not rows:
        raise ValueError("the importance of a head is a mean over examples; give at least one")
    return {name: each / rows for name, each in total.items()}


def normalised(found: Importance) -> Importance:
    """Each layer's importances divided by their norm; zeros stay zeros."""
    return {
        n: each / each.norm().clamp_min(torch.finfo(each.dtype).tiny) for n, each in found.items()
    }


def order(found: Importance) -> list[tuple[int, int]]:
    """All heads as (layer, head), the least important first: those that go first."""
    each = [
        (size, (layer, head))
        for layer, sizes in enumerate(found.values())
        for head, size in enumerate(sizes.tolist())
    ]
    return [head for _, head in sorted(each)]


def one_by_one(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None = None
) -> Importance:
    """How much the mean loss of an example rises when one head is off: for each head, (h,)."""
    return _with_gates(model, batch, objective, generator, lambda h: 1 - torch.eye(h))


def alone(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None = None
) -> Importance:
    """How much the mean loss of an example rises when a layer has only one head, and the other
    layers have all of theirs: for each head, (h,)."""
    return _with_gates(model, batch, objective, generator, torch.eye)


@torch.no_grad()
def _with_gates(
    model: nn.Module, batch: Any, objective: Objective, generator: torch.Generator | None,
    rows: Callable[[int], Tensor],
) -> Importance:  # fmt: skip
    found = {}
    with mode(model, training=False):
        for name, layer in _checked(model, batch).items():
            home = layer.output.weight
            losses = []
            for gate in (torch.ones(layer.heads), *rows(layer.heads)):
                state = None if generator is None else generator.get_state()
                with gated(model, {name: gate.to(home)}):
                    losses.append(objective(model, batch, generator)[0])
                if generator is not None and state is not None:
                    generator.set_state(state)  # the same is hidden each time
            found[name] = (torch.stack(losses[1:]) - losses[0]) / len(batch)
    return found
