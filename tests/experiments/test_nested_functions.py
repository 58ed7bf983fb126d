"""Nested functions: what is asked is new, of one length, and of the numbers that it says."""

from attnlab.experiments import nested_functions as nested
from attnlab.tasks.pcfg import Pcfg


def test_expressions_have_the_functions_and_words_that_they_should():
    for number in nested.NUMBERS:
        asked = nested.expressions(number, 37)
        assert len({*asked}) == 37
        assert {nested.functions_of(each) for each in asked} == {number}
        assert {len(each.split()) for each in asked} <= {9, 10, 11, 12}


def test_what_is_asked_was_not_trained_on_and_its_lengths_were():
    task = nested.TASK
    learned: dict[str, int] = {}
    for seed in range(40):
        batch = task.batch("train", 64, seed)
        for words, real in zip(batch.source, batch.source_padding, strict=True):
            learned[" ".join(task.tokens(words[real]))] = int(real.sum())
    assert not {*learned} & {each for n in nested.NUMBERS for each in nested.expressions(n)}
    assert {nested.functions_of(each) for each in learned} == {1, 2, 3}
    assert {*nested.WORDS} <= {*learned.values()}


def test_letters_in_their_order(monkeypatch):
    monkeypatch.setattr(
        nested, "expressions", lambda *_: ("copy A B", "append A , B", "reverse A B", "echo A")
    )
    assert nested.copied(1, False) == 50


def test_a_model_fits_all_that_is_asked():
    longest = max(len(each.split()) for n in nested.NUMBERS for each in nested.expressions(n))
    assert longest <= nested.build("one to three functions").max_len == Pcfg(1, 3).length
