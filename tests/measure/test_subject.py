"""What is counted and timed: names and options are checked, layers are built for their length."""

import pytest
import torch

from attnlab.measure.subject import subject, subjects


def test_the_last_form_and_the_cards_causality_are_the_defaults():
    assert (subject("full").form, subject("full").causal) == ("fused", False)
    assert subject("sparse_transformer").causal
    assert subject("full").with_form("naive") == subject("full", form="naive")
    assert subject("full").caused() == subject("full", causal=True)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("longfomer", {}, "longformer"),
        ("longformer", {"windw": 3}, "window"),
        ("longformer", {"form": "fused"}, "blocked"),
        ("full", {"heads": 5}, "heads=5 does not divide"),
        ("rope", {}, "mixes no positions"),
    ],
)
def test_what_is_unknown_or_unfit_is_refused_with_the_nearest(name, given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        subject(name, **given)


def test_a_layer_has_room_for_its_length():
    layer = subject("linformer", dim=12, heads=2).layer(1500)
    assert layer(torch.zeros(1, 1500, 12)).shape == (1, 1500, 12)
    with pytest.raises(ValueError, match="700"):
        subject("linformer", dim=12, heads=2, max_len=700).layer(900)(torch.zeros(1, 900, 12))


def test_parameters_come_from_the_seed_and_disturb_no_other():
    before = torch.random.get_rng_state()
    one, same, other = (subject("full", dim=12).layer(7, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    drawn = [next(layer.parameters()) for layer in (one, same, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_the_claim_is_the_cards_with_the_options_given():
    claims = [subject("longformer", dim=24, heads=2, window=w).claim("time", 1000) for w in (8, 16)]
    assert claims == [2 * 2 * 1000 * 24 * (w + 1) for w in (8, 16)]


def test_every_mechanism_that_mixes_is_there():
    import attnlab

    assert [s.mechanism for s in subjects(dim=12, heads=2)] == [
        card.name for card in attnlab.cards() if card.mixes
    ]
