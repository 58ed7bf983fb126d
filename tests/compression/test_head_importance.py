"""Gates of heads: their gradient, and what the model does without them."""

import pytest
import torch
from torch import nn

import attnlab
from attnlab.compression.head_importance import (
    alone,
    attention_layers,
    batched,
    gated,
    importance,
    naive,
    normalised,
    one_by_one,
    order,
)
from attnlab.compression.structured_pruning import StructuredPruning
from attnlab.tasks import Batch

NEXT = attnlab.build("next_token")
BLOCKS = "decoder.blocks.{}.attention"


def model(**options) -> nn.Module:
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(11, dim=12, heads=3, layers=2, max_len=9, **options).double()
    for p in made.parameters():
        p.data += torch.randn_like(p) / 5
    return made.eval()


def texts(rows: int = 5) -> Batch:
    tokens = torch.randint(11, (rows, 8), generator=torch.Generator().manual_seed(1))
    return Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("options", [{}, {"attention": "multi_query"}])
def test_one_pass_for_all_examples_equals_one_for_each(options) -> None:
    made, batch = model(**options), texts()
    one, all_at_once = naive(made, batch, NEXT), batched(made, batch, NEXT)
    assert list(one) == [BLOCKS.format(0), BLOCKS.format(1)]
    for name in one:
        assert one[name].shape == (3,)
        torch.testing.assert_close(one[name], all_at_once[name])


def test_the_gradient_at_a_gate_is_the_finite_difference() -> None:
    made, batch, h = model(), texts(1), 1e-6
    name = BLOCKS.format(0)
    for head, found in enumerate(naive(made, batch, NEXT)[name]):
        sides = []
        for step in (h, -h):
            gate = torch.ones(3, dtype=torch.float64)
            gate[head] += step
            with gated(made, {name: gate}), torch.no_grad():
                sides.append(NEXT(made, batch)[0])
        assert found.item() == pytest.approx(abs(float(sides[0] - sides[1])) / (2 * h), rel=1e-4)


def test_it_is_what_the_head_adds_times_the_gradient_of_the_output() -> None:
    """dL/dξ_h = <dL/dy, Att_h W_O^h>, and over all heads <dL/dy, y - b_O>."""
    layer = attnlab.build("full", dim=6, heads=3).double()
    layer.heads.output.bias = nn.Parameter(torch.randn(6, dtype=torch.float64))
    x, direction = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 5, 6).double()
    given = {}
    handle = layer.heads.output.register_forward_pre_hook(lambda _, a: given.update(out=a[0]))
    y = layer(x)
    handle.remove()
    gate = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with gated(layer, {"heads": gate}):  # the layer itself is the model
        (found,) = torch.autograd.grad((layer(x).tanh() * direction).sum(), gate)
    slope = (1 - y.tanh() ** 2) * direction
    own = given["out"].unflatten(-1, (3, 2))
    for head in range(3):
        added = own[..., head, :] @ layer.heads.output.weight[:, 2 * head : 2 * head + 2].T
        torch.testing.assert_close(found[head], (slope * added).sum())
    torch.testing.assert_close(found.sum(), (slope * (y - layer.heads.output.bias)).sum())


class Alternating(nn.Module):
    """A loss that a head raises for every second example as much as it lowers it for the others."""

    def forward(self, model, batch, generator=None):
        out = model(batch.inputs)
        return (out.sum((1, 2)) * batch.targets).sum(), len(batch.targets)


def test_a_head_whose_gradients_cancel_is_needed() -> None:
    made = attnlab.build("full", dim=6, heads=3).double()
    x = torch.randn(1, 5, 6, dtype=torch.float64).repeat(4, 1, 1)
    batch = Batch(x, torch.tensor([1, -1, 1, -1]))
    (found,) = batched(made, batch, Alternating()).values()
    assert (found > 1e-3).all()
    gate = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with gated(made, {"heads": gate}):
        (summed,) = torch.autograd.grad(Alternating()(made, batch)[0], gate)
    assert summed.abs().max() < 1e-9 * found.min()


