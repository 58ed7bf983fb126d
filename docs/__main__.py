"""``python -m docs [folder]`` builds the web site into ``folder``, or into site/."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from docs import front, guides, lessons, mechanisms, reference
from docs.places import ROOT, Sources

MADE_BY_SPHINX = ".buildinfo"


def build(target: Path) -> int:
    """Write the pages, then let Sphinx make the site of them; its exit status."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "pages"
        for part in (lessons, mechanisms, guides, reference, front):
            part.write(Sources(folder))
        options = ["-q", "-W", "--keep-going", "-j", "2", "-E", "-b", "html"]
        options += ["-c", str(Path(__file__).parent), "-d", f"{made}/trees"]
        return build_main([*options, str(folder), str(target)])


def cleared(target: Path) -> Path:
    """A folder of that name without an earlier site; any other content is refused."""
    if target.is_dir() and any(target.iterdir()):
        if not (target / MADE_BY_SPHINX).is_file():
            raise SystemExit(f"{target} holds something else than a site; name another folder")
        shutil.rmtree(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "site")
    target = cleared(parser.parse_args().folder)
    began = time.perf_counter()
    status = build(target)
    if status:
        sys.exit(status)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    spent = time.perf_counter() - began
    print(f"{target / 'index.html'}: {size / 1e6:.0f} MB, built in {spent:.0f} s")


if __name__ == "__main__":
    main()
