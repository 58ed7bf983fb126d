"""The pages of docs/guides/ do what they say: their code runs, in an empty folder."""

import pkgutil
import re
from pathlib import Path

import pytest

import attnlab
from docs import guides
from tools.course.apart import value_apart

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")


def program(guide: Path, folder: Path) -> str:
    """The blocks of a page one after the other; one that begins with a file's name is that file."""
    parts = []
    for block in BLOCK.findall(guide.read_text(encoding="utf-8")):
        if named := FILE.match(block):
            (folder / named[1]).write_text(block, encoding="utf-8")
        else:
            parts.append(block)
    return "\n".join(parts)


def run(folder: Path, code: str, expression: str = "None") -> object:
    """What an expression is after the code, in a process whose folder and errors are its own."""
    before = (
        f"import sys\nsys.path[:0] = {[str(ROOT), str(ROOT / 'widgets')]}\nimport attnlab.train"
    )
    own = "import os, warnings\nwarnings.simplefilter('error')\n"
    own += f"os.chdir({str(folder)!r})\nsys.path.insert(0, {str(folder)!r})\n"
    return value_apart(own + code, expression, before)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_code_of_a_page_runs(guide: Path, tmp_path: Path) -> None:
    run(tmp_path, program(guide, tmp_path))


def test_the_site_has_every_page() -> None:
    assert sorted(guides.ORDER) == [guide.stem for guide in GUIDES]


def test_what_is_public_is_there() -> None:
    said = (ROOT / "docs/guides/public.md").read_text(encoding="utf-8")
    offered = re.search(r"of them in the reference:\n\n(.*?)\n\n", said, re.DOTALL)
    assert offered
    assert re.findall(r"`(\w+)`", offered[1]) == sorted(attnlab.__all__)
    addresses = re.findall(r"`(attnlab(?:\.\w+)+)`", said)
    assert len(addresses) > 15
    for address in addresses:
        pkgutil.resolve_name(address)


def test_what_a_page_takes_from_core_is_there() -> None:
    said = (ROOT / "docs/guides/add_a_mechanism.md").read_text(encoding="utf-8")
    table = said.partition("| name | what it does |")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))
    core = "\n".join(path.read_text() for path in (ROOT / "attnlab/core").rglob("*.py"))
    assert len(names) > 9
    assert [name for name in names if not re.search(rf"^(def|class) {name}\b", core, re.M)] == []


def test_a_mechanism_of_ones_own_keeps_its_claims(tmp_path: Path) -> None:
    program(ROOT / "docs/guides/your_own_mechanism.md", tmp_path)
    few = "equals_naive or future or padding or cost or costs"
    asked = ["-q", "-p", "no:cacheprovider", "-k", few, "test_mymix.py"]
    code = (
        "import contextlib, io, pytest\nwith contextlib.redirect_stdout(io.StringIO()) as said:\n"
        f"    code = int(pytest.main({asked}))"
    )
    ended, said = run(tmp_path, code, "[code, said.getvalue()]")  # type: ignore[misc]
    assert ended == 0, said
    assert re.search(r"\d\d passed", said)
