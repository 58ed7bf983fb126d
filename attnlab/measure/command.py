"""The command line of a folder of modules that each yield rows: benchmarks or experiments.

The folder's modules are found by walking it. The first line of a module's docstring is its title,
and `rows(*, quick, threads)` does the work and yields the rows. A module can be interrupted, and
its rows are written as they come, if it also has `figures(*, quick)`, the names of all rows, and
`row(figure, *, quick, threads)`; or `batches(*, quick, threads, kept, mine)`, lists of rows that
are measured together, where `kept` are those that the file holds and that are not measured again,
and `mine()` says of each list, before it is measured, whether it is left to another process.
"""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from attnlab.core.files import Unwritten
from attnlab.core.suggest import suggestion
from attnlab.measure.parts import Mine, Turns, add_part
from attnlab.measure.report import Row, cells, from_plain, machine, machine_line, plain, table
from attnlab.measure.tables import stored, write_rows


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
    shared = {"experiment": "trainings", "topic": "rows that are measured together"}
    add_part(made, shared[kind])
    return made


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
    described, turns = machine(options.threads), Turns(options.part)
    print(machine_line(described))
    if options.quick:
        print("--quick: small sizes and few repeats; these are not the figures to report.")
    try:
        tables = stored(options.json, f"{kind}s", quick=options.quick)
        for name in sorted(set(options.names)) or names(folder):
            one, rows = module(folder, name), []
            kept = {row["figure"]: from_plain(row) for row in tables.get(name, ())}
            place = partial(_place, options, f"{kind}s", name, described)
            for batch in _batches(
                one, kept, turns.mine, quick=options.quick, threads=options.threads
            ):
                rows += batch
                new = [row for row in batch if row != kept.get(row.figure)]
                for row in new:
                    # shown at once: the table comes after the last row, perhaps minutes later
                    print(": ".join(cells(row)[:2]), file=sys.stderr, flush=True)
                if new and _interruptible(one):
                    place(rows, whole=False)
            if rows:  # else all of it is left to other processes
                print(f"\n{'## ' if options.markdown else ''}{title(one)}\n")
                print(table(rows, markdown=options.markdown), flush=True)
                place(rows, whole=options.part.parts == 1)
    except Unwritten as error:
        print(error, file=sys.stderr)
        return 2
    if turns.asked < options.part.number:
        print(options.part.too_many(turns.asked), file=sys.stderr)
        return 2
    return 0


def _place(
    options: argparse.Namespace,
    kinds: str,
    name: str,
    described: Mapping[str, str],
    rows: Sequence[Row],
    *,
    whole: bool,
) -> None:
    """Write the rows of one module that are known so far."""
    write_rows(
        options.json, kinds, name, [plain(row) for row in rows],
        described=described, quick=options.quick, whole=whole,
    )  # fmt: skip


def _interruptible(one: ModuleType) -> bool:
    """Whether the module can go on with the rows that a file holds."""
    return hasattr(one, "batches") or (hasattr(one, "figures") and hasattr(one, "row"))


def _batches(
    one: ModuleType, kept: Mapping[str, Row], mine: Mine, *, quick: bool, threads: int
) -> Iterator[list[Row]]:
    """The rows of the module, those together that are measured together and are `mine`."""
    if hasattr(one, "batches"):
        yield from one.batches(quick=quick, threads=threads, kept=kept, mine=mine)
    elif _interruptible(one):
        for figure in one.figures(quick=quick):
            if mine():
                yield [kept.get(figure) or one.row(figure, quick=quick, threads=threads)]
    elif mine():
        yield from ([row] for row in one.rows(quick=quick, threads=threads))
