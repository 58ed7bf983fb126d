"""Word order: the same words in both classes, and a change that can be seen."""

from collections import Counter

import pytest
import torch

from attnlab.tasks.word_order import WordOrder, _sentences, _texts


@pytest.mark.parametrize("change", ["shuffle", "swap"])
def test_what_is_changed(change: str) -> None:
    task = WordOrder(change=change, length=13, words=300)
    batch = task.batch("train", 401, seed=3)
    written = {tuple(s[i : i + 13]) for s in map(list, _sentences("train", 300))
               for i in range(max(len(s) - 13, 0) + 1)}  # fmt: skip
    bags = {}
    for row in written:
        bags.setdefault(tuple(sorted(row)), []).append(row)
    for row, target, real in zip(batch.inputs, batch.targets, batch.padding, strict=True):
        words = tuple(row[real].tolist())
        assert (row[~real] == 0).all()
        assert 6 <= len(words) <= 13
        originals = bags[tuple(sorted(words))]
        if target == 0:
            assert words in written
        else:
            moved = [sum(a != b for a, b in zip(words, o, strict=True)) for o in originals]
            assert min(moved) == 2 if change == "swap" else max(moved) >= 2
    assert 160 < int(batch.targets.sum()) < 240


def test_a_bag_of_words_says_nothing() -> None:
    """Both classes are drawn from the same sentences: word frequencies agree."""
    batch = WordOrder(words=50).batch("train", 4001, seed=1)
    shares = [Counter(batch.inputs[batch.targets == c].flatten().tolist()) for c in (0, 1)]
    for word in range(1, 20):
        one, other = (share[word] / share.total() for share in shares)
        assert abs(one - other) < 0.01


def test_sentences_of_the_splits_are_different() -> None:
    assert not set(_texts("train")) & set(_texts("validation"))
    assert len(_texts("train")) > 1500
    assert len(_texts("validation")) > 100
    assert all(len(words) >= 6 for words in _texts("train"))


def test_words_and_their_tokens() -> None:
    task = WordOrder(words=200)
    assert task.vocab == 202
    ids = task.encode("If the zyzzyva is a Class, the loop ends.")
    assert task.tokens(ids)[:6] == ["if", "the", "?", "is", "a", "class"]
    assert task.tokens(torch.tensor([0, 2])) == ["·", "the"]
    example = task.example(3)
    assert " ".join(word for word in example.tokens if word != "·") in example.description
    assert example.labels[0] in example.title


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match="no change 'reverse'; known: shuffle, swap"):
        WordOrder(change="reverse")
    with pytest.raises(ValueError, match="length should be at least 6"):
        WordOrder(length=5)
    with pytest.raises(ValueError, match="words should be at most"):
        WordOrder(words=100_000)
    with pytest.raises(ValueError, match="there is no word"):
        WordOrder().encode("42 + 1")
