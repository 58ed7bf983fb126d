"""What layers promise that read in segments or blocks, written once for their mirror tests."""

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.core import segments_together
from attnlab.models.generate import generate
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task, task
from attnlab.train import fit

State = Any  # a NamedTuple of tensors
COPYING: Task = task("copying", items=6, symbols=5)  # 12 positions


def read(layer: nn.Module, x: Tensor, sizes: list[int]) -> tuple[Tensor, State]:
    """The outputs of all pieces, joined, and the last state."""
    parts, state = [], None
    for piece in x.split(sizes, dim=1):
        out, state = layer.step(piece, state)
        parts.append(out)
    return torch.cat(parts, dim=1), state


def a_cut_gives_the_same(layer: nn.Module, x: Tensor, sizes: list[int]) -> None:
    """Values and gradients, wherever the calls end."""
    x = x.requires_grad_()
    out, expected = read(layer, x, sizes)[0], layer(x)
    torch.testing.assert_close(out, expected)
    wanted = [x, *layer.parameters()]
    mine, theirs = (torch.autograd.grad(y.square().sum(), wanted) for y in (out, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def together_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, page: Any, layer: nn.Module, x: Tensor, room: int
) -> None:
    """Values and gradients, where a GPU reads segments with ``room`` scores in one call; ``page``
    is the module that asks whether it is on the CPU."""
    x, leaves = x.requires_grad_(), [x, *layer.parameters()]
    for padding in (torch.ones(x.shape[:2]) > 0, torch.rand(x.shape[:2]) > 0.4):
        found = []
        for on_cpu in (True, False):
            monkeypatch.setattr(page, "on_cpu", lambda x, on_cpu=on_cpu: on_cpu)
            monkeypatch.setattr(segments_together, "TOGETHER", room)
            out = layer(x, padding=padding) * padding[..., None]  # of padding it may be anything
            grads = torch.autograd.grad(out.square().sum(), leaves, materialize_grads=True)
            found.append([out, *grads])
        torch.testing.assert_close(*found)


def the_state_is_bounded_and_can_be_saved(layer: nn.Module, x: Tensor) -> State:
    """The state after 42 of the 60 tokens ``x``."""
    _, state = layer.step(x[:, :42])
    _, later = layer.step(x[:, 42:58], state)
    assert [part.shape for part in later] == [part.shape for part in state]
    file = io.BytesIO()
    torch.save(tuple(state), file)
    file.seek(0)
    loaded = type(state)(*torch.load(file, weights_only=True))
    once, again = (layer.step(x[:, 42:], each)[0] for each in (state, loaded))
    assert torch.equal(once, again)
    return state


def model(attention: str, **options: Any) -> TinyTransformer:
    """Two small layers for ``COPYING``."""
    torch.manual_seed(0)
    sizes = {"dim": 12, "heads": 2, "layers": 2, **COPYING.model_options()}
    return TinyTransformer(attention=attention, **options, **sizes).double()


def losses(made: TinyTransformer, **given: Any) -> list[float]:
    """Of two steps of training."""
    options = {"batch_size": 4, "progress": False, "device": "cpu", **given}
    return fit(made, COPYING, 2, **options).column("loss")


def it_generates_from_its_state(made: TinyTransformer) -> None:
    """What it writes with a state is what it writes with the whole text before it."""
    prompt = torch.randint(5, (2, 3))
    fast, slow = (
        generate(made, prompt, 8, temperature=0, incremental=incremental)
        for incremental in (True, False)
    )
    assert torch.equal(fast, slow)
