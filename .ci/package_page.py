"""README.md as the page of the package: PyPI does not know the repository's files.

Hatchling calls `CustomMetadataHook` whenever it builds or installs the package.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]\[]*\]|\])\((?!https?:|#|mailto:)([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        home = settings["tool"]["attnlab"]
        text = (root / "README.md").read_text(encoding="utf-8")
        page = with_whole_links(text, home["slug"], home["branch"])
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def with_whole_links(text: str, slug: str, branch: str) -> str:
    """Links to files of the repository as addresses on GitHub; of pictures, those of the bytes."""

    def whole(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        place = f"raw.githubusercontent.com/{slug}" if picture else f"github.com/{slug}/blob"
        return f"{picture}{words}(https://{place}/{branch}/{path})"

    return _LINK.sub(whole, text)
