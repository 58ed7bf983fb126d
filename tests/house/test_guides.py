"""The pages of docs/guides/ do what they say: their code runs, in an empty folder."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import attnlab
from docs import guides

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


def run(folder: Path, *command: str) -> str:
    python = [sys.executable, "-W", "error", *command]
    done = subprocess.run(python, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(autouse=True)
def _this_attnlab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'widgets'}")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_the_code_of_a_page_runs(guide: Path, tmp_path: Path) -> None:
    run(tmp_path, "-c", program(guide, tmp_path))


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
    said = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", few, "test_mymix.py")
    assert re.search(r"\d\d passed", said)
