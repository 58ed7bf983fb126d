"""What is true of each character of a documentation text."""

import pytest
import torch

from attnlab.tasks.documentation import Documentation
from attnlab.tasks.marked_text import in_code, in_heading, inside_brackets, marks, windows


def marked(text: str, found: list[bool]) -> str:
    assert len(text) == len(found)
    return "".join(
        character if yes else "." for character, yes in zip(text, found, strict=True)
    ).replace("\n", ".")


def test_brackets_are_counted_and_close_at_an_empty_line() -> None:
    def inside(text: str) -> str:
        return marked(text, inside_brackets(text))

    assert inside("f(a[b], {c}) d") == "..a[b], {c}..."
    assert inside("a) b (c") == "......."
    assert inside("(a] b)") == ".a] b."
    assert inside("(a\nb) c") == ".a\nb...".replace("\n", ".")
    assert inside("(a\n\nb) c") == "........"


def test_a_heading_is_underlined_and_its_underline_is_none() -> None:
    text = "Booleans\n********\n\n  Old title\n  =====\nplain\n==\n\n-----\n"
    found = marked(text, in_heading(text))
    assert found.replace(".", "") == "BooleansOld title"
    assert found.index("Old") == text.index("Old")


def test_code_is_indented_by_five() -> None:
    assert marked("a\n    b\n     c d\n", in_code("a\n    b\n     c d\n")) == ".............c d."


def test_marks_are_as_long_as_the_text() -> None:
    text = "Größe (in m)\n============\n\n      x = '€'\n"
    assert {len(each) for each in marks(text).values()} == {len(text)}


def test_windows_are_labelled_where_their_text_is() -> None:
    task = Documentation("bytes", 37)
    found = windows(task, "validation", 200, seed=3)
    assert found.tokens.shape == (200, 37)
    assert found.tokens.dtype == torch.int64
    again = windows(task, "validation", 200, seed=3)
    assert torch.equal(found.tokens, again.tokens)
    assert not torch.equal(found.tokens, windows(task, "validation", 200, seed=4).tokens)
    inside = found.marks["brackets"]
    assert inside.any()
    assert not inside.all()
    # What follows a bracket that opens is inside, unless it is never closed, or closed at once.
    opens = (found.tokens[:, :-1] == ord("(")) & ~inside[:, :-1] & (found.tokens[:, 1:] != ord(")"))
    assert inside[:, 1:][opens].double().mean() > 0.8
    closed = (found.tokens[:, 1:] == ord(")")) & ~inside[:, 1:] & (found.tokens[:, :-1] != ord("("))
    assert inside[:, :-1][closed].double().mean() > 0.8
    elsewhere = inside[(found.tokens < 128) & (found.tokens > 96)].double().mean()
    assert elsewhere < 0.3, "most letters are not inside"
    assert len(found.topic.unique()) > 5


def test_pieces_are_labelled_as_their_last_byte() -> None:
    task = Documentation("bpe", 24, bpe_size=300)
    found = windows(task, "train", 50, seed=0)
    assert found.marks["code"].shape == (50, 24)


def test_wrong_requests_are_refused() -> None:
    task = Documentation("bytes", 16)
    with pytest.raises(ValueError, match="split"):
        windows(task, "test", 3, seed=0)
    with pytest.raises(ValueError, match="count"):
        windows(task, "train", 0, seed=0)
