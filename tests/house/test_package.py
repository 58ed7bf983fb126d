"""What is installed: the wheel as a user gets it, without this folder and without a network."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import pytest

from attnlab.core.home import home

ROOT = Path(__file__).parents[2]
NO_NETWORK = """
import socket, sys
def refused(*_): raise OSError("there is no network")
socket.socket.connect = socket.getaddrinfo = refused
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is unpacked into; it is built from the source distribution."""
    build = pytest.importorskip("hatchling.build", reason="pip install 'attnlab[test]'")
    folder = tmp_path_factory.mktemp("installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        source = folder / build.build_sdist(str(folder))
        assert source.stat().st_size < 8.5e6, "pyproject.toml says what it needs"
        with tarfile.open(source) as packed:
            packed.extractall(folder, filter="data")
        patch.chdir(folder / source.name.removesuffix(".tar.gz"))
        name = build.build_wheel(str(folder))
    with zipfile.ZipFile(folder / name) as packed:
        packed.extractall(folder)
    return folder


@pytest.fixture
def outside(wheel: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs lines in a process that has the wheel alone, and no network; gives what they print."""

    def run(lines: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", NO_NETWORK + lines],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(wheel)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_every_file_that_a_lesson_loads_is_in_the_wheel(wheel, outside):
    lessons = [path.read_text() for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")]
    found = [re.findall(r'(?:stored|asset)\(\\"([^"]+)\\"', lesson) for lesson in lessons]
    assert sum(map(bool, found)) >= 30
    names = sorted(set().union(*found))
    told = outside(
        "import attnlab, json\nfrom attnlab.experiments import asset\nprint(attnlab.__file__)\n"
        f"for name in {names}: json.loads(asset(name).read_text())"
    )
    assert Path(told.strip()).is_relative_to(wheel)


def test_users_get_the_bundles_and_not_what_they_are_built_from(wheel):
    home = wheel / "attnlab_widgets"
    static = {path.name for path in home.rglob("*.js")}
    ours = {path.name for path in (ROOT / "widgets/attnlab_widgets/static").glob("*.js")}
    assert static == ours == {path.name for path in (home / "static").glob("*.js")}
    assert not [*home.rglob("*.css")]
    (source,) = wheel.glob("attnlab-*/widgets/attnlab_widgets/wall")
    assert {"wall.js", "wall.css", "__init__.py"} <= {path.name for path in source.iterdir()}


def test_type_checkers_read_our_annotations(wheel):
    assert all((wheel / name / "py.typed").is_file() for name in ("attnlab", "attnlab_widgets"))


def test_the_page_of_the_package_has_whole_links(wheel):
    (metadata,) = wheel.glob("*.dist-info/METADATA")
    page = message_from_string(metadata.read_text()).get_payload()
    place = home(ROOT)
    assert not re.findall(r"\]\((?!https://)[^)]*\)", page)
    ours = re.findall(rf"{place.slug}/(?:blob/)?{place.branch}/([^)?#]+)\)", page)
    assert len(ours) > 8
    assert all((ROOT / path).exists() for path in ours)
    pictures = re.findall(r"!\[[^\]]*\]\((https://raw[^)]+\.png)\)", page)
    assert len(pictures) == len(list((ROOT / "docs/images").glob("*.png")))
    assert page.count("$") == 0
