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
    site, and more with each page. Those of one folder differ only in what is marked as current.
    """
    parents = {
        child: parent for parent, children in app.env.toctree_includes.items() for child in children
    }
    if page not in parents:
        return
    beside = f"{page.rpartition('/')[0]}/-".lstrip("/")

    def marked(**_: Any) -> str:
        found, marks = (
            _tree(app, beside),
            ' current"><a class="current reference internal" href="#">',
        )
        place: str | None = page
        while place is not None:
            link = app.builder.get_relative_uri(beside, place)
            plain = f'"><a class="reference internal" href="{link}">'
            found = found.replace(plain, marks if place == page else f" current{plain}")
            place = parents.get(place)
        return found

    context["toctree"] = marked


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
    app.connect("build-finished", _descriptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
