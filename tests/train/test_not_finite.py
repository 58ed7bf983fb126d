"""A NaN stops the run with its step and layer, and harms nothing."""

import math

import pytest
import torch
from torch import nn

from attnlab.train import TrainingError, evaluate, fit, load_checkpoint
from attnlab.train.diagnose import broken

OPTIONS = {"batch_size": 6, "accumulate": 2, "progress": False}


class Spoil(nn.Module):
    """The identity, until it is switched to spoil its output."""

    def __init__(self, forward=1.0, backward=None) -> None:
        super().__init__()
        self.factor, self.backward_factor = forward, backward

    def forward(self, x):
        if self.backward_factor is not None and x.requires_grad:
            x = Backward.apply(x, self.backward_factor)
        return x * self.factor if self.training else x


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def spoiled_at(step, module, **values):
    def callback(state):
        if state.step == step - 1:
            for name, value in values.items():
                setattr(module, name, value)

    return callback


def stopped(*args, **options):
    with pytest.raises(TrainingError) as caught:
        fit(*args, **OPTIONS | options)
    return caught.value


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_output(toy, successor, tmp_path, value, checkpointing):
    """The layer in the middle is named, not those behind it; the last checkpoint is intact."""
    model = toy(dropout=0.3)
    model.layers[1].norm = spoil = Spoil()
    error = stopped(
        model,
        successor(),
        11,
        folder=tmp_path,
        save_every=2,
        gradient_checkpointing=checkpointing,
        callbacks=[spoiled_at(4, spoil, factor=value)],
    )
    assert isinstance(error, RuntimeError)
    assert (error.step, error.layer) == (4, "layers.1.norm")
    message = str(error)
    assert "stopped at step 4 of 11: the loss is nan" in message
    assert "the output of layer 'layers.1.norm' (Spoil)" in message
    assert f"checkpoint of step 2 in '{tmp_path}' is intact" in message
    assert load_checkpoint(tmp_path).step == 2
    assert all(p.isfinite().all() for p in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_an_infinite_loss(toy, successor):
    """The last layer gives −∞ for an answer that was right: nothing upstream is to blame."""
    model = toy(tie=False)
    model.head.register_forward_hook(
        lambda m, i, o: o.masked_fill(torch.arange(13) == 5, -math.inf) if m.training else o
    )
    error = stopped(model, successor(), 3)
    assert error.step == 1
    assert error.layer == "head"
    assert "the loss is inf" in str(error)
    assert "No checkpoint was kept" in str(error)


def test_a_parameter(toy, successor):
    model = toy()
    with torch.no_grad():
        model.layers[0].down.weight[3, 2] = math.nan
    error = stopped(model, successor(), 3)
    assert (error.step, error.layer) == (1, "layers.0.down")
    assert "'layers.0.down.weight' itself, before the step" in str(error)


class OwnArithmetic(nn.Module):
    """Divides by zero between two sound layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x):
        x = self.first(x)
        return self.second(x / torch.zeros(5) if self.training else x)


def test_arithmetic_between_layers(toy, successor):
    model = toy()
    model.layers[1] = OwnArithmetic()
    error = stopped(model, successor(), 3)
    assert error.layer == "layers.1"
    assert (
        "the arithmetic of layer 'layers.1' (OwnArithmetic) before layer 'layers.1.second'"
        in str(error)
    )


@pytest.mark.parametrize("place", ["norm", "dropout"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_gradient(toy, successor, weights, place, checkpointing):
    """Forward all is well; the layer that passes the NaN back is named. No weight has moved."""
    model = toy()
    setattr(model.layers[1], place, Spoil(backward=math.nan))
    before = weights(model)
    error = stopped(model, successor(), 3, gradient_checkpointing=checkpointing)
    assert (error.step, error.layer) == (1, f"layers.1.{place}")
    assert "its gradient is nan" in str(error)
    assert f"the gradient that layer 'layers.1.{place}' (Spoil) passes back" in str(error)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_a_gradient_of_a_parameter(toy, successor):
    model = toy(tie=False)
    model.layers[0].up.weight.register_hook(lambda g: g * math.inf)
    error = stopped(model, successor(), 3)
    assert error.layer == "layers.0.up"
    assert "the gradient of 'layers.0.up.weight'" in str(error)


class Vectors(nn.Linear):
    def forward(self, inputs, padding=None):
        return super().forward(inputs)


def test_the_batch_itself(successor):
    class Broken(successor):
        vocab = None

        def batch(self, split, size, seed):
            batch = super().batch(split, size, seed)
            inputs = torch.nn.functional.one_hot(batch.inputs, 13).float()
            if size > 1:
                inputs[-1, 3, 2] = math.nan
            return type(batch)(inputs, batch.targets)

    error = stopped(Vectors(13, 13), Broken(vocab=13), 3)
    assert "the batch: the task's inputs" in str(error)
    assert error.layer == ""


def test_a_broken_update_is_never_saved(toy, successor, tmp_path):
    """The loss was finite and so was the gradient; the weights after the update are not."""
    model = toy()

    def ruin(state):
        if state.step == 3:
            with torch.no_grad():
                state.model.layers[1].up.bias[7] = math.inf

    error = stopped(model, successor(), 3, folder=tmp_path, save_every=2, callbacks=[ruin])
    assert (error.step, error.layer) == (3, "layers.1.up")
    assert "a weight is no longer finite" in str(error)
    assert load_checkpoint(tmp_path).step == 2


def test_a_validation_loss(toy, successor, tmp_path):
    model = toy()
    model.layers[1].down.register_forward_hook(
        lambda m, i, o: o if m.training else o * math.nan if len(o) > 1 else o
    )
    error = stopped(model, successor(), 5, folder=tmp_path, save_every=1, evaluate_every=2)
    assert error.step == 2
    assert "validation loss" in str(error)
    assert "layers.1.down" in str(error)
    assert load_checkpoint(tmp_path).step == 1
    with pytest.raises(
        TrainingError, match=r"evaluation batch 0 is nan; .*'layers.1.down'"
    ) as caught:
        evaluate(model, successor())
    assert caught.value.layer == "layers.1.down"


def test_the_same_dropout_is_drawn_again(toy, successor):
    """A NaN that only some random masks bring is found all the same."""

    class Rare(nn.Module):
        def forward(self, x):
            return x * math.nan if self.training and torch.rand(()) < 0.05 else x

    model = toy(dropout=0.3)
    model.layers[0].dropout = Rare()
    error = stopped(model, successor(), 300)
    assert error.layer == "layers.0.dropout"
    assert error.step > 1


def test_masks_of_minus_infinity_are_no_trouble():
    assert not broken(torch.tensor([-math.inf, 3.0]))
    assert broken(torch.tensor([math.inf, 3.0]))
    assert broken(torch.tensor([math.nan]))
    assert broken(torch.tensor([complex(0, math.nan)]))
    assert not broken(torch.tensor([3]))
    assert not broken(torch.empty(0))
