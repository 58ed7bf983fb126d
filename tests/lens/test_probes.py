"""Linear probes: what they read off states, and what their controls say."""

import pytest
import torch

from attnlab.lens.probes import balanced, layer_states, linear_probe, probe
from attnlab.models.tiny import TinyTransformer

GENERATOR = torch.Generator


def states(m: int, seed: int, strength: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Seven directions of noise, the third of which tells the label."""
    made = GENERATOR().manual_seed(seed)
    labels = torch.randint(2, (m,), generator=made)
    found = torch.randn(m, 7, generator=made)
    found[:, 2] += strength * (2 * labels - 1)
    return found, labels


def test_a_probe_reads_a_direction_and_shuffled_labels_give_what_guessing_gives() -> None:
    (x, y), (z, wanted) = states(400, 0), states(301, 1)
    noise = torch.randn(400, 7, generator=GENERATOR().manual_seed(2))
    found = probe(
        torch.stack([noise, x]), y, torch.stack([noise[:301], z]), wanted,
        GENERATOR().manual_seed(3),
    )  # fmt: skip
    assert found.right[1] > 0.98
    assert abs(found.right[0] - 0.5) < 0.12, "noise holds no answer"
    assert abs(found.shuffled[1] - 0.5) < 0.25
    assert found.right.shape == found.shuffled.shape == (2,)


def test_the_scale_and_the_place_of_states_do_not_matter() -> None:
    (x, y), (z, _) = states(200, 4, 1.0), states(101, 5, 1.0)
    far = linear_probe(1000 * x + 77, y, 1000 * z + 77)
    assert torch.equal(linear_probe(x, y, z), far)


def test_a_direction_that_never_changes_is_no_division_by_zero() -> None:
    x, y = states(100, 6)
    x[:, 0] = 5.0
    assert (linear_probe(x, y, x) == y).double().mean() > 0.95


def test_each_class_is_drawn_equally_often_and_none_twice() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10 + [2] * 13)
    places = balanced(labels, 30, GENERATOR().manual_seed(0))
    assert labels[places].bincount().tolist() == [10, 10, 10]
    assert len(places.unique()) == 30
    with pytest.raises(ValueError, match="11 examples of label 1 are wanted and there are 10"):
        balanced(labels, 33)
    with pytest.raises(ValueError, match="all labels are equal"):
        balanced(torch.zeros(5, dtype=torch.int64), 4)
    with pytest.raises(ValueError, match="count should be at least 3"):
        balanced(labels, 2)


def test_states_are_those_before_and_after_each_layer() -> None:
    torch.manual_seed(0)
    model = TinyTransformer(
        11, kind="token_classifier", classes=3, dim=8, heads=2, layers=3, dropout=0.5
    ).train()
    tokens = torch.randint(11, (2, 5))
    found = layer_states(model, tokens=tokens)
    assert found.shape == (4, 2, 5, 8)
    assert model.training, "the mode is as before"
    assert torch.equal(found, layer_states(model, model.encode, tokens=tokens)), "without dropout"
    model.eval()
    with torch.no_grad():
        x = found[0]
        for block, after in zip(model.encoder.blocks, found[1:], strict=True):  # type: ignore[union-attr]
            x = block(x)
            torch.testing.assert_close(x, after)
    with pytest.raises(ValueError, match="a Linear has no stack of layers"):
        layer_states(torch.nn.Linear(2, 3), tokens=tokens)


def test_as_many_layers_are_asked_as_are_learned_from() -> None:
    x, y = states(20, 0)
    with pytest.raises(ValueError, match="states of 1 layers are learned from and those of 2"):
        probe(x[None], y, torch.stack([x, x]), y)


def test_labels_may_be_names() -> None:
    (x, y), (z, wanted) = states(80, 7), states(60, 8)
    names = ["no", "yes"]
    by_name = probe(
        x[None], [names[i] for i in y], z[None], [names[i] for i in wanted],
        GENERATOR().manual_seed(1),
    )  # fmt: skip
    by_number = probe(x[None], y, z[None], wanted, GENERATOR().manual_seed(1))
    assert by_name.right == by_number.right > 0.9


def test_what_does_not_fit_is_said() -> None:
    x, y = states(20, 0)
    with pytest.raises(ValueError, match="there are 20 states and 19 labels of them"):
        probe(x[None], y[1:], x[None], y)
    with pytest.raises(ValueError, match="there are 20 new states and 21 answers to them"):
        probe(x[None], y, x[None], [0] * 21)
    with pytest.raises(ValueError, match="all labels are equal"):
        probe(x[None], ["noun"] * 20, x[None], ["noun"] * 20)
    with pytest.raises(ValueError, match="the answer 'verb' is asked and no label has it"):
        probe(x[None], ["noun", "name"] * 10, x[None], ["noun", "verb"] * 10)


def test_states_of_a_model_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    model = transformers.BertModel(config).train()
    tokens = torch.randint(11, (2, 5))
    found = layer_states(model, tokens=tokens)
    assert found.shape == (4, 2, 5, 8)
    assert model.training
    with torch.no_grad():
        torch.testing.assert_close(found[-1], model.eval()(tokens).last_hidden_state)
    small = transformers.T5Config(
        vocab_size=11, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2
    )
    both = transformers.T5ForConditionalGeneration(small)
    assert layer_states(both, tokens=tokens).shape == (3, 2, 5, 8)
