from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.random.fork_rng():
        yield


@pytest.fixture
def attend() -> Callable[..., tuple[Tensor, Tensor]]:
    """The equation in float64, written once more and independently: (weights, out)."""

    def run(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        allowed: Tensor | None,
        scale: float,
        bias: Tensor | float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (t.detach().double() for t in (q, k, v))
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
        powers = torch.exp(torch.einsum("bhnd,bhmd->bhnm", q, k) * scale + bias)
        if allowed is not None:
            powers = powers * allowed
        weights = powers / powers.sum(-1, keepdim=True).clamp_min(1e-300)
        return weights, torch.einsum("bhnm,bhme->bhne", weights, v)

    return run


@pytest.fixture
def untouched() -> Callable[[nn.Module], object]:
    """A photograph of everything a watcher could leave on a model or in torch."""
    from torch.nn.modules import module as hooks
    from torch.overrides import _get_current_function_mode_stack

    def picture(model: nn.Module) -> object:
        return (
            [
                (name, sorted(vars(part)), len(part._forward_hooks), len(part._forward_pre_hooks))
                for name, part in model.named_modules()
            ],
            len(hooks._global_forward_hooks),
            len(hooks._global_forward_pre_hooks),
            len(hooks._global_forward_hooks_always_called),
            len(hooks._global_forward_hooks_with_kwargs),
            len(_get_current_function_mode_stack()),
            torch.backends.mha.get_fastpath_enabled(),
        )

    return picture
