"""Trees of the Natural Language Toolkit (nltk), and the nested lists that they stand for.

nltk itself is needed only to make its trees. Those that are read may be any objects of the same
shape: a node has a method ``label()`` and is iterated over its children, a leaf is a string.
"""

from typing import Any

_LONGEST_PATH = 24  # indices


def nested_of_nltk(tree: Any) -> Any:
    """The nested lists of a tree of nltk.

    Raises TypeError or ValueError for what is no tree, has a label that is no string, a node
    without children, or a node that stands below itself; the sentence names the place as an index,
    ``tree[0][1]``.
    """
    done: list[Any] = []
    above: set[int] = set()  # the nodes from the root down to the present one
    waiting: list[tuple[Any, tuple[Any, ...], int]] = [(tree, (), -1)]  # place: (of parent, index)
    while waiting:
        item, place, count = waiting.pop()
        if count >= 0:
            above.remove(id(item))
            done[-count:] = [[item.label(), *done[-count:]]]
        elif isinstance(item, str) and place:
            done.append(item)
        else:
            children = _children(item, place)
            if id(item) in above:
                raise ValueError(f"{_path(place)} stands below itself; a tree has no such circle")
            above.add(id(item))
            waiting.append((item, place, len(children)))
            pairs = list(enumerate(children))
            waiting.extend((child, (place, index), -1) for index, child in reversed(pairs))
    return done[0]


def nltk_of_nested(nested: Any) -> Any:
    """The ``nltk.Tree`` of nested lists; ImportError where nltk is not installed."""
    try:
        import nltk
    except ImportError as error:
        raise ImportError("trees of nltk need nltk: pip install nltk") from error
    if isinstance(nested, str):
        raise ValueError(
            f"{nested!r} is a leaf alone, which nltk writes as a string, not as a tree; give a "
            "tree with a node"
        )
    done: list[Any] = []
    waiting: list[tuple[Any, bool]] = [(nested, False)]
    while waiting:
        item, children_done = waiting.pop()
        if isinstance(item, str):
            done.append(item)
        elif children_done:
            count = len(item) - 1
            done[-count:] = [nltk.Tree(item[0], done[-count:])]
        else:
            waiting.append((item, True))
            waiting.extend((child, False) for child in reversed(item[1:]))
    return done[0]


def _children(item: Any, place: tuple[Any, ...]) -> list[Any]:
    """The children of what should be a node."""
    if not callable(getattr(item, "label", None)):
        raise TypeError(
            f"{_path(place)} should be a tree of nltk{' or a string' if place else ''}, got "
            f"{item!r}"
        )
    if not isinstance(item.label(), str):
        raise TypeError(
            f"the label of {_path(place)} should be a string, got {item.label()!r}; set it with "
            "set_label(str(…))"
        )
    children = list(item)
    if not children:
        raise ValueError(
            f"{_path(place)}, labelled {item.label()!r}, has no children; make it a string, or "
            "remove it"
        )
    return children


def _path(place: tuple[Any, ...]) -> str:
    """The place as Python writes it: tree[0][1]."""
    indices: list[str] = []
    while place:
        place, index = place
        indices.append(f"[{index}]")
    indices.reverse()
    if len(indices) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        indices[half:-half] = ["…"]
    return "tree" + "".join(indices)
