"""`python -m attnlab.measure`: a sweep, `compare A.json B.json`, topics, `notebooks [path …]`."""

import argparse
import sys
from collections.abc import Sequence

from attnlab.core.files import Unwritten
from attnlab.measure import command, notebooks, sweep_command, topics
from attnlab.measure.report import machine, machine_line

_DESCRIPTION = """`sweep [name …]`, also with an option of the sweep alone: every mechanism over a
range of lengths (`sweep --help`); `compare A.json B.json` says what two sweeps differ in. With
topics: attnlab beside what it is compared to, each topic in one run, interleaved, medians.
`--list` shows the topics. `notebooks [path …]` runs notebooks instead, each in a fresh process,
and prints their seconds and peak memory; it fails over 60 s or 1.5 GB."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        return command.helped(command.parser(topics, "topic", _DESCRIPTION))
    if given[0] == "sweep":
        return sweep_command.main(given[1:])
    if given[0] == "compare":
        try:
            print(sweep_command.compare(given[1:]))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    options, others = command.parser(topics, "topic", _DESCRIPTION).parse_known_args(given)
    if others or not (options.names or options.list or options.quick or options.all):
        return sweep_command.main(given)
    if options.names[:1] == ["notebooks"]:
        return _notebooks(options.names[1:], options)
    if "notebooks" in options.names:
        advice = "notebooks come first and alone: python -m attnlab.measure notebooks [path …]"
        print(advice, file=sys.stderr)
        return 2
    return command.main(topics, "topic", options)


def _notebooks(paths: Sequence[str], options: argparse.Namespace) -> int:
    profiles = []
    try:
        found = notebooks.find(paths)
        command.held(options.json, "notebooks")
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    for path in found:
        print(f"running {path} …", file=sys.stderr, flush=True)
        profiles.append(notebooks.profile(path, threads=options.threads))
    print(machine_line(machine(options.threads)))
    print(f"\n{notebooks.report(profiles, markdown=options.markdown)}")
    rows = [
        {"path": str(one.path), "seconds": one.seconds, "peak_bytes": one.peak_bytes}
        | {"verdict": one.verdict()}
        for one in profiles
    ]
    try:
        command.write(options.json, {"machine": machine(options.threads), "notebooks": rows})
    except Unwritten as error:
        print(error, file=sys.stderr)
        return 2
    return int(any(profiled.verdict() != "ok" for profiled in profiles))


if __name__ == "__main__":
    sys.exit(main())
