"""Where things are: in the repository, on the web, and in what is built."""

from dataclasses import dataclass
from pathlib import Path

from attnlab.catalog import shelf
from attnlab.core.home import home

ROOT = Path(__file__).parents[1]
HOME = home(ROOT)


@dataclass(frozen=True)
class Sources:
    """The folder of pages that Sphinx reads; ``extra`` is copied into the site as it is."""

    folder: Path

    @property
    def extra(self) -> Path:
        return self.folder / "_extra"

    def write(self, name: str, text: str) -> None:
        """A page, or a stored output that a page includes."""
        _write(self.folder / name, text)

    def add(self, name: str, content: str | bytes) -> None:
        """A file of the site."""
        _write(self.extra / name, content)


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def address_of(name: str) -> str:
    """Where the page of a card stands on the site, without its ending."""
    mixing = any(card.name == name for card in shelf())
    return f"{'mechanisms' if mixing else 'parts'}/{name}"


def on_the_web(path: str) -> str:
    """The address of a file of the repository where it is published."""
    return f"https://github.com/{HOME.slug}/blob/{HOME.branch}/{path}"


def fenced(text: str, kind: str) -> str:
    """A Markdown block that no backticks within ``text`` can end."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


def html_block(html: str) -> str:
    """HTML as it is, in a Markdown page."""
    return fenced(html, "{raw} html")
