"""A short text, and one of given words."""

from collections.abc import Sequence

from attnlab_widgets.wall import Wall


def example() -> Wall:
    return Wall("a for loop")


def hostile(words: Sequence[str]) -> Wall:
    """Two mechanisms: the words are the same for all, and each has its maps of them."""
    return Wall(" ".join(words), only=("full", "performer"))
