"""Where the repository lives on the web: the one place that badges and links are built from."""

import tomllib
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


class Home(NamedTuple):
    """The repository on the web: ``slug`` is owner and name."""

    slug: str
    branch: str

    def colab(self, path: str) -> str:
        """The badge that opens the notebook at ``path`` on Colab, in Markdown."""
        address = f"https://colab.research.google.com/github/{self.slug}/blob/{self.branch}/{path}"
        picture = "https://colab.research.google.com/assets/colab-badge.svg"
        return f"[![Open in Colab]({picture})]({address})"

    def binder(self, path: str) -> str:
        """The badge that opens the notebook at ``path`` in JupyterLab on Binder, in Markdown."""
        where = quote(f"lab/tree/{path}", safe="")
        address = f"https://mybinder.org/v2/gh/{self.slug}/{self.branch}?urlpath={where}"
        return f"[![Open on Binder](https://mybinder.org/badge_logo.svg)]({address})"


def home(root: Path) -> Home:
    """The slug and branch that pyproject.toml names."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return Home(**settings["tool"]["attnlab"])
