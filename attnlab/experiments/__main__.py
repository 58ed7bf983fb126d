"""`python -m attnlab.experiments [name …]`."""

import sys
from collections.abc import Sequence

from attnlab import experiments
from attnlab.measure import command, merge_command
from attnlab.measure.command import helped

_DESCRIPTION = """Train the grids of small models that the lessons show, and print one row for each
score. `--list` shows the experiments; `merge FILE … --json FILE` joins files of several processes
(`merge --help`)."""


def main(arguments: Sequence[str] | None = None) -> int:
    made = command.parser(experiments, "experiment", _DESCRIPTION)
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] == "merge":
        return merge_command.main(made.prog, "experiment", given[1:])
    return (
        command.main(experiments, "experiment", made.parse_args(given)) if given else helped(made)
    )


if __name__ == "__main__":
    sys.exit(main())
