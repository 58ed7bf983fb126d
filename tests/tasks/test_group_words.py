"""Words of a group: products by hand, what the symbols are, and which options are refused."""

import numpy as np
import pytest
import torch

from attnlab.tasks.group_words import GROUPS, GroupWords, elements, product_table
from attnlab.tasks.sequences import in_split


def test_a_row_by_hand(monkeypatch):
    """Exchange objects 1 and 2, then the objects on places 2 and 3, then nothing, then the latter
    again."""
    task = GroupWords(length=11, group="S3")
    names = task.tokens(range(6))
    assert names == ["123", "132", "213", "231", "312", "321"]
    word = np.array([[2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]])
    monkeypatch.setattr("attnlab.tasks.group_words.draw_contents", lambda *_: word)
    batch = task.batch("train", 1, seed=0)
    assert batch.inputs.tolist() == word.tolist()
    # Object 1 goes to place 2 and on to 3, object 2 to place 1, object 3 to place 2.
    assert task.tokens(batch.targets[0])[:4] == ["213", "312", "312", "213"]


def test_z2_is_parity_and_z5_a_sum_modulo_5():
    for group, size in (("Z2", 2), ("Z5", 5)):
        batch = GroupWords(length=13, group=group).batch("train", 101, seed=0)
        assert torch.equal(batch.targets, batch.inputs.cumsum(1) % size)
        assert set(batch.inputs.flatten().tolist()) == set(range(size))


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_is_that_of_matrices(group):
    every, table = elements(group), product_table(group)
    n = every.shape[1]
    as_matrix = np.eye(n, dtype=int)[every]  # row: object, column: its place
    assert np.array_equal(every[0], np.arange(n))
    for first in range(0, len(every), 7):
        for second in range(0, len(every), 5):
            product = as_matrix[first] @ as_matrix[second]
            assert np.array_equal(as_matrix[table[first, second]], product)
    assert len(every) == {"Z2": 2, "Z3": 3, "Z5": 5, "S3": 6, "S4": 24, "S5": 120, "A5": 60}[group]


def test_exchanges_reach_every_permutation():
    task = GroupWords(length=17, group="S4", swaps=True)
    assert len(task.symbols) == 1 + 6
    batch = task.batch("train", 503, seed=0)
    assert set(batch.inputs.flatten().tolist()) == set(task.symbols.tolist())
    assert set(batch.targets.flatten().tolist()) == set(range(24))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_word_decides_the_split(split):
    batch = GroupWords(length=13, group="S3").batch(split, 307, seed=0)
    assert in_split(batch.inputs.numpy(), split).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": "S6"}, "group should be one of|group"),
        ({"group": "A5", "swaps": True}, "group='A5' has only some of them"),
        ({"length": 7}, "only 128 different sequences"),
        ({"length": 0}, "length should be at least 2"),
    ],
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        GroupWords(**options)


def test_its_example_tells_the_last_product():
    example = GroupWords(length=11, group="Z3").example()
    assert example.title == "A word of 11 elements of Z3"
    assert example.description.endswith(f"it is {example.labels[-1]}.")
