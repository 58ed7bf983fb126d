"""Edge probes find the layer in which a label was planted, and nothing where nothing is."""

import math

import pytest
import torch

from attnlab.lens.edge_probes import (
    Cumulative,
    EdgeProbe,
    EdgeProbed,
    Examples,
    ScalarMix,
    cropped,
    cumulative_probes,
    edge_probe,
)

LAYERS, TEXTS, N, DIM = 4, 400, 6, 8


def planted(seed, *, layers, spans=1):
    """Noise, and in ``layers`` the label: of a span, the sign of a coordinate of its tokens; of two
    spans, whether their signs agree."""
    made = torch.Generator().manual_seed(seed)
    states = torch.randn(LAYERS, TEXTS, N, DIM, generator=made)
    begin = torch.randint(2, (TEXTS, spans, 1), generator=made) + 3 * torch.arange(spans)[:, None]
    where = torch.cat([begin, begin + 2], dim=-1)
    signs = torch.randint(2, (TEXTS, spans), generator=made)
    text = torch.arange(TEXTS)
    for one in range(spans):
        for layer in layers:
            for place in (0, 1):
                states[layer, text, begin[:, one, 0] + place, 3] = 3.0 * (2 * signs[:, one] - 1)
    return states, Examples(text, where, signs.sum(-1) % 2 if spans > 1 else signs[:, 0])


def test_the_mix_lies_on_the_layer_that_holds_the_label():
    found = edge_probe(*planted(0, layers=[2]), *planted(1, layers=[2]))
    assert found.right > 0.95
    assert found.shares.argmax() == 2
    assert abs(found.centre_of_gravity - 2) < 0.5
    assert found.divergence > 0.4


def test_cumulative_probes_rise_where_the_label_comes_in_and_stay():
    found = cumulative_probes(*planted(0, layers=[2]), *planted(1, layers=[2]))
    assert (found.right[2:] > 0.9).all()
    assert (found.right[:2] < 0.7).all()
    assert found.gains.argmax() == 1, "what layer 2 adds; the embedding adds nothing by itself"
    assert abs(found.expected_layer - 2) < 0.3
    assert (found.first_layer == 2).double().mean() > 0.3  # half of the others guessed right before
    assert (found.first_layer <= 2).double().mean() > 0.9


def test_two_spans_are_compared():
    found = edge_probe(
        *planted(0, layers=[1], spans=2), *planted(1, layers=[1], spans=2), steps=400
    )
    assert found.right > 0.9
    assert found.shares.argmax() == 1


def test_nothing_is_found_where_nothing_was_planted():
    noise = edge_probe(*planted(0, layers=[]), *planted(1, layers=[]))
    assert abs(noise.right - 0.5) < 0.2
    states, examples = planted(0, layers=[2])
    mixed = examples._replace(label=examples.label[torch.randperm(TEXTS)])
    shuffled = edge_probe(states, mixed, *planted(1, layers=[2]))
    assert abs(shuffled.right - 0.5) < 0.35


def test_the_same_call_gives_the_same_probe_and_leaves_the_generator_alone():
    data = (*planted(0, layers=[1]), *planted(1, layers=[1]))
    before = torch.get_rng_state()
    one, other = (edge_probe(*data, steps=5) for _ in range(2))
    assert torch.equal(one.shares, other.shares)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one.shares, edge_probe(*data, steps=5, seed=1).shares)


def test_readings_by_hand():
    probed = EdgeProbed(1.0, torch.zeros(1), torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64))
    assert probed.centre_of_gravity == 1.0
    assert math.isclose(probed.divergence, math.log(3) - math.log(2))
    even = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert abs(EdgeProbed(1.0, torch.zeros(1), even).divergence) < 1e-12
    curve = torch.tensor([0.5, 0.6, 0.9, 0.9], dtype=torch.float64)
    found = Cumulative(curve, torch.zeros(1), probed)
    by_parts = 3 - (curve[1:3] - curve[0]).sum() / (curve[3] - curve[0])
    assert math.isclose(found.expected_layer, float(by_parts))
    assert math.isnan(Cumulative(curve.flip(0), torch.zeros(1), probed).expected_layer)


