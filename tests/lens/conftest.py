from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.tiny import TinyTransformer


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


PLANTED_TOKENS, PLANTED_LONGEST, PLANTED_GAIN = 7, 13, 5.0


@pytest.fixture
def planted() -> TinyTransformer:
    """An induction circuit by hand: a two-layer model whose head 0.0 writes into each token which
    one stood before it, and whose head 1.1 looks for tokens that stood after the query's own token
    and answers with them.

    Token 0 stands first in a text and nowhere else. Head 0.1 writes where nobody reads, head 1.0
    writes the mean of all tokens so far into the answer, faintly.
    """
    count, longest = PLANTED_TOKENS, PLANTED_LONGEST
    sizes = [count, longest, count, count]
    token, place, before, answer = torch.eye(sum(sizes)).split(sizes)
    model = TinyTransformer(
        count, dim=sum(sizes), layers=2, heads=2, max_len=longest, tie=False, hidden=3,
        join_options={"norm": "no_norm"},
    )  # fmt: skip
    first, second = (block.attention.heads for block in model.decoder.blocks)
    width, sharp = first.head_dim, 40.0
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.zero_() if parameter.dim() > 1 else None
        model.embedding.weight.copy_(token)
        model.positions.weight.copy_(place)
        model.output.weight.copy_(PLANTED_GAIN * answer)
        first.query.weight[: longest - 1] = sharp * place[1:]  # head 0.0: one place before
        first.key.weight[: longest - 1] = sharp * place[:-1]
        first.value.weight[:count] = token
        first.output.weight[:, :count] = before.T
        first.value.weight[width : width + count] = token  # head 0.1: nobody reads its place
        first.output.weight[:, width : width + count] = place[:count].T
        second.value.weight[:count] = token  # head 1.0: all tokens alike
        second.output.weight[:, :count] = 0.1 * answer.T
        second.query.weight[width : width + count] = sharp * token  # head 1.1: what came after
        second.key.weight[width : width + count] = sharp * before
        second.value.weight[width : width + count] = token
        second.output.weight[:, width : width + count] = answer.T
    return model.eval()
