"""Every picture is XML and can be sent as UTF-8, whatever the texts in it hold."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import attnlab
from attnlab.figures.graphs import draw_graph
from attnlab.figures.stacks import draw_stacks
from attnlab.figures.trees import draw_tree
from attnlab.structures.graph import Graph
from attnlab.structures.tree import Tree
from tests.test_bad_calls import FIGURES, figures

ODD = "a\x00\x07\x1b\ud800\udfff\ufffe<b>&'\"$x$ end"


def graph():
    places = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return draw_graph(Graph(2, [(0, 1)]), places, {ODD: [0, 1]}, names=[ODD, "b"], title=ODD)


DRAWN = {
    "tree": lambda: draw_tree(Tree(ODD, (Tree(ODD), Tree("b"))), title=ODD),
    "graph": graph,
    "stacks": lambda: draw_stacks({ODD: [["red"]]}, title=ODD),
    **{
        name: (lambda draw=draw, name=name: draw(**{**FIGURES[name], "title": ODD}))
        for name, draw in figures().items()
    },
}


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_are_valid_whatever_their_texts(name, tmp_path):
    picture = DRAWN[name]()
    drawn = picture.svg()
    assert " end" in "".join(ElementTree.fromstring(drawn.encode()).itertext())
    (picture._repr_html_() if name in ("tree", "graph", "stacks") else picture.folded()).encode()
    if hasattr(picture, "save_html") and name == "heat_map":
        picture.save_html(tmp_path / "page.html")


def test_text_is_escaped_in_one_place():
    own = Path(attnlab.__file__).parent / "core" / "markup.py"
    for home in ("attnlab", "attnlab_widgets"):
        folder = Path(__import__(home).__file__).parent
        for file in folder.rglob("*.py"):
            if file != own:
                text = file.read_text(encoding="utf-8")
                assert "from html import escape" not in text, file
                assert "html.escape(" not in text, file
