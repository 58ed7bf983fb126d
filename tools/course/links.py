"""Links of the lessons and their pages, so that they lead somewhere in a copy of the course."""

import posixpath
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from attnlab.core.home import home
from tools.course.lesson import Notebook, source

ROOT = Path(__file__).parents[2]
_CODE = r"```.*?```|`[^`\n]*`"
_TARGET = re.compile(rf"{_CODE}|(?<=\]\()(?!#|[a-z]+:)([^)\s#]+)(#[^)\s]*)?(?=\))", re.DOTALL)


def whole(words: str, page: str, delivered: Collection[str]) -> str:
    """The Markdown of ``page``, in which each link to a file that is not ``delivered`` is a web
    address. Both are paths in the folder ``notebooks``."""
    place = home(ROOT)

    def target(found: re.Match[str]) -> str:
        if found[1] is None:  # code
            return found[0]
        path = posixpath.normpath(posixpath.join("notebooks", posixpath.dirname(page), found[1]))
        if path.removeprefix("notebooks/") in delivered:
            return found[0]
        return f"https://github.com/{place.slug}/blob/{place.branch}/{path}{found[2] or ''}"

    return _TARGET.sub(target, words)


def linked(notebook: Notebook, delivered: Collection[str] = ()) -> Notebook:
    """The notebook with the links of its texts made whole."""

    def cell(one: Any) -> Any:
        if one["cell_type"] != "markdown":
            return one
        words = whole(source(one), "lesson.ipynb", delivered)
        return dict(one) | {"source": words.splitlines(keepends=True)}

    return dict(notebook) | {"cells": [cell(one) for one in notebook["cells"]]}
