"""PCFG: each function by hand, and the expressions that are drawn."""

import pytest

from attnlab.tasks import UNSCORED
from attnlab.tasks.pcfg import OF_ONE, OF_TWO, Pcfg, value

BY_HAND = {
    "A": "A",
    "copy A B": "A B",
    "reverse A B C": "C B A",
    "swap A B C D": "D B C A",
    "swap A": "A",
    "repeat A B": "A B A B",
    "echo A B": "A B B",
    "shift A B C": "B C A",
    "append A B , C": "A B C",
    "prepend A B , C": "C A B",
    "remove_first A , B C": "B C",
    "remove_second A , B C": "A",
    "append swap A B C , repeat D E": "C B A D E D E",
    "reverse append A B , shift C D": "C D B A",
    "append append A , B , C": "A B C",
    "append A , append B , C": "A B C",
}


@pytest.mark.parametrize(("expression", "string"), BY_HAND.items())
def test_values_by_hand(expression, string):
    assert value(expression) == string.split()


@pytest.mark.parametrize(
    "expression",
    ["", "copy", "append A", "append A ,", "A , B", "append A , B , C", "turn A", "copy , A", "U"],
)
def test_other_words_are_no_expressions(expression):
    with pytest.raises(ValueError, match="is no expression; one is 'append reverse A B"):
        value(expression)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_batches_hold_what_their_expressions_stand_for(split):
    task, counts = Pcfg(2, 5), set()
    batch = task.batch(split, 211, seed=0)
    for row in range(211):
        words = task.tokens(batch.source[row][batch.source_padding[row]])
        counts.add(sum(word in OF_ONE or word in OF_TWO for word in words))
        asked = batch.targets[row][batch.targets[row] != UNSCORED]
        assert task.tokens(asked) == [*value(" ".join(words)), "end"]
        assert len(asked) <= 25
    assert counts == {2, 3, 4, 5}


def test_an_expression_alone_decides_its_split():
    def expressions(task, split, seed):
        batch = task.batch(split, 64, seed)
        return {
            " ".join(task.tokens(words[real]))
            for words, real in zip(batch.source, batch.source_padding, strict=True)
        }

    sizes = [(1, 1), (1, 2), (1, 3)]
    asked = {each for size in sizes for each in expressions(Pcfg(*size), "validation", 0)}
    for size in sizes:
        learned = {e for seed in range(1, 40) for e in expressions(Pcfg(*size), "train", seed)}
        assert not learned & asked, size


def test_every_function_is_drawn():
    task = Pcfg()
    words = {word for row in task.batch("train", 300, seed=0).source for word in task.tokens(row)}
    assert {*OF_ONE, *OF_TWO, ","} < words


def test_bad_options():
    with pytest.raises(ValueError, match="fewest should be at most most, and most at most 8"):
        Pcfg(3, 2)
    with pytest.raises(ValueError, match="got fewest=1 and most=9"):
        Pcfg(1, 9)
    with pytest.raises(ValueError, match="a list of one expression at least"):
        Pcfg().of("copy A")
