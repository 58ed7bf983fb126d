"""The experiment `fixed_mixing`, small: what is asked, what is scored, and stored rows."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from attnlab.experiments import fixed_mixing
from attnlab.experiments.fixed_mixing import (
    ARMS,
    KEYS,
    PROBLEMS,
    SEEDS,
    UNSEEN,
    build,
    draw,
    right,
    train,
)
from attnlab.tasks.sequences import in_split

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/35_mixing.json"


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


def test_rows_of_the_quick_run():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    found = list(fixed_mixing.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    assert [row.figure for row in found] == fixed_mixing.figures(quick=True)
    assert set(fixed_mixing.figures(quick=True)) < set(fixed_mixing.figures(quick=False))


def test_a_row_trains_what_its_name_says(monkeypatch):
    given = []
    monkeypatch.setattr(
        fixed_mixing, "train", lambda *names, **options: given.append((names, options))
    )
    monkeypatch.setattr(fixed_mixing, "right", lambda model, problem: 0.0)
    name = fixed_mixing.figure("mirror", "attention", 2, 2000, fixed_mixing.LOWER)
    assert fixed_mixing.row(name, quick=False, threads=1).figure == name
    assert given == [(("mirror", "attention", 2), {"updates": 2000, "rate": fixed_mixing.LOWER})]


def test_what_the_lesson_draws_is_whole():
    stored = json.loads(STORED.read_text())["experiments"]["fixed_mixing"]
    found = {row["figure"]: row["measured"] for row in stored}
    assert list(found) == fixed_mixing.figures(quick=False)
    every, still_open = len(PROBLEMS) * len(ARMS), sum(map(len, fixed_mixing.OPEN.values()))
    assert len(found) == len(SEEDS) * (2 * every + 2 * still_open)
    assert all(0 <= score <= 100 for score in found.values())
