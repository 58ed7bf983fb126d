"""A short text, and one of given words."""

from collections.abc import Sequence

from attnlab_widgets.wall import Wall


def example() -> Wall:
    return Wall("a for loop")


def hostile(words: Sequence[str]) -> Wall:
    """The beginnings of the words: each letter is a token, of which every mechanism has a map."""
    return Wall("".join(word[:9] for word in words))
