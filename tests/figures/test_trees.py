"""Trees as text and as SVG."""

import re
from base64 import b64decode
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnlab.figures.theme import DARK, LIGHT
from attnlab.figures.trees import draw_tree, tree_text
from attnlab.structures.tree import Tree

BARKS = Tree.read("(S (NP the dog) (VP barks))")
WORD = st.text("abcdéX_", min_size=1, max_size=9)
NESTED = st.recursive(
    WORD,
    lambda child: st.tuples(WORD, st.lists(child, min_size=1, max_size=4)).map(
        lambda pair: [pair[0], *pair[1]]
    ),
    max_leaves=13,
)


def test_a_sentence_as_text() -> None:
    lines = [
        "        S",
        "    ┌───┴────┐",
        "   NP       VP",
        "  ┌─┴──┐     │",
        " the  dog  barks",
    ]
    assert str(draw_tree(BARKS)).splitlines() == lines
    assert tree_text(Tree("dog")) == " dog"
    assert tree_text(Tree.read("(NP dog)")).splitlines() == [" NP", "  │", " dog"]


def test_an_only_child_stands_under_its_parent() -> None:
    lines = tree_text(Tree.read("(ABCDE (N a b))")).splitlines()
    assert lines == [" ABCDE", "   │", "   N", "  ┌┴─┐", "  a  b"]


def test_a_long_label_stays_above_its_own_subtree() -> None:
    right = "(abcdefghijkl a (M a (M a (M a (M a a)))))"  # the middle of its children is far left
    lines = tree_text(Tree.read(f"(R (ABCDEFGHIJKL (K x y)) {right})")).splitlines()
    assert lines[2].split() == ["ABCDEFGHIJKL", "abcdefghijkl"]


def test_a_wide_tree_is_an_outline() -> None:
    words = ["word"] * 29
    text = tree_text(Tree.of(["S", ["NP", *words], ["VP", "runs", "on"]]))
    lines = text.splitlines()
    assert lines[:3] == ["S", "├── NP", "│   ├── word"]
    assert lines[-4:] == ["│   └── word", "└── VP", "    ├── runs", "    └── on"]
    assert len(lines) == 3 + 29 + 2


@given(NESTED)
@example(["X", "X" * 8, ["X", *["X" * 8] * 20]])
def test_each_level_of_the_text_names_its_nodes_from_left_to_right(nested: Any) -> None:
    tree = Tree.of(nested)
    lines = tree_text(tree).splitlines()
    if "── " not in lines[-1]:  # else it would be wider than 120 columns, and is an outline
        level = [tree]
        for row in range(0, 2 * tree.depth, 2):
            found = [word for word in lines[row].split() if word != "│"]
            assert found == [node.label for node in level if not node.is_leaf]
            level = [child for node in level for child in node.children]
        assert lines[-1].split() == [leaf.label for leaf in tree.leaves()]


@given(NESTED)
def test_nothing_in_the_picture_overlaps(nested: Any) -> None:
    tree = Tree.of(nested)
    root = ElementTree.fromstring(draw_tree(tree).svg())
    texts = [
        (float(part.get("y")), float(part.get("x")), part.text)
        for part in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert sorted(text for *_, text in texts) == sorted(t.label for t in tree.subtrees())
    for (row, x, text), (next_row, next_x, next_text) in pairwise(sorted(texts)):
        if row == next_row:
            assert next_x - x >= 13 * 0.6 * (len(text) + len(next_text)) / 2
    wide = float(root.get("width"))
    for _, x, text in texts:
        assert 0 <= x - 3.9 * len(text) < x + 3.9 * len(text) <= wide
    paths = list(root.iter("{http://www.w3.org/2000/svg}path"))
    assert len(paths) == len(texts) - 1
    high = float(root.get("height"))
    for path in paths:
        assert all(0 < float(y) < high for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path.get("d")))


@pytest.mark.parametrize(("theme", "look"), [("light", LIGHT), ("dark", DARK), ("auto", LIGHT)])
def test_the_picture_follows_the_theme(theme: str, look: Any) -> None:
    drawing = draw_tree(BARKS, title="A sentence", theme=theme)
    assert f'fill="{look.paper}"' in drawing.svg()
    assert f'fill="{look.ink}"' in drawing.svg()
    assert ">A sentence</text>" in drawing.svg()
    assert drawing._repr_svg_() == drawing.svg()


def pictures(page: str) -> list[str]:
    """The SVGs of the images in a page, those of its style sheet first."""
    return [b64decode(one).decode() for one in re.findall(r"svg\+xml;base64,([\w+/=]+)", page)]


def test_a_notebook_shows_an_image_with_its_words() -> None:
    """JupyterLab's sanitiser lets an image pass, and neither a style sheet nor an SVG."""
    light, dark, auto = (
        draw_tree(BARKS, title="A sentence", theme=theme) for theme in ("light", "dark", "auto")
    )
    for drawing in (light, dark):
        page = drawing._repr_html_()
        assert page.startswith("<img ")
        assert pictures(page) == [drawing.svg()]
        assert f'alt="{drawing.description}"' in page
    style, image = auto._repr_html_().split("</style>")
    assert pictures(style) == [dark.svg()]
    assert pictures(image) == [light.svg()]
    (name,) = re.findall(r'class="([\w-]+)"', image)
    assert f"[data-jp-theme-light=false],.vscode-dark,html[theme=dark]) .{name}{{" in style
    other = draw_tree(BARKS, theme="auto")._repr_html_()
    assert name not in other


def test_it_is_described_in_words() -> None:
    drawing = draw_tree(BARKS, title="A sentence")
    assert drawing.description == (
        "A sentence. A tree of 3 leaves and 3 nodes, 2 deep: (S (NP the dog) (VP barks))"
    )
    assert f'aria-label="{drawing.description}"' in drawing.svg()


def test_labels_are_not_read_as_html() -> None:
    tree = Tree("<b>", (Tree("a\nb"), Tree("$x$")))
    drawing = draw_tree(tree, title="<i>")
    page, picture = drawing._repr_html_(), drawing.svg()
    for text in (page, picture):
        assert "<b>" not in text
        assert "<i>" not in text
    assert "a↵b" in picture
    ElementTree.fromstring(draw_tree(tree).svg())
    assert len(tree_text(tree).splitlines()) == 3


def chain(depth: int) -> Tree:
    tree = Tree("a")
    for _ in range(depth):
        tree = Tree("A", (tree,))
    return tree


def test_deep_trees_are_drawn_or_refused() -> None:
    assert tree_text(chain(1000)).count("A") == 1000
    assert draw_tree(chain(1000)).svg().count("</text>") == 1001
    for draw in (draw_tree, tree_text):
        with pytest.raises(ValueError, match="10,001 nodes and leaves; at most 1,024 can be seen"):
            draw(chain(10_000))
        with pytest.raises(TypeError, match="`tree` should be a Tree, got a list; see"):
            draw(["S", "a"])
    with pytest.raises(ValueError, match="theme 'drak'; did you mean 'dark'"):
        draw_tree(BARKS, theme="drak")
