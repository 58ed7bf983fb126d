"""``python -m docs [folder]`` builds the web site into ``folder``, or into site/."""

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from attnlab.core.files import Delivery, Undelivered, add_options, deliver
from docs import front, guides, lessons, mechanisms, parts, reference
from docs.places import ROOT, Sources

PROGRAM = "python -m docs"


def build(target: Path) -> int:
    """Write the pages, then let Sphinx make the site of them; its exit status."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "pages"
        for part in (lessons, mechanisms, parts, guides, reference, front):
            part.write(Sources(folder))
        options = ["-q", "-W", "--keep-going", "-j", "2", "-E", "-b", "html"]
        options += ["-c", str(Path(__file__).parent), "-d", f"{made}/trees"]
        gc.freeze()  # else what is here is looked through for garbage with every few pages
        gc.set_threshold(100_000, 20, 50)
        return build_main([*options, str(folder), str(target)])


def main() -> None:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "site")
    add_options(parser)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as made:
        site = Path(made) / "site"
        delivery = Delivery(site, options.folder, PROGRAM, clear=True, overwrite=options.overwrite)
        try:
            delivery.check()
            if status := build(site):
                sys.exit(status)
            print(deliver(delivery, options))
        except Undelivered as error:
            sys.exit(str(error))
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    spent = time.perf_counter() - began
    print(f"{options.folder / 'index.html'}: {size / 1e6:.0f} MB, built in {spent:.0f} s")


if __name__ == "__main__":
    main()
