"""What is true of each character of a documentation text, read off the text itself.

Nobody has labelled these texts by hand: brackets are counted, a heading is a line that the next
line underlines, and code is indented. So the labels are right wherever the text keeps the rules of
its own markup, and they can be had for any text of this kind. Questions with such labels are asked
of the states of an encoder by ``attnlab.lens.probes``.

``windows(task, split, count, seed)`` draws windows of a ``Documentation`` with a label at each
token; a token is labelled as its last character is.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.tasks import SPLITS
from attnlab.tasks.documentation import Documentation, topics_by_split

MARKS: Mapping[str, str] = {
    "brackets": "inside round, square or curly brackets",
    "heading": "in a line that the next line underlines",
    "code": "in an indented line",
}
PAIRS = {")": "(", "]": "[", "}": "{"}
INDENT = 5
_RULE = re.compile(r"\s*([=*\-~^\"'+#])\1{2,}\s*$")


def inside_brackets(text: str) -> list[bool]:
    """True at the characters between an opening bracket and its own closing one; the brackets
    themselves are not inside. What is still open at an empty line is closed there."""
    found, open_at = [False] * len(text), list[int]()
    for at, character in enumerate(text):
        if character in PAIRS.values():
            open_at.append(at)
        elif character in PAIRS and open_at and text[open_at[-1]] == PAIRS[character]:
            begin = open_at.pop()
            found[begin + 1 : at] = [True] * (at - begin - 1)
        elif text[at : at + 2] == "\n\n":
            open_at.clear()
    return found


def in_heading(text: str) -> list[bool]:
    """True at the characters of a line, without its indent, that the next line underlines. The
    underline is not part of the heading."""
    lines = text.split("\n")
    found = list[bool]()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        heading = bool(_RULE.match(after)) and bool(line.strip()) and not _RULE.match(line)
        indent = len(line) - len(line.lstrip())
        found += [False] * indent + [heading] * (len(line) - indent) + [False]
    return found[: len(text)]


def in_code(text: str) -> list[bool]:
    """True at the characters of a line that is indented by at least 5, without its indent."""
    found = list[bool]()
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        found += [False] * indent + [indent >= INDENT] * (len(line) - indent) + [False]
    return found[: len(text)]


_READERS = {"brackets": inside_brackets, "heading": in_heading, "code": in_code}


def marks(text: str) -> dict[str, list[bool]]:
    """For each of ``MARKS``, whether it holds at each character of a text."""
    return {name: reader(text) for name, reader in _READERS.items()}


class Windows(NamedTuple):
    """Windows of tokens, what is true at each token, and the topic of each window."""

    tokens: Int[Tensor, "b n"]
    marks: Mapping[str, Bool[Tensor, "b n"]]
    topic: Int[Tensor, "b"]


def windows(task: Documentation, split: str, count: int, seed: int) -> Windows:
    """So many windows of ``task.length`` tokens of one topic each, a function of the arguments.

    Raises ValueError for a split that there is not and for a length that no topic has.
    """
    check_choice("split", split, SPLITS)
    check_integer("count", count, at_least=1)
    topics = _marked(task.vocabulary, split)
    room = np.array([max(len(ids) - task.length + 1, 0) for ids, _ in topics])
    if not room.sum():
        raise ValueError(f"no topic of the {split} text has length={task.length} tokens")
    generator = np.random.default_rng([seed, SPLITS.index(split)])
    at = generator.integers(room.sum(), size=count)
    ends = room.cumsum()
    topic = np.searchsorted(ends, at, side="right")
    start = at - (ends - room)[topic]
    tokens, labels = list[np.ndarray](), list[np.ndarray]()
    for which, begin in zip(topic, start, strict=True):
        ids, own = topics[which]
        tokens.append(ids[begin : begin + task.length])
        labels.append(own[:, begin : begin + task.length])
    stacked = torch.from_numpy(np.stack(labels, 1))
    return Windows(
        torch.from_numpy(np.stack(tokens)),
        dict(zip(MARKS, stacked, strict=True)),
        torch.from_numpy(topic),
    )


@lru_cache(maxsize=4)
def _marked(vocabulary: str, split: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The tokens of each topic, and for each mark whether it holds at each token."""
    task = Documentation.from_vocabulary(vocabulary)
    return [_labelled(task, text) for text in topics_by_split()[split].values()]


def _labelled(task: Documentation, text: str) -> tuple[np.ndarray, np.ndarray]:
    ids = task.encode(text)
    sizes = [len(piece) for piece in task._pieces(ids)]
    last = np.cumsum(sizes) - 1
    widths = [len(character.encode()) for character in text]
    of_bytes = [np.repeat(own, widths) for own in marks(text).values()]
    return ids.numpy(), np.stack([own[last] for own in of_bytes])
