"""`merge`: the files of several processes as one file."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.core.files import checked_place
from attnlab.measure.tables import in_turn, merged, write


def main(program: str, kind: str, arguments: Sequence[str]) -> int:
    """`kind` is what a table of the files is of, "topic" or "experiment"; 2 where files disagree
    or cannot be read."""
    made = argparse.ArgumentParser(
        prog=f"{program} merge",
        description="Join the files that several processes have written with --part and --json. "
        "Rows are known by their figures; where two files disagree about one, nothing is written.",
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files to join")
    made.add_argument("--json", type=Path, metavar="FILE", required=True, help="write all there")
    options = made.parse_args(arguments)
    try:
        with in_turn(checked_place(options.json)):  # its rows may be among those that are joined
            if options.json.exists() and options.json not in options.files:
                raise ValueError(f"{options.json} is there already: name it among the files, too")
            together = merged(options.files, f"{kind}s")
            write(options.json, together)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    counts = {name: len(rows) for name, rows in together[f"{kind}s"].items()}
    print("\n".join(f"{name}: {count:,} rows" for name, count in counts.items()))
    return 0
