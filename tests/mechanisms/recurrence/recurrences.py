"""What every layer with a state of constant size promises, written once for their mirror tests."""

import io

import pytest
import torch
from torch import Tensor, nn

from attnlab.lens.mixing import mixing_matrix

CUTS = ([11], [1] * 11, [3, 1, 7], [5, 6], [1, 10])


def sequence(layer: nn.Module, n: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, n, layer.dim, generator=generator, dtype=torch.float64)


def any_cut_gives_the_same(layer: nn.Module) -> None:
    """Outputs, the last state, and every gradient: a state that is not detached passes them."""
    x = sequence(layer).requires_grad_()
    whole, last = layer(x), layer.step(x)[1]
    wanted = torch.autograd.grad(whole.square().sum(), [x, *layer.parameters()])
    for cut in CUTS:
        parts, state = [], None
        for piece in x.split(cut, dim=1):
            out, state = layer.step(piece, state)
            parts.append(out)
        out = torch.cat(parts, dim=1)
        torch.testing.assert_close(out, whole)
        for name, mine, theirs in zip(last._fields, state, last, strict=True):
            torch.testing.assert_close(mine, theirs, msg=lambda text, name=name: f"{name}: {text}")
        found = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        for mine, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, theirs)


def gradients_pass_the_state_unless_it_is_detached(layer: nn.Module) -> None:
    first, second = (x.requires_grad_() for x in sequence(layer).split([5, 6], dim=1))
    state = layer.step(first)[1]
    through = layer.step(second, state)[0].sum()
    (grad,) = torch.autograd.grad(through, first)
    assert (grad != 0).any(dim=-1).all()
    stopped = layer.step(second, type(state)(*(part.detach() for part in state)))[0].sum()
    assert torch.equal(stopped, through)
    with pytest.raises(RuntimeError, match="to not have been used"):
        torch.autograd.grad(stopped, first)


@torch.no_grad()
def the_state_is_saved_and_loaded(layer: nn.Module) -> None:
    first, second = sequence(layer).split([5, 6], dim=1)
    state, file = layer.step(first)[1], io.BytesIO()
    torch.save(state._asdict(), file)
    file.seek(0)
    again = type(state)(**torch.load(file, weights_only=True))
    assert torch.equal(layer.step(second, again)[0], layer.step(second, state)[0])


@torch.no_grad()
def the_state_does_not_grow(layer: nn.Module) -> None:
    def held(n: int) -> int:
        return sum(x.untyped_storage().nbytes() for x in layer.step(sequence(layer, n))[1])

    assert held(3) == held(61) == sum(x.numel() * 8 for x in layer.step(sequence(layer))[1])


def padding_is_skipped(layer: nn.Module) -> None:
    """Wherever it stands: the real tokens alone give the same, and padded places give zeros."""
    x = sequence(layer)
    real = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0], [0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0]]) > 0
    out = layer(x.masked_fill(~real[..., None], torch.nan), real)
    for row in range(2):
        torch.testing.assert_close(out[row, real[row]], layer(x[row : row + 1, real[row]])[0])
    assert (out[~real] == 0).all()


def other_states_are_refused(layer: nn.Module) -> None:
    x = sequence(layer)
    state = layer.step(x)[1]
    field = state._fields[0]
    single = type(state)(*(part.float() for part in state))
    with pytest.raises(ValueError, match=rf"the state's `{field}` is float32 of shape .* needs fl"):
        layer.step(x, single)
    with pytest.raises(ValueError, match="start a new batch with state=None"):
        layer.step(x[:1], state)
    with pytest.raises(ValueError, match=r"needs float64 of shape .* on cpu"):
        layer.step(x, type(state)(*(part.to("meta") for part in state)))
    with pytest.raises(ValueError, match="each layer its own state"):
        layer.step(x, type(state)(*(part[:, :-1] for part in state)))
    with pytest.raises(TypeError, match=f"`{field}` should be a tensor, got a int"):
        layer.step(x, type(state)(*range(len(state))))


def the_map_is_zero_at_padding(layer: nn.Module) -> None:
    """Rows and columns of padded places, of a layer whose map is exact."""
    real = torch.rand(2, 11, generator=torch.Generator().manual_seed(1)) > 0.3
    found = mixing_matrix(layer, sequence(layer), padding=real).matrix
    assert (found[~real[:, None, :, None].expand_as(found)] == 0).all()
    assert (found[~real[:, None, None, :].expand_as(found)] == 0).all()
    assert (found != 0).any()


PROMISES = (
    any_cut_gives_the_same,
    gradients_pass_the_state_unless_it_is_detached,
    the_state_is_saved_and_loaded,
    the_state_does_not_grow,
    padding_is_skipped,
    other_states_are_refused,
)
WITH_MAPS = (*PROMISES, the_map_is_zero_at_padding)
