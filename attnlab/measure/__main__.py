"""`python -m attnlab.measure [topic …]` and `python -m attnlab.measure notebooks [path …]`."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attnlab.core.suggest import suggestion
from attnlab.measure import notebooks, topics
from attnlab.measure.report import Row, cells, machine, machine_line, plain, table

_DESCRIPTION = """Measure attnlab beside what it is compared to: each topic in one run, interleaved,
medians. `--list` shows the topics. `notebooks [path …]` runs notebooks instead, each in a fresh
process, and prints their seconds and peak memory; it fails over 60 s or 1.5 GB."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        for name, topic in topics.topics():
            print(f"{name:12} {topics.title(topic)}")
        return 0
    if options.names[:1] == ["notebooks"]:
        return _notebooks(options.names[1:], options)
    return _topics(options.names, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m attnlab.measure", description=_DESCRIPTION)
    parser.add_argument("names", nargs="*", metavar="topic", help="default: all topics")
    parser.add_argument("--list", action="store_true", help="show the topics and stop")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--threads", type=_at_least_one, default=2, help="default: 2")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def _topics(wanted: Sequence[str], options: argparse.Namespace) -> int:
    unknown = sorted(set(wanted) - set(topics.names()))
    if unknown:
        known = [*topics.names(), "notebooks"]
        for name in unknown:
            said = f"there is no topic {name!r}{suggestion(name, known)}"
            if name == "notebooks":
                said = (
                    "notebooks come first and alone: python -m attnlab.measure notebooks [path …]"
                )
            print(said, file=sys.stderr)
        return 2
    described = machine(options.threads)
    results: dict[str, object] = {"machine": described, "quick": options.quick, "topics": {}}
    print(machine_line(described))
    if options.quick:
        print("--quick: small sizes and few repeats; these are not the figures to report.")
    for name, topic in topics.topics():
        if wanted and name not in wanted:
            continue
        rows = list(_told(topic.rows(quick=options.quick, threads=options.threads)))
        print(f"\n{'## ' if options.markdown else ''}{topics.title(topic)}\n")
        print(table(rows, markdown=options.markdown), flush=True)
        results["topics"] |= {name: [plain(row) for row in rows]}  # type: ignore[operator]
        _write(options.json, results)
    return 0


def _told(rows: Iterable[Row]) -> Iterator[Row]:
    """Each figure on stderr as it comes: the table waits for the last, which may take minutes."""
    for row in rows:
        print(": ".join(cells(row)[:2]), file=sys.stderr, flush=True)
        yield row


def _notebooks(paths: Sequence[str], options: argparse.Namespace) -> int:
    profiles = []
    try:
        found = notebooks.find(paths)
    except FileNotFoundError as error:
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
    _write(options.json, {"machine": machine(options.threads), "notebooks": rows})
    return int(any(profiled.verdict() != "ok" for profiled in profiles))


def _write(path: Path | None, results: dict[str, object]) -> None:
    """After each topic, so that a later failure loses nothing."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
