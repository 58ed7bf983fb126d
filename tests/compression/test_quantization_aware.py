"""Training with rounding, against torch's fake quantization, and what it is converted to."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.compression.levels import Levels, Watching
from attnlab.compression.quantization import Quantization
from attnlab.compression.quantization_aware import QuantizationAware, vectorised


def trained(module: nn.Module, steps: int = 60) -> float:
    x = torch.randn(64, 7, generator=torch.Generator().manual_seed(1))
    y = torch.sin(3 * x[:, :3])
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    loss = torch.zeros(())
    for _ in range(steps):
        loss = (module(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 3))


def test_the_gradient_is_that_of_the_numbers_and_not_of_rounding() -> None:
    W = torch.randn(13, 7, requires_grad=True)
    direction = torch.randn(13, 7)
    (vectorised(W, options=Levels(bits=3)) * direction).sum().backward()
    assert torch.equal(W.grad, direction)
    out = vectorised(W, options=Levels(bits=3, scheme="symmetric"))
    (own,) = torch.autograd.grad((out * direction).sum(), W)
    high = W.abs() == W.abs().max()
    assert own[high & (W > 0)].eq(0).all()  # 3.5 is rounded to 4, beyond the highest level 3
    out = vectorised(W, options=Levels(bits=3, scheme="symmetric"), gradient="everywhere")
    (own,) = torch.autograd.grad((out * direction).sum(), W)
    assert torch.equal(own, direction)


def test_a_mask_stays_below_the_rounding() -> None:
    compress = QuantizationAware(Levels(bits=4, per="channel"), activations=False)
    made = compress(attnlab.build("magnitude_pruning", kept=0.5)(network()))
    before = made[0].weight == 0
    assert before.sum() >= 45
    trained(made, 20)
    assert (made[0].weight[before] == 0).all()
    converted = compress.convert(made.eval())
    assert (converted[0].q[before] == converted[0].zero.expand(13, 7)[before]).all()
    torch.testing.assert_close(converted(torch.ones(2, 7)), made(torch.ones(2, 7)))
    assert compress.bytes(made) == compress.bytes(converted)


@pytest.mark.parametrize("bits", [8, 4, 3])
def test_the_converted_module_gives_what_was_trained(bits: int) -> None:
    compress = QuantizationAware(Levels(bits=bits))
    made = compress(network())
    trained(made, 20)
    converted = compress.convert(made.eval())
    x = torch.randn(11, 7)
    with torch.no_grad():
        wanted, found = made(x), converted(x)
    # a bias is rounded to a multiple of s_x s_w, and a tie may go to the other level
    assert (found - wanted).abs().max() < 3 * 2.0**-bits
    assert converted[0].q.dtype == torch.int8
    assert compress.bytes(made) == compress.bytes(converted) == Quantization().bytes(converted)


def test_two_bits_are_learned_that_rounding_afterwards_loses() -> None:
    made = network()
    trained(made, 300)
    levels = Levels(bits=2, scheme="restricted", per="channel")
    x = torch.randn(64, 7, generator=torch.Generator().manual_seed(1))
    y = torch.sin(3 * x[:, :3])
    afterwards = (Quantization(levels)(made)(x) - y).square().mean().item()
    assert trained(QuantizationAware(levels, activations=False)(made), 300) < 0.8 * afterwards


def test_ranges_are_observed_in_training_alone() -> None:
    watching = Watching(observer="moving_average", constant=0.25)
    made = QuantizationAware(watching=watching)(network())
    x = torch.linspace(-1, 2, 7)[None]
    made(x)
    assert made[0].inputs.high.item() == pytest.approx(2)
    made(3 * x)
    assert made[0].inputs.high.item() == pytest.approx(2 + 0.25 * 4)
    made.eval()(100 * x)
    assert made[0].inputs.high.item() == pytest.approx(3)
    assert {name for name in made.state_dict() if "inputs" in name} == {
        f"{at}.inputs.{end}" for at in (0, 2) for end in ("low", "high")
    }


def test_a_copy_has_ranges_of_its_own() -> None:
    import copy

    made = QuantizationAware()(network())
    other = copy.deepcopy(made)
    other(torch.ones(2, 7))
    assert other[0].inputs.seen
    assert not made[0].inputs.seen


def test_a_tied_table_is_rounded_once_for_both_uses() -> None:
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(11, dim=12, layers=1, max_len=9)
    compress = QuantizationAware(Levels(bits=4))
    made = compress(model)
    tokens = torch.arange(8)[None]
    made(tokens).sum().backward()
    assert made.embedding.weight.unique().numel() <= 16
    smaller = compress.convert(made)
    assert torch.equal(smaller.embedding.weight, made.embedding.weight)
    assert smaller(tokens).shape == (1, 8, 11)


def test_bad_calls_are_sentences() -> None:
    with pytest.raises(ValueError, match="have not been observed; train the module"):
        QuantizationAware().convert(QuantizationAware()(network()))
    with pytest.raises(ValueError, match="gradient"):
        QuantizationAware(gradient="nowhere")
    with pytest.raises(ValueError, match="has no linear layer"):
        QuantizationAware()(nn.Tanh())
