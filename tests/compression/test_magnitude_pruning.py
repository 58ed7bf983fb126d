"""Masks of the largest weights, against torch.nn.utils.prune, and the gradual schedule."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import attnlab
from attnlab.compression.magnitude_pruning import (
    Gradual,
    GradualOptions,
    MagnitudePruning,
    gradual_share,
    mask_of,
    masks_of,
)
from attnlab.compression.matrices import count, mask_on


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 5))


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.4, 0.8])
def test_the_mask_is_that_of_torch(kept: float) -> None:
    ours, theirs = MagnitudePruning(kept)(network()), network()
    for layer in (theirs[0], theirs[2]):
        prune.l1_unstructured(
            layer, "weight", layer.weight.numel() - count(layer.weight.numel(), kept)
        )
    for at in (0, 2):
        assert torch.equal(ours[at].weight, theirs[at].weight)


def test_the_global_mask_is_that_of_torch() -> None:
    ours, theirs = MagnitudePruning(0.3, "global")(network()), network()
    N = 13 * 7 + 5 * 13
    pairs = [(theirs[0], "weight"), (theirs[2], "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=N - count(N, 0.3))
    for at in (0, 2):
        assert torch.equal(ours[at].weight, theirs[at].weight)


def test_one_threshold_empties_small_matrices_and_local_does_not() -> None:
    made = network()
    made[2].weight.data /= 1000
    assert MagnitudePruning(0.5, "global")(made)[2].weight.count_nonzero() == 0
    assert MagnitudePruning(0.5)(made)[2].weight.count_nonzero() == count(5 * 13, 0.5)


def test_masks_do_not_depend_on_the_scale() -> None:
    W = torch.randn(13, 7)
    assert torch.equal(mask_of(W, 0.3), mask_of(-7 * W, 0.3))


def test_masks_of_smaller_shares_lie_in_those_of_larger_ones() -> None:
    both = {"a": torch.randn(13, 7), "b": torch.randn(5, 11)}
    for scope in ("local", "global"):
        for less, more in ((0.1, 0.2), (0.2, 0.7)):
            few, many = masks_of(both, less, scope), masks_of(both, more, scope)
            assert all((many[name] | ~few[name]).all() for name in both)


def test_twice_a_half_is_a_half_and_what_is_cut_stays_cut() -> None:
    """Here torch.nn.utils.prune leaves a quarter."""
    once = MagnitudePruning(0.5)(network())
    twice = MagnitudePruning(0.5)(once)
    assert torch.equal(once[0].weight, twice[0].weight)
    theirs = nn.Linear(8, 8)
    for _ in range(2):
        prune.l1_unstructured(theirs, "weight", 0.5)
    assert theirs.weight.count_nonzero() == 16
    again = MagnitudePruning(0.9)(once)
    assert torch.equal(once[0].weight, again[0].weight)
    assert MagnitudePruning(0.2)(once)[0].weight.count_nonzero() == count(13 * 7, 0.2)


def test_remove_gives_an_ordinary_module() -> None:
    made = MagnitudePruning(0.25)(network())
    plain, x = MagnitudePruning().remove(made), torch.randn(3, 7)
    assert torch.equal(plain(x), made(x))
    assert plain.state_dict().keys() == network().state_dict().keys()
    assert type(plain[0]) is nn.Linear
    assert mask_on(made[0]) is not None


def test_the_share_rises_in_cubes_from_the_first_cut_to_the_last() -> None:
    o = GradualOptions(start=10, every=5, times=4, initial=0.2, final=0.9)
    assert gradual_share(9, o) == 0
    assert gradual_share(10, o) == pytest.approx(0.2)
    assert gradual_share(14, o) == pytest.approx(0.2)
    assert gradual_share(15, o) == pytest.approx(0.9 - 0.7 * 0.75**3)
    assert gradual_share(30, o) == gradual_share(999, o) == 0.9
    steps = [gradual_share(10 + 5 * i, o) for i in range(5)]
    rises = [b - a for a, b in itertools.pairwise(steps)]
    assert rises == sorted(rises, reverse=True)


def test_a_model_is_cut_while_it_trains_and_what_was_cut_never_comes_back() -> None:
    made, gradual = network(), Gradual(GradualOptions(every=3, times=4, final=0.8))
    x, cut = torch.randn(64, 7), []
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for step in range(20):
        gradual.after_step(made, step, 20)
        optimizer.zero_grad()
        made(x).square().mean().backward()
        optimizer.step()
        cut.append(torch.cat([made[at].weight.flatten() == 0 for at in (0, 2)]))
    assert all((after | ~before).all() for before, after in itertools.pairwise(cut))
    N = 13 * 7 + 5 * 13
    assert int(cut[-1].sum()) == N - count(N, 1 - 0.8)


def test_a_model_keeps_its_embedding_and_its_other_sparsity_is_smaller() -> None:
    model = attnlab.TinyTransformer(11, dim=12, layers=1)
    pruned = MagnitudePruning(0.5)(model)
    assert torch.equal(pruned.embedding.weight, model.embedding.weight)
    assert pruned(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 11)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: MagnitudePruning(1.5), "kept should be a share from 0 to 1"),
        (lambda: MagnitudePruning(scope="all"), "scope"),
        (lambda: GradualOptions(initial=0.9, final=0.5), "does not come back"),
        (lambda: gradual_share(-1), "step"),
        (lambda: MagnitudePruning()(nn.Embedding(3, 5)), "has no linear layer"),
    ],
)
def test_bad_calls_are_sentences(wrong, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        wrong()
