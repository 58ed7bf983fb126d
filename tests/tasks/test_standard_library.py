"""Graphs of the standard library: their files are what the readers find in the Python they name."""

import json
import lzma
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.tasks import call_graph, import_graph, standard_library
from attnlab.tasks.standard_library import LIBRARY, NamedGraph, store, stored, stored_from

READERS = [(call_graph.FILE, call_graph.read), (import_graph.FILE, import_graph.read)]
Reader = Callable[[Path], NamedGraph]


def edges(graph: NamedGraph) -> set[tuple[str, str]]:
    """Without those of the one module that is named after the machine."""
    return {pair for pair in graph.named_pairs() if not any("_sysconfigdata" in n for n in pair)}


@pytest.mark.parametrize(("file", "read"), READERS)
def test_a_stored_graph_is_what_its_python_holds(file: str, read: Reader) -> None:
    """All edges where this is the Python that it was read from, two thirds of them on others."""
    theirs, own = edges(stored(file)), edges(read(LIBRARY))
    if platform.python_version() == stored_from(file):
        assert theirs == own
    assert len(theirs & own) > 2 / 3 * len(theirs | own)


@pytest.mark.parametrize(("file", "read"), READERS)
def test_a_stored_graph_is_in_order_and_small(file: str, read: Reader) -> None:
    graph = stored(file)
    assert NamedGraph.of(graph.names, graph.named_pairs()) == graph
    assert Path(standard_library.__file__).with_name(file).stat().st_size < 30_000


def test_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_library, "__file__", str(tmp_path / "page.py"))
    graph = NamedGraph.of(["b", "a", "c", "a"], [("c", "a"), ("a", "b"), ("c", "a"), ("b", "b")])
    store("file", graph)
    assert json.loads(lzma.decompress((tmp_path / "file").read_bytes())) == {
        "python": platform.python_version(),
        "licence": "PSF License Agreement, https://docs.python.org/3/license.html",
        "names": ["a", "b", "c"],
        "pairs": [[0, 1], [1, 1], [2, 0]],
    }
