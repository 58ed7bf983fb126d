"""README.md as the page of the package: PyPI knows neither the repository's files nor formulas.

Hatchling calls `CustomMetadataHook` whenever it builds or installs the package.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]\[]*\]|\])\((?!https?:|#|mailto:)([^)\s]+)\)")
_FORMULA = re.compile(r"\$([^$\n]+)\$")
_PLAIN = (
    (r"\\mathrm\{(\w+)\}", r"\1"),
    (r"\\log\{(.*?\\right\))\}", r"log\1"),
    (r"\\left|\s*\\right", ""),
    (r"\^\{2\}", "²"),
    (r"\\frac\{([^{}]*)\}\{(\w+²?)\}", r"\1 / \2"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1 / (\2)"),
)


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        home = settings["tool"]["attnlab"]
        text = (root / "README.md").read_text(encoding="utf-8")
        page = with_plain_formulas(with_whole_links(text, home["slug"], home["branch"]))
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def with_whole_links(text: str, slug: str, branch: str) -> str:
    """Links to files of the repository as addresses on GitHub; of pictures, those of the bytes."""

    def whole(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        place = f"raw.githubusercontent.com/{slug}" if picture else f"github.com/{slug}/blob"
        return f"{picture}{words}(https://{place}/{branch}/{path})"

    return _LINK.sub(whole, text)


def with_plain_formulas(text: str) -> str:
    """The costs in the tables as plain text: O(h n² (d + e))."""

    def plain(found: re.Match[str]) -> str:
        formula = found[1]
        for pattern, shown in _PLAIN:
            formula = re.sub(pattern, shown, formula)
        return formula

    return _FORMULA.sub(plain, text)
