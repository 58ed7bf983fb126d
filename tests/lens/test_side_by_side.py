"""One layer's vectors and projections in every mechanism."""

import pytest
import torch

import attnlab
from attnlab.core.heads import Heads
from attnlab.lens.side_by_side import beside_trained, layers, map_of
from attnlab.mechanisms.dense.full import FullAttention

DIM, HEADS, N = 48, 4, 13  # heads of width 12, whose complex and shared versions exist


def built(**options):
    return {layer.card.name: layer for layer in layers(DIM, HEADS, **options)}


def test_every_mechanism_that_mixes_has_a_layer():
    assert list(built()) == [card.name for card in attnlab.cards() if card.mixes]


def test_a_map_has_a_row_for_each_token_and_says_what_is_masked():
    x = torch.randn(1, N, DIM)
    for name, layer in built().items():
        found = map_of(layer, x)
        assert found.weights.shape[1] == N, name
        assert found.weights.shape[2] >= N, name
        assert torch.equal(found.masked, found.weights == 0), name


def test_the_past_alone_where_a_mechanism_leaves_the_choice():
    x = torch.randn(1, N, DIM)
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    for name, layer in built(causal=True).items():
        assert layer.causal == (layer.card.causal != "never"), name
        seen = ~map_of(layer, x).masked[..., :N]
        assert bool(seen[:, future].any()) == (not layer.causal), name
    assert not built()["full"].causal
    assert built()["sparse_transformer"].causal


def test_given_projections_make_the_map_of_the_layer_they_come_from():
    own = FullAttention(DIM, HEADS)
    x = torch.randn(1, N, DIM)
    with attnlab.watch(own) as seen:
        own(x)
    found = map_of(built(source=own.heads)["full"], x)
    assert torch.allclose(found.weights, seen[0].weights[0], atol=1e-6)
    assert not torch.allclose(map_of(built()["full"], x).weights, found.weights, atol=1e-3)


def test_shared_keys_and_values_are_the_means_of_those_that_share_them():
    source = Heads(DIM, HEADS)
    shared = built(source=source)["multi_query"].module.heads
    each = source.key.weight.unflatten(0, (shared.kv_heads, HEADS // shared.kv_heads, -1))
    assert shared.kv_heads < HEADS
    assert torch.equal(shared.key.weight, each.mean(1).flatten(0, 1))
    assert torch.equal(shared.output.weight, source.output.weight)


def test_what_stays_random_is_named():
    made = built(source=Heads(DIM, HEADS))
    assert made["full"].drawn == ()
    assert made["linformer"].drawn == ("e.weight", "f.weight")
    assert "heads.query.weight" in made["complex_attention"].drawn, "complex projections"
    assert "heads.query.weight" in built()["full"].drawn


def test_layers_are_the_same_every_time_and_leave_the_generator_alone():
    before = torch.random.get_rng_state()
    one, two, other = built(), built(), built(seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name in one:
        first, second = (list(made[name].module.parameters()) for made in (one, two))
        assert all(map(torch.equal, first, second)), name
    assert not torch.equal(
        one["full"].module.heads.query.weight, other["full"].module.heads.query.weight
    )


def test_a_family_stands_beside_the_heads_of_a_trained_layer():
    own = FullAttention(DIM, HEADS, causal=True).eval()
    x = torch.randn(1, N, DIM)
    with attnlab.watch(own) as seen:
        own(x)
    found = beside_trained(own, x, family="convolution")
    heads, others = list(found)[:HEADS], list(found)[HEADS:]
    assert heads == [f"trained, head {at}" for at in range(HEADS)]
    for at, name in enumerate(heads):
        assert torch.allclose(found[name], seen[0].weights[0, at], atol=1e-6)
    assert others == [card.title for card in attnlab.cards() if card.family == "convolution"]
    assert all(found[name].shape == (N, N) for name in others)
    diagonals = found[attnlab.card("lightweight_convolution").title]
    assert torch.allclose(diagonals[1:, 1:], diagonals[:-1, :-1], atol=1e-5)
    assert not diagonals.triu(1).any()
    past = [card for card in attnlab.cards() if card.title in others and card.causal != "never"]
    assert {"optional", "always"} == {card.causal for card in past}
    assert not any(found[card.title].triu(1).any() for card in past), "causal like the trained one"


def test_a_layer_of_a_model_reads_what_it_reads_in_the_model():
    torch.manual_seed(5)
    model = attnlab.TinyTransformer(11, dim=DIM, layers=2, heads=HEADS).eval()
    tokens = torch.randint(11, (1, N))
    with attnlab.watch(model) as seen:
        model(tokens)
    for layer in range(2):
        found = beside_trained(model, tokens, family="convolution", layer=layer)
        for head in range(HEADS):
            own = found[f"trained, head {head}"]
            assert torch.allclose(own, seen[layer].weights[0, head], atol=1e-6)


def test_what_cannot_stand_there_is_refused():
    own, x = FullAttention(DIM, HEADS), torch.randn(1, N, DIM)
    with pytest.raises(ValueError, match="there is no family 'convolutions'; did you mean"):
        beside_trained(own, x, family="convolutions")
    with pytest.raises(ValueError, match="below 0, the number of layers with heads in this Linear"):
        beside_trained(torch.nn.Linear(DIM, DIM), x, family="convolution")
    with pytest.raises(ValueError, match=r"layer should be below 1, .* got 1"):
        beside_trained(own, x, family="convolution", layer=1)
    with pytest.raises(TypeError, match="layer"):
        beside_trained(own, x, family="convolution", layer="1")
    with pytest.raises(ValueError, match=r"inputs should be one sequence, .* got \(2, 13, 48\)"):
        beside_trained(own, torch.randn(2, N, DIM), family="convolution")
    with pytest.raises(TypeError, match="model should be of class Module, got None"):
        beside_trained(None, x, family="convolution")
    with pytest.raises(TypeError, match=r"inputs should be of class Tensor, got \[1, 2\]"):
        beside_trained(own, [1, 2], family="convolution")


@pytest.mark.parametrize("name", ["gss", "h3", "retention"])
def test_another_form_can_be_chosen_later(name):
    """A lesson sets ``layer.form`` to look at a map that a fast form does not make."""
    layer, x = attnlab.build(name, dim=DIM, heads=HEADS, causal=True), torch.randn(1, N, DIM)
    layer.form = "no such form"
    with pytest.raises(KeyError, match="no such form"):
        layer(x)