def test_the_first_layer_is_that_from_which_on_all_are_right():
    states, examples = planted(0, layers=[0])
    asked = examples._replace(label=examples.label.clone())
    asked.label[:5] = 1 - asked.label[:5]
    found = cumulative_probes(states, examples, states, asked)
    assert found.first_layer[:5].tolist() == [LAYERS] * 5, "wrong to the last"
    assert (found.first_layer[5:] == 0).all()


def test_an_untrained_mix_is_the_mean_of_the_layers():
    states = torch.randn(3, 2, 4, 5)
    torch.testing.assert_close(ScalarMix(3)(states), states.mean(0))


@pytest.mark.parametrize("spans", [1, 2])
def test_cropped_examples_get_the_same_answers(spans):
    states, examples = planted(3, layers=[1], spans=spans)
    longer = examples.spans.clone()
    longer[::3, :, 1] -= 1  # spans of one token beside those of two
    longer[1::5, -1, 1] += 1
    longer = longer.clamp(max=N)  # no span ends behind its text
    examples = examples._replace(spans=longer)
    torch.manual_seed(0)
    probe = EdgeProbe(LAYERS, DIM, 2, spans)
    short, moved = cropped(states, examples)
    assert short.shape[2] == 3 + 2 * (spans - 1)
    torch.testing.assert_close(probe(states, examples), probe(short, moved))


def test_tokens_outside_the_span_do_not_matter():
    states, examples = planted(0, layers=[1])
    first = examples._replace(spans=torch.tensor([0, 2]).expand(TEXTS, 1, 2))
    spoiled = states.clone()
    spoiled[:, :, 2:] += 5
    new = edge_probe(states, first, states, first, steps=20)
    assert torch.equal(new.chosen, edge_probe(states, first, spoiled, first, steps=20).chosen)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": torch.zeros(TEXTS, dtype=torch.int64)}, "all labels are equal"),
        ({"label": torch.ones(3, dtype=torch.int64)}, "as many texts as spans and labels"),
        ({"label": torch.arange(TEXTS) * 2}, "hold none of 1, 3, 5, 7, 9: a probe needs"),
        ({"label": torch.full((TEXTS,), 3)}, "all labels are equal"),
        ({"text": torch.full((TEXTS,), TEXTS)}, f"from 0 to {TEXTS - 1}"),
        ({"spans": torch.zeros(TEXTS, 1, 2, dtype=torch.int64)}, "should have a token at least"),
        ({"spans": torch.zeros(TEXTS, 3, 2, dtype=torch.int64)}, r"should be \(e, 1 or 2, 2\)"),
    ],
)
def test_bad_examples(change, said):
    states, examples = planted(0, layers=[1])
    with pytest.raises(ValueError, match=said):
        edge_probe(states, examples._replace(**change), states, examples)


def test_other_bad_calls():
    states, examples = planted(0, layers=[1])
    with pytest.raises(ValueError, match="states of 4 layers are learned from and those of 3"):
        edge_probe(states, examples, states[:3], examples)
    two = examples._replace(spans=examples.spans.expand(-1, 2, -1))
    with pytest.raises(ValueError, match="the same number of spans"):
        edge_probe(states, examples, states, two)
    three = examples._replace(label=examples.label + 1)
    with pytest.raises(ValueError, match="asked has the label 2, and the examples know 0 to 1"):
        edge_probe(states, examples, states, three)
    with pytest.raises(ValueError, match="of 0 texts with 6 tokens: there are no words"):
        edge_probe(states[:, :0], examples, states, examples)
    with pytest.raises(ValueError, match="steps should be at least 1"):
        edge_probe(states, examples, states, examples, steps=0)
