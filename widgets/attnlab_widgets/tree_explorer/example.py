"""A tree of given words."""

from collections.abc import Sequence

from attnlab_widgets.tree_explorer import TreeExplorer


def hostile(words: Sequence[str]) -> TreeExplorer:
    return TreeExplorer(["S", *words[:3], ["X", *words[3:]]])
