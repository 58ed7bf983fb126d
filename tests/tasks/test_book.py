"""Book: rows of the documentation with a needle in them, or read twice."""

import numpy as np
import torch

from attnlab.tasks import book
from attnlab.tasks.book import ASK, PIECES, Book


def test_a_needle_is_asked_for_after_it_stands() -> None:
    batch = Book("needle", 200, first=24).batch("validation", 7, seed=0)
    key = (batch.inputs >= PIECES) & (batch.inputs < ASK)
    assert (key.sum(1) == 1).all()
    place = key.int().argmax(1)
    assert (place < 24).all()
    asked = batch.inputs == ASK
    assert torch.equal(asked, batch.targets != -100)
    assert asked[:, -4:].all()
    assert (asked.int().argmax(1) > place).all()
    assert torch.equal(batch.targets.amax(1), batch.inputs[key])


def test_a_text_read_twice() -> None:
    batch = Book("copy", 64).batch("train", 5, seed=1)
    assert torch.equal(batch.inputs[:, :32], batch.inputs[:, 32:])
    assert torch.equal(batch.targets[:, 32:-1], batch.inputs[:, 33:])
    assert (batch.targets[:, :32] == -100).all()
    assert (batch.targets[:, -1] == -100).all()


def test_splits_are_different_texts() -> None:
    train, everything = book.book()
    assert len(train) < len(everything)


def test_training_rows_are_of_the_first_part_of_the_book(monkeypatch) -> None:
    parts = np.arange(300), np.arange(1000, 2000)
    monkeypatch.setattr(book, "book", lambda: parts)
    for split, part in zip(("train", "validation"), parts, strict=True):
        read = Book("copy", 64).batch(split, 5, seed=1).inputs.numpy()
        assert np.isin(read, part).all()
