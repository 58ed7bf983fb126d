"""A dozen mechanisms on a short text, and one of given words."""

from collections.abc import Sequence

from attnlab_widgets.wall import Wall

ONLY = (
    *("full", "longformer", "bigbird", "reformer", "linformer", "performer", "retention"),
    *("selective_scan", "lstm", "gtn", "long_t5", "fnet"),
)
"""Of each kind: exact, by a Jacobian, with signs, with summaries, masked, told a structure."""


def example() -> Wall:
    return Wall("a for loop", only=ONLY)


def hostile(words: Sequence[str]) -> Wall:
    """Two mechanisms: the words are the same for all, and each has its maps of them."""
    return Wall(" ".join(words), only=("full", "performer"))
