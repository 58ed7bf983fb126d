"""`python -m attnlab.experiments [name …]`."""

import sys
from collections.abc import Sequence

from attnlab import experiments
from attnlab.measure import command

_DESCRIPTION = """Train the grids of small models that the lessons show, and print one row for each
score. `--list` shows the experiments."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = command.parser(experiments, "experiment", _DESCRIPTION).parse_args(arguments)
    return command.main(experiments, "experiment", options)


if __name__ == "__main__":
    sys.exit(main())
