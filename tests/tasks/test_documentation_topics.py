"""Documentation topics: windows, typing errors, and what the text is cut into."""

import numpy as np
import pytest
import torch

from attnlab.tasks.documentation_topics import (
    WINDOW,
    Topics,
    mistyped,
    parts,
    pieces,
    tokenized,
    vocabulary,
)

UNITS = ("words", "pieces", "bytes")


def test_no_window_of_validation_stands_in_training() -> None:
    every = parts()
    for seed in range(3):
        texts, answers = Topics().texts("validation", 64, seed)
        for text, answer in zip(texts, answers, strict=True):
            assert len(text) == WINDOW
            assert text in every["validation"][answer]
        assert not any(text in part for text in texts for part in every["train"])


def test_windows_are_a_function_of_the_arguments() -> None:
    task = Topics("words", typos=10)
    first, again = (task.batch("train", 7, 3) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(task.batch("train", 7, 4).targets, first.targets)
    plain = [Topics(unit).texts("validation", 9, 1) for unit in UNITS]
    assert plain[0] == plain[1] == plain[2]


def test_typing_errors_are_as_many_as_asked_for() -> None:
    text = "abcdefghij " * 400
    draw = np.random.default_rng(0)
    assert mistyped(text, 0, draw) == text
    typed = mistyped(text, 0.2, draw)
    assert typed.count(" ") == text.count(" ")  # letters change places with spaces, none is lost
    right = sum(word in ("abcdefghij",) for word in typed.split()) / 400
    assert right == pytest.approx(0.8**10, abs=0.06)
    assert mistyped("1 2, 3", 1, draw) == "1 2, 3"
    assert {mistyped("ab", 1, np.random.default_rng(seed))[:2] for seed in range(40)} >= {
        "aa",  # doubled
        "ba",  # exchanged
    }


@pytest.mark.parametrize("unit", UNITS)
def test_pieces_are_the_text(unit: str) -> None:
    text = "for item in zyxwv: print(item)"
    found = pieces(unit, text)
    tokens, padding = tokenized(unit, [text, "for"])
    assert padding[0].sum() == len(found) == tokens.shape[1]
    assert int(tokens.max()) < vocabulary(unit)
    assert 0 < padding[1].sum() < len(found)
    assert ("[zyxwv]" in found) == (unit == "words")
