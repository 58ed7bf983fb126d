"""Which checks there are: read from the text of the pages, so that none is imported before it is
used and none is listed by hand."""

import pkgutil
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

# A page of checks begins by saying so. In it each name at the margin that begins with `check_` is
# one; its text begins with a question and perhaps with what the learner writes.
_TITLE = re.compile(r'"""((?:A check|Checks?) of .*?)"""', re.DOTALL)
_DATA = r"(check_\w+) = \w+\("
_FUNCTION = r"def (check_\w+)\((?:.*|\n(?: .*\n)*\).*):"
_QUESTION = r'"+([^"?]*\??(?:\n? +`[^`]*`)?)'
_CHECK = re.compile(rf"^(?:{_DATA}|{_FUNCTION})\n? *{_QUESTION}", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A module of checks: its title, and what each of its checks asks."""

    module: str
    title: str
    questions: dict[str, str]


def pages_of(package: str, path: Iterable[str]) -> list[Page]:
    """The pages of checks in a package, in the order of the lessons that their titles name."""
    pages = []
    for found in pkgutil.iter_modules(path):
        text = _source(f"{package}.{found.name}")
        title = _TITLE.match(text)
        if title:
            asked = {a or b: _one_line(question) for a, b, question in _CHECK.findall(text)}
            pages.append(Page(f"{package}.{found.name}", _one_line(title[1]), asked))
    return sorted(pages, key=lambda page: re.findall(r"\d\d", page.title))


def table(pages: Iterable[Page]) -> str:
    """What there is to check, as text: a paragraph for each page, a line for each check."""
    lines = []
    for page in pages:
        lines += ["", *textwrap.wrap(page.title, 98), ""]
        for name, question in page.questions.items():
            lines += textwrap.wrap(
                question, 98, initial_indent=f"    {name:<29} ", subsequent_indent=" " * 34
            )
    return "\n".join(lines)


def _source(module: str) -> str:
    spec = find_spec(module)
    get = getattr(spec.loader, "get_source", None) if spec else None
    return (get(module) if get else None) or ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
