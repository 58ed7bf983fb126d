"""Bracketed text, as in the Penn Treebank, and the nested lists that it stands for.

    (S (NP the dog) (VP barks))    ↔    ["S", ["NP", "the", "dog"], ["VP", "barks"]]

An opening bracket is followed by a label and the children; what stands without a bracket is a leaf.
White space only separates. A bracket inside a label is written -LRB- or -RRB-, as in the treebank,
and the empty bracket that the treebank puts around every sentence, "( (S …))", is left out.

M. Marcus, B. Santorini, M. A. Marcinkiewicz: Building a large annotated corpus of English: the Penn
Treebank. Computational Linguistics 19(2), 1993.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_TOKEN = re.compile(r"[()]|[^\s()]+")
_SHOWN = 60  # characters of a line on either side of an error


def read(text: str) -> Any:
    """The nested lists of the one tree in ``text``, or the word of the one leaf.

    Raises ValueError, with line and column, where the text is not exactly one tree.
    """
    _check_text(text)
    tokens = _TOKEN.findall(text)
    if len(tokens) == 1 and tokens[0] not in "()":
        return _unescaped(tokens[0])
    found = None
    for start, tree in _trees(text):
        if found is not None:
            _refuse(text, start, "a second tree begins here; read_all reads several trees")
        found = tree
    if found is None:
        raise ValueError("there is no tree in the text; write one such as (NP the dog)")
    return found


def read_all(text: str) -> Iterator[Any]:
    """The nested lists of every tree in ``text``, one after another.

    Raises ValueError, with line and column, when it comes to what is not a tree.
    """
    _check_text(text)
    for _, tree in _trees(text):
        yield tree


def write(nested: Any, escape: Callable[[str], str]) -> str:
    """The text of nested lists on one line, each label as ``escape`` gives it."""
    parts: list[str] = []
    waiting: list[Any] = [nested]
    while waiting:
        item = waiting.pop()
        if item is None:
            parts.append(")")
            continue
        space = " " if parts else ""
        if isinstance(item, str):
            parts.append(space + escape(item))
        else:
            parts.append(f"{space}({escape(item[0])}")
            waiting.append(None)
            waiting.extend(reversed(item[1:]))
    return "".join(parts)


def escaped(label: str) -> str:
    """The label as it is written in bracketed text; ValueError where it would be read otherwise."""
    if not label:
        raise ValueError("an empty label cannot be written in brackets; give the node a label")
    if re.search(r"\s", label):
        raise ValueError(
            f"the label {label!r} holds white space, which separates labels in brackets; make each "
            "word a leaf of its own, or join them by a sign such as '_'"
        )
    written = label.replace("(", "-LRB-").replace(")", "-RRB-")
    if _unescaped(written) != label:
        raise ValueError(
            f"the label {label!r} would be read back as {_unescaped(written)!r}: -LRB- and -RRB- "
            "stand for brackets; write the brackets themselves in the label"
        )
    return written


def shown(label: str) -> str:
    """The label as ``escaped`` writes it, in quotation marks where it cannot be written."""
    try:
        return escaped(label)
    except ValueError:
        return repr(label)


def _trees(text: str) -> Iterator[tuple[int, Any]]:
    """Where each tree of the text begins, and its nested lists."""
    opened: list[tuple[int, list[Any]]] = []  # brackets that are not closed, and their contents
    for match in _TOKEN.finditer(text):
        token, place = match[0], match.start()
        if token == "(":
            _check_labelled(text, opened)
            opened.append((place, []))
        elif not opened and token == ")":
            _refuse(text, place, "this bracket closes none; remove it, or open one before it")
        elif not opened:
            _refuse(text, place, f"{token!r} stands outside all brackets; put it into a tree")
        elif token != ")":
            opened[-1][1].append(_unescaped(token))
        else:
            start, content = opened.pop()
            tree = _closed(text, start, content)
            if opened:
                opened[-1][1].append(tree)
            else:
                yield start, tree
    if opened:
        count, start = len(opened), opened[-1][0]
        what = "1 bracket is" if count == 1 else f"{count} brackets are"
        last = "it was opened" if count == 1 else "the last of them was opened"
        _refuse(text, start, f"{what} never closed, and {last} here; add {')' * min(count, 9)!r}")


def _check_labelled(text: str, opened: list[tuple[int, list[Any]]]) -> None:
    """Only the outermost bracket may go without a label before a bracket follows."""
    if len(opened) > 1 and not opened[-1][1]:
        _refuse(text, opened[-1][0], "the label is missing after this bracket: write (NP …)")


def _closed(text: str, start: int, content: list[Any]) -> Any:
    """The tree of a bracket's content: a label and children."""
    if not content:
        _refuse(text, start, "this bracket is empty; write a label and children: (NP the dog)")
    if not isinstance(content[0], str):
        if len(content) > 1:
            _refuse(text, start, "the label is missing after this bracket: write (S …)")
        return content[0]  # the bracket that the treebank puts around a sentence
    if len(content) == 1:
        leaf = escaped(content[0])
        _refuse(text, start, f"the node {leaf} has no children; write a leaf without brackets")
    return content


def _unescaped(token: str) -> str:
    return token.replace("-LRB-", "(").replace("-RRB-", ")")


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"trees are read from a string, got a {type(text).__name__}")


def _refuse(text: str, place: int, sentence: str) -> NoReturn:
    """A ValueError that shows the line and points at the place."""
    number = text.count("\n", 0, place) + 1
    start = text.rfind("\n", 0, place) + 1
    column = place - start
    stop = text.find("\n", place)
    line = text[start : stop if stop >= 0 else len(text)]
    left = max(column - _SHOWN, 0)
    part = re.sub(r"\s", " ", line[left : column + _SHOWN])
    raise ValueError(
        f"line {number}, column {column + 1}: {sentence}\n    {part}\n    {' ' * (column - left)}^"
    )
