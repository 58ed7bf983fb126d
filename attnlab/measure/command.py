"""The command line of a folder of modules that each yield rows: benchmarks or experiments.

The folder's modules are found by walking it. The first line of a module's docstring is its title,
and `rows(*, quick, threads)` does the work and yields the rows. A module can be interrupted, and
its rows are written as they come, if it also has `figures(*, quick)`, the names of all rows, and
`row(figure, *, quick, threads)`; or `batches(*, quick, threads, kept)`, lists of rows that are
measured together, where `kept` are those that the file holds and that are not measured again.
"""

import argparse
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from attnlab.core.files import Unwritten, checked_place, read_plain, write_file
from attnlab.core.suggest import suggestion
from attnlab.measure.report import Row, cells, from_plain, machine, machine_line, plain, table


def names(folder: ModuleType) -> list[str]:
    """The modules of the folder that can be run, in alphabetical order; what they share is in the
    folder's ``SHARED``."""
    found = {module.name for module in pkgutil.iter_modules(folder.__path__)}
    found -= set(getattr(folder, "SHARED", ()))
    return sorted(name for name in found if not name.startswith("_"))


def module(folder: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{folder.__name__}.{name}")


def rows_of(folder: ModuleType, *, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of every module of the folder, in alphabetical order."""
    for name in names(folder):
        yield from module(folder, name).rows(quick=quick, threads=threads)


def title(of: ModuleType) -> str:
    return (of.__doc__ or "").strip().splitlines()[0]


def parser(folder: ModuleType, kind: str, description: str) -> argparse.ArgumentParser:
    """`kind` is what one module is called, "topic" or "experiment"."""
    program = f"python -m {folder.__name__.removesuffix('.benchmarks')}"
    made = argparse.ArgumentParser(prog=program, description=description)
    made.add_argument("names", nargs="*", metavar=kind, help=f"{kind}s to run")
    made.add_argument("--all", action="store_true", help=f"run every {kind}")
    made.add_argument("--list", action="store_true", help=f"show the {kind}s and stop")
    made.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    made.add_argument("--markdown", action="store_true", help="print Markdown tables")
    made.add_argument("--threads", type=at_least_one, default=2, help="default: 2")
    add_part(made, f"{kind}s")
    return made


class Part(NamedTuple):
    """One of ``parts`` processes that share a list, from 1."""

    number: int = 1
    parts: int = 1

    def of(self, everything: Sequence[str]) -> list[str]:
        """Every ``parts``-th name: the lists of all parts together are the whole, without overlap.

        Raises ValueError where there are more parts than names.
        """
        if self.parts > len(everything):
            raise ValueError(
                f"--part {self.number}/{self.parts}: there are only {len(everything)} to share; "
                f"use at most {len(everything)} parts"
            )
        return list(everything[self.number - 1 :: self.parts])


def add_part(made: argparse.ArgumentParser, what: str) -> None:
    made.add_argument(
        "--part", type=part, default=Part(), metavar="K/N",
        help=f"only each N-th of the {what}, from the K-th on: one of N processes that share them",
    )  # fmt: skip


def part(text: str) -> Part:
    """``2/8``: the second of eight."""
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return Part(int(number), int(count))
    raise argparse.ArgumentTypeError(f"K/N with K from 1 to N is needed, such as 2/8, got {text!r}")


def helped(made: argparse.ArgumentParser) -> int:
    """What the command can do, for one who asked it for nothing."""
    made.print_help(sys.stderr)
    return 2


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def main(folder: ModuleType, kind: str, options: argparse.Namespace) -> int:
    """List the modules, or run those that `options` name and show their rows; 2 where it cannot."""
    if options.list:
        for name in names(folder):
            print(f"{name:12} {title(module(folder, name))}")
        return 0
    if unknown := sorted(set(options.names) - set(names(folder))):
        for name in unknown:
            print(f"there is no {kind} {name!r}{suggestion(name, names(folder))}", file=sys.stderr)
        return 2
    if bool(options.names) is options.all:
        print(f"name the {kind}s to run (--list shows them), or give --all", file=sys.stderr)
        return 2
    try:
        chosen = options.part.of(sorted(set(options.names)) or names(folder))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    described = machine(options.threads)
    print(machine_line(described))
    if options.quick:
        print("--quick: small sizes and few repeats; these are not the figures to report.")
    try:
        tables = stored(options.json, f"{kind}s", quick=options.quick)
        for name in chosen:
            one, rows = module(folder, name), []
            kept = {row["figure"]: from_plain(row) for row in tables.get(name, ())}
            for batch in _batches(one, kept, quick=options.quick, threads=options.threads):
                rows += batch
                new = [row for row in batch if row.figure not in kept]
                for row in new:
                    # shown at once: the table comes after the last row, perhaps minutes later
                    print(": ".join(cells(row)[:2]), file=sys.stderr, flush=True)
                if new and _interruptible(one):
                    reached = {row.figure for row in rows}
                    later = [row for row in kept.values() if row.figure not in reached]
                    tables[name] = [plain(row) for row in (*rows, *later)]
                    write_rows(
                        options.json, f"{kind}s", name, tables[name], described, options.quick
                    )
            print(f"\n{'## ' if options.markdown else ''}{title(one)}\n")
            print(table(rows, markdown=options.markdown), flush=True)
            tables[name] = [plain(row) for row in rows]
            write_rows(options.json, f"{kind}s", name, tables[name], described, options.quick)
    except Unwritten as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _interruptible(one: ModuleType) -> bool:
    """Whether the module can go on with the rows that a file holds."""
    return hasattr(one, "batches") or (hasattr(one, "figures") and hasattr(one, "row"))


def held(path: Path | None, kinds: str) -> dict[str, Any]:
    """What an earlier run has written to the file, which it may replace; `Unwritten` where that is
    something else, or where no file can be written."""
    try:
        if path is None or not checked_place(path).exists():
            return {}
        found = json.loads(read_plain(path))
        if found["machine"] and found[kinds]:
            return dict(found)
    except OSError as error:
        raise Unwritten(str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise _foreign(path, kinds)


def _foreign(path: Path | None, kinds: str) -> Unwritten:
    return Unwritten(
        f"{path} holds something else than results of {kinds}, or is damaged, and would be "
        "replaced: name another file."
    )


def stored(path: Path | None, kinds: str, *, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows that earlier runs have left in the file, by module, to go on from and to keep."""
    found = held(path, kinds)
    try:
        for row in chain(*found.get(kinds, {}).values()):
            from_plain(row)
    except (TypeError, AttributeError):
        raise _foreign(path, kinds) from None
    if quick and found.get("quick") is False:
        raise Unwritten(f"{path} holds rows that --quick would replace: name another file")
    return dict(found.get(kinds, {})) if found.get("quick") is quick else {}


def _batches(
    one: ModuleType, kept: Mapping[str, Row], *, quick: bool, threads: int
) -> Iterator[list[Row]]:
    """The rows of the module, those together that are measured together."""
    if hasattr(one, "batches"):
        yield from one.batches(quick=quick, threads=threads, kept=kept)
    elif _interruptible(one):
        for figure in one.figures(quick=quick):
            yield [kept.get(figure) or one.row(figure, quick=quick, threads=threads)]
    else:
        yield from ([row] for row in one.rows(quick=quick, threads=threads))


def write_rows(
    path: Path | None, kinds: str, name: str, rows: list[Any], described: Any, quick: bool
) -> None:
    """One module's rows, written as they come, so that a later failure loses nothing. Those of the
    other modules are read anew: another run may have written them meanwhile."""
    if path is not None:
        with _in_turn(path):
            tables = stored(path, kinds, quick=quick) | {name: rows}
            write(path, {"machine": described, "quick": quick, kinds: tables})


@contextmanager
def _in_turn(path: Path) -> Iterator[None]:
    """One process at a time, where the system has locks: the file is replaced, not written to, so
    its folder is what is locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write(path: Path | None, results: dict[str, object]) -> None:
    if path is not None:
        write_file(path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
