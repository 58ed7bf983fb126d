"""The Evolved Transformer's cells: padding before every convolution, causality, sizes."""

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.evolved import Convolution, DecoderCell, EncoderCell, EvolvedTransformer

DIM, HEADS = 32, 2
PADDING = torch.arange(17) < torch.tensor([[17], [11]])


def drawn(module: nn.Module) -> nn.Module:
    """Every parameter is random: a norm's shift, too, which makes something of zeros."""
    torch.manual_seed(1)
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return module.double()


def stream(n: int = 17) -> Tensor:
    return torch.randn(2, n, DIM, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def test_a_separable_convolution_is_a_convolution_of_low_rank() -> None:
    conv = drawn(Convolution(5, 7, 3))
    kernels, mixed = conv.kernels.weight, conv.mixed.weight  # (5, 1, 3), (7, 5)
    whole = torch.einsum("oc,ck->ock", mixed, kernels[:, 0])
    x = torch.randn(2, 11, 5, dtype=torch.float64)
    expected = nn.functional.conv1d(x.mT, whole, conv.mixed.bias, padding=1).mT
    torch.testing.assert_close(conv(x), expected)


def test_a_causal_convolution_has_its_places_on_the_left() -> None:
    """The last input reaches the last output alone, the first k outputs."""
    for size in (3, 7, 11):
        conv = drawn(Convolution(5, 5, size, causal=True))
        x = torch.randn(1, 17, 5, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(conv(x)[0, 12].sum(), x)
        read = (grad[0] != 0).any(-1).nonzero().flatten().tolist()
        assert read == list(range(12 - size + 1, 13))


def test_the_zeros_on_the_left_are_10_6_and_6() -> None:
    cell = DecoderCell(DIM, HEADS)
    assert [conv.beyond for conv in (cell.left, cell.right, cell.after)] == [
        (10, 0),
        (6, 0),
        (6, 0),
    ]
    cell = EncoderCell(DIM, HEADS)
    assert [conv.beyond for conv in (cell.right, cell.after)] == [(1, 1), (4, 4)]


@pytest.mark.parametrize("left_out", [None, "right", "left", "after"])
@pytest.mark.parametrize("kind", [EncoderCell, DecoderCell])
def test_padding_is_masked_before_every_convolution(kind: type, left_out: str | None) -> None:
    """Real tokens get what they get without padding; where one mask is left out, they do not."""
    cell, x = drawn(kind(DIM, HEADS)), stream()
    if left_out == "left" and kind is EncoderCell:
        pytest.skip("the left branch of an encoder's cell is no convolution")
    if left_out is not None:
        conv = getattr(cell, left_out)
        forward = conv.forward
        conv.forward = lambda x, padding: forward(x, None)
    source = (stream(5), None) if kind is DecoderCell else ()
    short = cell(x[1:, :11], None, *(s if s is None else s[1:] for s in source))
    padded = cell(x, PADDING, *source)[1:, :11]
    if kind is DecoderCell:  # what stands on the right is read by no causal convolution
        turned = PADDING.flip(1)
        short = cell(x[1:, 6:], None, *(s if s is None else s[1:] for s in source))
        padded = cell(x, turned, *source)[1:, 6:]
    assert torch.allclose(padded, short) == (left_out is None)


def test_a_decoder_sees_nothing_of_the_future_and_all_of_the_source() -> None:
    cell = drawn(DecoderCell(DIM, HEADS))
    x, source = stream().requires_grad_(), stream(5).requires_grad_()
    grads = torch.autograd.grad(cell(x, memory=source)[0, 7].sum(), (x, source))
    assert (grads[0][0, 8:] == 0).all()
    assert (grads[0][0, :8] != 0).all()
    assert (grads[1][0] != 0).all()


def test_an_encoder_cell_in_plain_operations() -> None:
    cell, x = drawn(EncoderCell(DIM, HEADS)), stream()
    norm = nn.functional.layer_norm
    first = cell.norms[0]
    h = norm(x, (DIM,), first.weight, first.bias)
    y = x + cell.value(h) / (1 + torch.exp(-cell.gate(h)))
    torch.testing.assert_close(y + cell.convolved(cell.norms[1](y), None), _second(cell, y))
    narrow = cell.convolved(cell.norms[1](y), None)
    assert (narrow[..., DIM // 2 :] == 0).all()


def _second(cell: EncoderCell, y: Tensor) -> Tensor:
    h = cell.norms[1](y)
    conv = nn.functional.conv1d(h.mT, cell.right.kernels.weight, cell.right.kernels.bias, padding=1)
    both = torch.relu(cell.left(h))
    both[..., : DIM // 2] += torch.relu(conv.mT)
    both = cell.between(both)
    kernels = cell.after.kernels.weight
    deep = nn.functional.conv1d(both.mT, kernels, padding=4, groups=4 * DIM).mT
    out = y.clone()
    out[..., : DIM // 2] += cell.after.mixed(deep)
    return out


def test_a_whole_model_and_what_it_refuses() -> None:
    model = drawn(EvolvedTransformer(DIM, HEADS, encoder=1, decoder=2))
    out = model(stream(), stream(5), PADDING)
    assert out.shape == (2, 17, DIM)
    with pytest.raises(ValueError, match="multiple of 16, the heads of the first attention"):
        DecoderCell(24, 2)
    with pytest.raises(ValueError, match="dim should be even"):
        EncoderCell(9, 3)
    with pytest.raises(ValueError, match="give it as memory="):
        DecoderCell(DIM, HEADS)(stream().float())
