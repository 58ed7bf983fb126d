"""Receipts: what they show, what is to be written, where each character stands, the splits."""

import sys

import numpy as np
import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.receipts import (
    CHARACTER,
    END,
    ITEMS,
    NEWLINE,
    PROMPTS,
    Receipts,
    _pixels,
    drawn,
)
from attnlab.tasks.sequences import in_split

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789."
DOCUMENTS = Receipts().batch("validation", 211, seed=3)
LINES = Receipts(form="reading").batch("validation", 211, seed=3)


def test_reading_and_parsing_say_what_one_image_shows():
    reading, parsing = Receipts(form="reading"), Receipts()
    assert torch.equal(DOCUMENTS.source, LINES.source)
    first = set()
    for lines, document in zip(LINES.targets, DOCUMENTS.targets, strict=True):
        said, found = reading.said(lines), parsing.said(document)
        assert sorted(said.split("\n")) == sorted(found.values())
        assert list(found) == ["price", "item"]
        assert found["item"] in ITEMS
        first.add(said.split("\n")[0] == found["item"])
    assert first == {True, False}


@pytest.mark.parametrize("form", ["reading", "parsing"])
def test_a_row_begins_with_its_prompt_and_ends_with_its_end(form):
    task = Receipts(form=form, words="letters")
    batch = task.batch("train", 97, seed=0)
    assert (batch.inputs[:, 0] == PROMPTS[form]).all()
    scored = batch.targets != UNSCORED
    assert torch.equal(scored, batch.padding)
    ends = batch.targets[torch.arange(97), scored.sum(1) - 1]
    assert (ends == END).all()
    assert (batch.targets == END).sum() == 97
    read = batch.inputs[0][batch.padding[0]]
    assert task.said(read) == task.said(batch.targets[0])
    words = {task.said(row)["item"] if form == "parsing" else "" for row in batch.targets}
    assert form == "reading" or {3, 4, 5, 6} == {len(word) for word in words}


@pytest.mark.parametrize("patch", [2, 4, 6, 8, 12])
def test_patches_are_the_image_in_reading_order(patch):
    task = Receipts(patch=patch)
    batch = task.batch("validation", 5, seed=3)
    rows, columns = task.grid
    assert batch.source.shape == (5, rows * columns, patch**2) == (5, task.patches, patch**2)
    image = _pixels(batch.source.numpy(), patch)[2]
    wanted = image[patch : 2 * patch, :patch]
    np.testing.assert_array_equal(batch.source[2, columns].numpy().reshape(patch, patch), wanted)
    whole = _pixels(Receipts(patch=4).batch("validation", 5, seed=3).source.numpy(), 4)
    np.testing.assert_array_equal(image, whole[2])


@pytest.mark.parametrize("form", ["reading", "parsing"])
@pytest.mark.parametrize("words", ["groceries", "letters"])
def test_at_the_place_of_an_answer_stands_its_character(form, words):
    task = Receipts(form=form, words=words, examples=29)
    for split in ("train", "validation"):
        batch, places = task.batch(split, 31, seed=5), task.places(split, 31, seed=5)
        images = _pixels(batch.source.numpy(), 4)
        assert places.shape == (31, task.length, 2)
        for image, answers, marks in zip(images, batch.targets, places, strict=True):
            names = task.tokens(answers)
            for name, (row, column) in zip(names, marks.tolist(), strict=True):
                if len(name) != 1 or name == NEWLINE:
                    assert row != row
                    assert column != column
                    continue
                wide, high = CHARACTER
                top, left = int(row - high / 2), int(column - wide / 2)
                shown = image[top : top + high, left : left + wide]
                apart = {each: ((shown < 1) != drawn(each)).sum() for each in CHARACTERS}
                assert min(apart, key=apart.get) == name
                assert apart[name] <= 4  # a neighbour may reach into its cell


def test_every_word_of_the_groceries_and_every_price_is_in_both_splits():
    pairs = np.stack(np.meshgrid(range(1000), range(len(ITEMS)), indexing="ij"), -1).reshape(-1, 2)
    for split in ("train", "validation"):
        prices, items = pairs[in_split(pairs, split)].T
        assert len(set(prices)) == 1000
        assert len(set(items)) == len(ITEMS)
        drawn_rows = Receipts()._rows(split, 97, np.random.default_rng(0))[:, :2]
        assert in_split(drawn_rows, split).all()


def test_no_pair_is_in_both_splits():
    for words in ("groceries", "letters"):
        task = Receipts(words=words)
        pairs = {
            split: {
                tuple(task.said(row).values())
                for seed in range(2)
                for row in task.batch(split, 500, seed).targets
            }
            for split in ("train", "validation")
        }
        assert pairs["train"].isdisjoint(pairs["validation"])


def test_a_few_examples_are_the_same_for_every_seed_and_are_those_of_the_whole():
    def pairs(task, split, seeds):
        return {
            tuple(task.said(row).values())
            for seed in seeds
            for row in task.batch(split, 200, seed).targets
        }

    few = Receipts(examples=17)
    assert pairs(few, "train", [0]) == pairs(few, "train", [1, 2])
    assert 15 <= len(pairs(few, "train", [0])) <= 17
    assert pairs(few, "train", [0]) <= pairs(Receipts(examples=50), "train", range(5))
    assert len(pairs(few, "validation", [0])) > 100
    assert pairs(few, "validation", [0]) == pairs(Receipts(), "validation", [0])


def test_an_example_says_what_it_shows():
    example = Receipts(form="reading").example(1)
    assert example.image.shape == (24, 48)
    first, second = (
        Receipts(form="reading")
        .said(Receipts(form="reading").batch("validation", 1, seed=1).targets[0])
        .split("\n")
    )
    assert example.description == f"From 72 patches the model is to write: {first}, then {second}."
    assert "'price'" in Receipts().example(1).description


def test_what_a_model_writes_is_read_as_far_as_it_can_be():
    task = Receipts()
    row = DOCUMENTS.targets[0]
    assert task.said(row[:6]) == {"price": task.said(row)["price"]}
    assert task.said(row[:4])["text_sequence"].startswith("<s_price>")
    assert task.said(torch.cat([row[row != UNSCORED], row[:3]])) == task.said(row)
    assert Receipts(form="reading").said([END, 3]) == ""


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Receipts(form="read"), "no form 'read'; did you mean 'reading'"),
        (lambda: Receipts(words="books"), "known: groceries, letters"),
        (lambda: Receipts(patch=5), "patch should be 2, 4, 6, 8 or 12, got 5"),
        (lambda: Receipts(shift=3), "shift should be at most 2, so that the longest word fits"),
        (lambda: Receipts(shift=-1), "shift should be at least 0"),
        (lambda: Receipts(examples=0), "examples should be at least 1"),
        (lambda: Receipts(examples=5001), "examples should be at most 5,000, got 5,001"),
    ],
)
def test_what_is_no_receipt_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_without_pillow_a_sentence_names_the_extra(monkeypatch):
    drawn.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs the package pillow.*attnlab\[documents\]"):
        Receipts().batch("train", 1, seed=0)
