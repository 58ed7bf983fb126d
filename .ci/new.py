"""A page and its test, copied from a mechanism that is like it, with the names changed.

    make new NAME=hartley FAMILY=convolution LIKE=fnet

What is left to do is in CONTRIBUTING.md and docs/guides/add_a_mechanism.md.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = "attnlab/mechanisms"
CLASS = re.compile(r"^class (\w+)\(.*(?:Module|Attention|Cell|Layer)\):", re.MULTILINE)


def main(given: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    parser.add_argument("name", help="of the mechanism, as in attnlab.build")
    parser.add_argument("family", help="a folder of attnlab/mechanisms")
    parser.add_argument("like", help="a mechanism of one file that is computed in a similar way")
    asked = parser.parse_args(given)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", asked.name):
        parser.error(f"a name is in small letters, digits and _, got {asked.name!r}")
    families = sorted(path.parent.name for path in (root / PAGES).glob("*/__init__.py"))
    if asked.family not in families:
        parser.error(f"there is no family {asked.family!r}; there are {', '.join(families)}")
    pages = {path.stem: path for path in (root / PAGES).glob("*/[a-z]*.py")}
    if asked.like not in pages:
        parser.error(f"there is no page {asked.like}.py; there are {', '.join(sorted(pages))}")
    old = pages[asked.like]
    test = root / "tests/mechanisms" / old.parent.name / f"test_{asked.like}.py"
    made = {
        root / PAGES / asked.family / f"{asked.name}.py": old,
        root / "tests/mechanisms" / asked.family / f"test_{asked.name}.py": test,
    }
    if there := [path for path in made if path.exists()]:
        parser.error(f"{there[0].relative_to(root)} is there already")
    for path, source in made.items():
        path.write_text(renamed(source.read_text(encoding="utf-8"), old, asked), encoding="utf-8")
        print(f"wrote {path.relative_to(root)}")
    print("Now the equation, the story, the card and the test; then `make derived`, `make check`.")
    return 0


def renamed(text: str, old: Path, asked: argparse.Namespace) -> str:
    """With the names of the new mechanism: module, class, card, family; without aliases."""
    new_class = "".join(part.capitalize() for part in asked.name.split("_"))
    found = CLASS.search(old.read_text(encoding="utf-8"))
    for word, other in (
        (f"mechanisms.{old.parent.name}", f"mechanisms.{asked.family}"),
        (rf"\b{old.stem}\b", asked.name),
        (rf'family="{old.parent.name}"', f'family="{asked.family}"'),
        (r"\n    aliases=\([^)]*\),", ""),
        *([(rf"\b{found[1]}\b", new_class)] if found else []),
    ):
        text = re.sub(word, other, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
