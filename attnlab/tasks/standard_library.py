"""Graphs that were read from the source of Python's standard library, and their files.

Each was read once and comes with attnlab in a small file, so it is the same on every version of
Python. The file states the version that it was read from, and the licence.

**Licence.** Names from Python, Copyright © 2001 Python Software Foundation; all rights reserved;
PSF License Agreement, https://docs.python.org/3/license.html.
"""

import json
import lzma
import platform
import sysconfig
from argparse import ArgumentParser
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Self

from attnlab.core.files import write_file

LIBRARY = Path(sysconfig.get_path("stdlib"))
"""Where the standard library of this Python is."""


class NamedGraph(NamedTuple):
    """Names of nodes in alphabetical order, and pairs (from, to) of their places, each once."""

    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> Self:
        """The graph of nodes and of pairs of them, given by name in any order."""
        ordered = tuple(sorted(set(names)))
        place = {name: index for index, name in enumerate(ordered)}
        return cls(ordered, tuple(sorted({(place[u], place[v]) for u, v in pairs})))

    def named_pairs(self) -> set[tuple[str, str]]:
        """The pairs as those of names."""
        return {(self.names[u], self.names[v]) for u, v in self.pairs}


def stored(file: str) -> NamedGraph:
    """The graph in a file beside this page."""
    contents = _contents(file)
    return NamedGraph(tuple(contents["names"]), tuple((u, v) for u, v in contents["pairs"]))


def stored_from(file: str) -> str:
    """The version of Python that the graph in a file was read from."""
    return str(_contents(file)["python"])


def asked(module: str, file: str) -> bool:
    """Whether a command was told to write its file: it is part of attnlab, and others read it."""
    about = f"Read the standard library of this Python again and replace attnlab's own {file}."
    parser = ArgumentParser(prog=f"python -m attnlab.tasks.{module}", description=about)
    parser.add_argument("--write", action="store_true", required=True, help="do so")
    return bool(parser.parse_args().write)


def store(file: str, graph: NamedGraph) -> None:
    """Write the file, for a graph that was read from this Python."""
    contents = {
        "python": platform.python_version(),
        "licence": "PSF License Agreement, https://docs.python.org/3/license.html",
        "names": graph.names,
        "pairs": graph.pairs,
    }
    write_file(Path(__file__).with_name(file), lzma.compress(json.dumps(contents).encode()))


def _contents(file: str) -> dict[str, Any]:
    packed = (resources.files(__package__) / file).read_bytes()
    return dict(json.loads(lzma.decompress(packed)))