def test_running_sums_are_another_number() -> None:
    """The widely copied script adds |gate.grad| after each backward pass without clearing it."""
    made, batch = model(), texts(4)
    name = BLOCKS.format(1)
    gate, running = torch.ones(3, dtype=torch.float64, requires_grad=True), 0
    for row in range(4):
        with gated(made, {name: gate}):
            NEXT(made, batch[row : row + 1])[0].backward()
        running = running + gate.grad.abs() / 4
    assert not torch.allclose(running, naive(made, batch, NEXT)[name], rtol=0.05)


def test_for_a_linear_loss_the_gradient_is_what_removal_costs() -> None:
    made = attnlab.build("full", dim=6, heads=3).double()
    batch = Batch(torch.randn(1, 5, 6, dtype=torch.float64), torch.tensor([1]))
    (costs,) = one_by_one(made, batch, Alternating()).values()
    (found,) = naive(made, batch, Alternating()).values()
    torch.testing.assert_close(costs.abs(), found)


def test_a_head_that_is_off_is_a_removed_one() -> None:
    made, batch = model(), texts()
    compress = StructuredPruning(units="heads", cut=[(1, 2)])
    smaller = compress.remove(compress(made))
    costs = one_by_one(made, batch, NEXT)[BLOCKS.format(1)][2]
    removed = (NEXT(smaller, batch)[0] - NEXT(made, batch)[0]) / len(batch)
    torch.testing.assert_close(costs, removed)
    left = StructuredPruning(units="heads", cut=[(0, 0), (0, 1)])(made)
    lonely = alone(made, batch, NEXT)[BLOCKS.format(0)][2]
    torch.testing.assert_close(lonely, (NEXT(left, batch)[0] - NEXT(made, batch)[0]) / len(batch))


def test_rows_of_unit_length_change_the_order_between_layers_alone() -> None:
    found = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.1, 0.3]), "c": torch.zeros(2)}
    unit = normalised(found)
    assert [round(each.norm().item(), 6) for each in unit.values()] == [1, 1, 0]
    assert order(found) == [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)]
    assert order(unit) == [(2, 0), (2, 1), (1, 0), (0, 0), (0, 1), (1, 1)]


def test_batches_are_averaged_by_their_examples_and_nothing_is_left_behind() -> None:
    made, batch = model(dropout=0.5).train(), texts(5)
    both = importance(made, [batch[:2], batch[2:]], NEXT)
    for name, each in batched(made, batch, NEXT).items():
        torch.testing.assert_close(both[name], each)
    assert made.training
    assert all(p.grad is None for p in made.parameters())
    assert not any(layer.output._forward_pre_hooks for layer in attention_layers(made).values())


def test_bad_calls_are_sentences() -> None:
    made, none = model(), texts(5)[:0]
    for wrong, words in (
        (lambda: importance(made, [], NEXT), "give at least one"),
        (lambda: naive(made, none, NEXT), "give at least one"),
        (lambda: batched(nn.Linear(3, 3), texts(), NEXT), "no attention layer with heads"),
        (lambda: attention_layers("model"), "should be a module of PyTorch"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            wrong()
    made.output_bias = None
    made.embedding.weight.data[:] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        batched(made, texts(), NEXT)


def test_heads_that_share_keys_are_gated_each_and_removed_together() -> None:
    layer = attnlab.build("multi_query", dim=12, heads=6, kv_heads=3).double()
    batch = Batch(torch.randn(2, 5, 12, dtype=torch.float64), torch.tensor([1, 1]))
    (found,) = naive(layer, batch, Alternating()).values()
    assert found.shape == (6,)
    compress = StructuredPruning(units="heads", cut=[(0, 1)])
    smaller = compress.remove(compress(layer))
    assert (smaller.heads.heads, smaller.heads.kv_heads) == (4, 2)
    gate = torch.tensor([1, 1, 0, 0, 1, 1], dtype=torch.float64)
    with gated(layer, {"heads": gate}):
        torch.testing.assert_close(layer(batch.inputs), smaller(batch.inputs))
