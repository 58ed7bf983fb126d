"""Given words as keys and as values."""

from collections.abc import Sequence

from attnlab_widgets.state_view import StateView


def hostile(words: Sequence[str]) -> StateView:
    return StateView([(word, words[0]) for word in words[:6]] + [(words[0], words[-1])])
