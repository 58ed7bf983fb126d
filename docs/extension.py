"""What Sphinx is taught: maths as MathML, stored outputs, and what search says of a page."""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from docs.maths import mathml


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


def _descriptions(app: Sphinx, failed: Exception | None) -> None:
    """A script, since a page on disk may not fetch: what each page is, for the search results."""
    if failed or app.builder.name != "html":
        return
    known = {
        f"{name}.html": metadata["description"]
        for name, metadata in app.env.metadata.items()
        if metadata.get("description")
    }
    target = Path(app.outdir) / "_static/descriptions.js"
    target.write_text(f"window.attnlabPages = {json.dumps(known)};\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Stored, html=(_stored, None))
    app.add_directive("stored", StoredOutput)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _descriptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
