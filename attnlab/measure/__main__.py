"""`python -m attnlab.measure`: a sweep, `compare A.json B.json`, `cache`, `gpu`, or topics."""

import sys
from collections.abc import Sequence

from attnlab.measure import (
    benchmarks,
    cache_command,
    command,
    gpu_command,
    merge_command,
    sweep_command,
)

_DESCRIPTION = """`sweep [name …]`, also with an option of the sweep alone: every mechanism over a
range of lengths (`sweep --help`); `compare A.json B.json` says what two sweeps differ in;
`cache [model …]` what models of Transformers keep for their next token (`cache --help`); `gpu
[name …]` every form on a GPU beside other kernels (`gpu --help`); `merge FILE … --json FILE` joins
files of topics (`merge --help`). With topics: attnlab beside what
it is compared to, each topic in one run, interleaved, medians. `--list` shows the topics."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        return command.helped(command.parser(benchmarks, "topic", _DESCRIPTION))
    if given[0] == "sweep":
        return sweep_command.main(given[1:])
    if given[0] == "cache":
        return cache_command.main(given[1:])
    if given[0] == "gpu":
        return gpu_command.main(given[1:])
    if given[0] == "merge":
        return merge_command.main("python -m attnlab.measure", "topic", given[1:])
    if given[0] == "compare":
        try:
            print(sweep_command.compare(given[1:]))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    options, others = command.parser(benchmarks, "topic", _DESCRIPTION).parse_known_args(given)
    if others or not (options.names or options.list or options.quick or options.all):
        return sweep_command.main(given)
    if "notebooks" in options.names:
        advice = (
            "notebooks are run by a clone of the repository: python -m tools.notebooks [path …]"
        )
        print(advice, file=sys.stderr)
        return 2
    return command.main(benchmarks, "topic", options)


if __name__ == "__main__":
    sys.exit(main())
