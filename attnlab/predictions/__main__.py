"""``python -m attnlab.predictions LESSON [--seal FILE]``: read and write the predictions."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.predictions import FOLDER, of_lesson, plainly, sealed
from attnlab.predictions import __doc__ as ABOUT


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attnlab.predictions",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", help="the two digits of a lesson, such as 12")
    parser.add_argument(
        "--seal", metavar="FILE", help="JSON as it is printed, or - for what is typed"
    )
    options = parser.parse_args(arguments)
    if options.seal is None:
        print(plainly(of_lesson(options.lesson)), end="")
        return 0
    try:
        plain = sys.stdin.read() if options.seal == "-" else Path(options.seal).read_text("utf-8")
        content = sealed(plain)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"Nothing was written: {error}", file=sys.stderr)
        return 2
    (FOLDER / f"{options.lesson}.json").write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
