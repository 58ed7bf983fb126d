"""The experiment `fixed_mixing`, small: what is asked, what is scored, and stored rows."""

import pytest
import torch
from torch import nn

from attnlab.experiments import fixed_mixing
from attnlab.experiments.fixed_mixing import (
    KEYS,
    PROBLEMS,
    UNSEEN,
    build,
    draw,
    right,
    train,
)
from attnlab.tasks.sequences import in_split


def test_a_mirrored_list_reads_the_same_from_behind():
    tokens, classes = draw("mirror", "train", 401, seed=0)
    apart = (tokens != tokens.flip(1)).sum(1)
    assert torch.equal(apart, 2 * (1 - classes)), "one symbol differs, in two comparisons"
    assert 0.4 < classes.double().mean() < 0.6
    assert tokens.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("problem", "keys"), KEYS.items())
def test_the_value_of_the_key_is_asked_for(problem: str, keys: int):
    tokens, classes = draw(problem, "train", 401, seed=0)
    found, values, asked = tokens[:, :-1] // 2, tokens[:, :-1] % 2, tokens[:, -1:] - 2 * keys
    assert values.sum(1).eq(4).all(), "neither value is more frequent"
    assert all(len(row.unique()) == 8 for row in found)
    assert found.max() == keys - 1
    assert torch.equal(values[found == asked], classes)
    assert all((tokens[0] != row).any() for row in tokens[1:]), "in random order"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_list_is_in_both_splits(problem: str):
    found = []
    for split in ("train", "validation"):
        tokens, classes = draw(problem, split, 307, seed=0)
        lists = tokens[classes == 1, :5] if problem == "mirror" else tokens[:, :-1]
        assert in_split(lists.numpy(), split).all()
        found.append({tuple(row) for row in lists.tolist()})
    assert not found[0] & found[1]


def test_scores_count_right_answers():
    class Says(nn.Module):
        def forward(self, tokens):
            return nn.functional.one_hot((tokens == tokens.flip(1)).all(1).long(), 2)

    assert right(Says(), "mirror") == 100
    assert right(Says(), "recall, same keys") == pytest.approx(50, abs=8)


@pytest.mark.parametrize(
    ("arm", "mixers"),
    [
        ("no mixing", ["Nothing", "Nothing"]),
        ("Fourier", ["FNet", "FNet"]),
        ("hybrid", ["FNet", "FullAttention"]),
        ("attention", ["FullAttention", "FullAttention"]),
    ],
)
def test_the_layers_of_a_model(arm: str, mixers: list[str]):
    blocks = build("mirror", arm).encoder.blocks
    assert [type(block.attention).__name__ for block in blocks] == mixers


def test_training_lowers_the_loss_and_the_same_seed_gives_the_same():
    found = []
    for elsewhere in (3, 4):  # a seed that must not matter
        torch.manual_seed(elsewhere)
        found.append(train("mirror", "Fourier", 0, updates=60))
    for mine, theirs in zip(found[0].parameters(), found[1].parameters(), strict=True):
        assert torch.equal(mine, theirs)
    tokens, classes = draw("mirror", "validation", UNSEEN, seed=1)
    torch.manual_seed(0)
    losses = [
        nn.functional.cross_entropy(model(tokens), classes)
        for model in (build("mirror", "Fourier").eval(), found[0])
    ]
    assert losses[1] < losses[0]


def test_a_row_trains_what_its_name_says():
    name = fixed_mixing.figure("mirror", "attention", 2, 2000, fixed_mixing.LOWER)
    (arm,) = [one for one in fixed_mixing.GRID.arms.values() if one.figure.format(seed=2) == name]
    assert (arm.task, arm.model["arm"], arm.steps) == ("mirror", "attention", 2000)
    assert arm.training == {"rate": fixed_mixing.LOWER}
