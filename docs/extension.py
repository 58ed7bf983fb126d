"""What Sphinx is taught: maths as MathML, stored outputs, the tree of pages, search results."""

import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from docs.maths import mathml

_SENTENCES = (nodes.title, nodes.paragraph)
_SMALL = {word.removesuffix("s") for word in SearchEnglish.stopwords}


class _English(SearchEnglish):
    """Each word is stemmed once: of the 146,000 of the site few are different."""

    def stem(self, word: str) -> str:
        return _stemmed(word)


_ONE = SearchEnglish({})


@cache
def _stemmed(word: str) -> str:
    return _ONE.stem(word)


class Stored(nodes.General, nodes.Element):
    """HTML that goes into the page as it is and is not searched: figures and tables of numbers."""


class StoredOutput(Directive):
    """``{stored} path``: the stored output in a file beside the pages."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        environment = self.state.document.settings.env
        path = Path(environment.srcdir) / self.arguments[0]
        environment.note_dependency(str(path))
        return [Stored(html=path.read_text(encoding="utf-8"))]


def _stored(translator: Any, node: Stored) -> None:
    translator.body.append(node["html"])
    raise nodes.SkipNode


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def _navigation(app: Sphinx, page: str, _: str, context: dict[str, Any], __: Any) -> None:
    """The tree of all pages beside a page, from that of its folder.

    Sphinx makes one for each page from the headings of all pages: half of the time of the whole
    site, and more with each page. Those of one folder differ only in what is marked as current,
    which comes last, so that the theme reads the tree of a folder once, too.
    """
    if page in _parents(app):
        beside = _beside(page)
        context["toctree"] = lambda **_: _tree(app, beside)


def _marks(app: Sphinx, page: str, _: str, context: dict[str, Any], __: Any) -> None:
    """The page and those above it are marked in the tree."""
    parents = _parents(app)
    place: str | None = page if page in parents else None
    while place is not None:
        link = app.builder.get_relative_uri(_beside(page), place)
        tree = context["furo_navigation_tree"]
        context["furo_navigation_tree"] = _marked(tree, link, last=place == page)
        place = parents.get(place)


def _marked(tree: str, link: str, *, last: bool) -> str:
    """The tree with the entry of one link as the theme marks it: current, and unfolded."""
    item = (
        r'<li class="(toctree-l\d+)((?: has-children)?)"><a class="reference internal" '
        rf'href="{re.escape(link)}">(.*?</a>)(<input aria-label="[^"]*")?'
    )
    own, here, to = (" current-page", "current ", "#") if last else ("", "", link)

    def marked(found: re.Match[str]) -> str:
        kind, children, title, box = found.groups()
        opened = "" if box is None else f'{box} checked=""'
        return (
            f'<li class="{kind} current{children}{own}"><a class="{here}reference internal" '
            f'href="{to}">{title}{opened}'
        )

    return re.sub(item, marked, tree)


def _parents(app: Sphinx) -> dict[str, str]:
    return {
        child: parent for parent, children in app.env.toctree_includes.items() for child in children
    }


def _beside(page: str) -> str:
    """A page of the same folder that is not there."""
    return f"{page.rpartition('/')[0]}/-".lstrip("/")


@cache
def _tree(app: Sphinx, page: str) -> str:
    """The tree for a page that is not in it, so that nothing is current."""
    options = {"collapse": False, "titles_only": True, "maxdepth": -1, "includehidden": True}
    builder: Any = app.builder
    return builder._get_local_toctree(page, **options)


def _descriptions(app: Sphinx, failed: Exception | None) -> None:
    """A script, since a page on disk may not fetch: what each page is, for the search results, and
    which terms each lesson says often, for their order (``scorer.js``)."""
    if failed or app.builder.name != "html":
        return
    known = {
        f"{name}.html": metadata["description"]
        for name, metadata in app.env.metadata.items()
        if metadata.get("description")
    }
    phrases = {
        f"{name}.html": _phrases(app.env.get_doctree(name))
        for name in sorted(app.env.found_docs)
        if name.startswith("lessons/")
    }
    target = Path(app.outdir) / "_static/descriptions.js"
    target.write_text(
        f"window.attnlabPages = {json.dumps(known)};\nwindow.attnlabPhrases = "
        f"{json.dumps(phrases, ensure_ascii=False)};\n",
        encoding="utf-8",
    )


def _phrases(page: nodes.document) -> dict[str, int]:
    """The forty terms of two words that a lesson's sentences say most often, without the s of a
    plural, and how often each is said."""
    said = "\n".join(
        part.astext() for part in page.findall(lambda part: isinstance(part, _SENTENCES))
    )
    words = [word.removesuffix("s") for word in re.findall(r"[^\W\d_]+|[^\w\s]", said.lower())]
    pairs = Counter(
        f"{first} {second}"
        for first, second in pairwise(words)
        if first.isalpha() and second.isalpha() and not {first, second} & _SMALL
    )
    return {pair: times for pair, times in pairs.most_common(40) if times > 2}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Stored, html=(_stored, None))
    app.add_directive("stored", StoredOutput)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("html-page-context", _navigation, priority=400)  # before that of the theme
    app.connect("html-page-context", _marks, priority=600)  # behind it
    app.add_search_language(_English)
    app.connect("build-finished", _descriptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
