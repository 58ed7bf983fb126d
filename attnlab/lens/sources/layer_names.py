"""What the attention layers of a model are called, and which of its sides each belongs to.

A model with an encoder and a decoder has three kinds: "encoder 0", "decoder 0" and "cross 0"; one
with two towers (CLIP) has "text 0" and "vision 0". The numbers are the module's own.
"""

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from attnlab.lens.sides import kind_of

_ORDER = ("encoder", "decoder", "self", "cross")
_TOWER = re.compile(r"_?(model|tower|encoder|transformer|trunk)$")
_VISION = re.compile(r"vision|visual|image|pixel|patch", re.IGNORECASE)
MOST_TOWERS = 4


class Outline(NamedTuple):
    """A layer before its weights are read: its name, and how many queries and keys it has."""

    name: str
    n: int
    m: int


def of_an_image(name: str) -> bool:
    """Whether the name of a layer says that it reads an image."""
    return bool(_VISION.search(name))


def sides(names: Sequence[str]) -> list[str] | None:
    """The side of each layer: "encoder", "decoder" (or "self") and "cross", the name of its tower,
    or None where the model has one side only."""
    found = [_side(name) for name in names]
    if "cross" in found or {"encoder", "decoder"} <= set(found):
        return found
    return _towers(names)


def order(names: Sequence[str]) -> list[int]:
    """The layers by side: those of the encoder, of the decoder, cross-attention; towers as they
    come."""
    found = sides(names)
    if found is None:
        return list(range(len(names)))
    known = [*_ORDER, *dict.fromkeys(found)]
    return sorted(range(len(names)), key=lambda at: known.index(found[at]))


def titles(names: Sequence[str]) -> list[str | None]:
    """What each layer is called beside its side: "cross 1"; None in a model with one side."""
    found = sides(names)
    if found is None:
        return [None] * len(names)
    groups = defaultdict(list)
    for at, side in enumerate(found):
        groups[side].append(at)
    titled: list[str | None] = [None] * len(names)
    for side, places in groups.items():
        for at, number in zip(places, _numbers([names[at] for at in places]), strict=True):
            titled[at] = f"{side} {number}"
    return titled


def short_name(title: str | None, at: int) -> str:
    """The name in few letters: L3, or the side it is on, "enc 0"."""
    side, _, number = (title or "").partition(" ")
    short = {"encoder": "enc", "decoder": "dec"}.get(side, side[:6])
    return f"{short} {number}" if title else f"L{at}"


def pattern_of(fitting: Iterable[str], others: Iterable[str]) -> str | None:
    """What to give as ``only=`` so that the ``fitting`` layers are recorded and no other."""
    names = [_plain(name).split(".") for name in fitting]
    rest = [_plain(name) for name in others]
    if not names or not rest:
        return None
    shared = list(takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False)))
    for length in range(1, len(shared) + 1):
        pattern = ".".join(parts[0] for parts in shared[:length]) + "*"
        if not fnmatch.filter(rest, pattern):
            return pattern
    return None


def _side(name: str) -> str:
    kind = kind_of(name, 1, 1, None, None)
    if kind == "self":
        return "decoder" if re.search(r"(^|[._])decoder([._]|$)", name) else "self"
    return kind


def _towers(names: Sequence[str]) -> list[str] | None:
    """The first part of the paths in which they differ, where it is a word: "text_model"."""
    paths = [_plain(name).split(".") for name in names]
    for parts in zip(*paths, strict=False):
        found = list(dict.fromkeys(parts))
        if len(found) == 1:
            continue
        if len(found) > MOST_TOWERS or any(part.isdigit() for part in found):
            return None
        short = [_TOWER.sub("", part) or part for part in parts]
        return short if len(set(short)) == len(found) else list(parts)
    return None


def _numbers(names: Sequence[str]) -> list[str]:
    """The number of each layer of one side: those in its path that tell it from the others."""
    paths = [re.findall(r"(?<![a-zA-Z])\d+", _plain(name)) for name in names]
    calls = [f" #{name.partition('#')[2]}" if "#" in name else "" for name in names]
    if not paths[0] or len({len(path) for path in paths}) > 1:
        return [str(at) for at in range(len(names))]
    last = max(
        (at for at, parts in enumerate(zip(*paths, strict=True)) if len(set(parts)) > 1), default=0
    )
    return [".".join(path[: last + 1]) + call for path, call in zip(paths, calls, strict=True)]


def _plain(name: str) -> str:
    return name.partition("#")[0]
