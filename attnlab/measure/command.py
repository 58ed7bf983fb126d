"""The command line of a folder of modules that each yield rows: benchmarks or experiments.

The folder's modules are found by walking it. The first line of a module's docstring is its title,
and `rows(*, quick, threads)` does the work and yields the rows. A module that also has
`figures(*, quick)`, the names of all rows, and `row(figure, *, quick, threads)` can be interrupted:
its rows are written as they come, and those that the file holds are not measured again.
"""

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from attnlab.core.suggest import suggestion
from attnlab.measure.report import Row, cells, from_plain, machine, machine_line, plain, table


def names(folder: ModuleType) -> list[str]:
    """The modules of the folder that can be run, in alphabetical order."""
    found = (module.name for module in pkgutil.iter_modules(folder.__path__))
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
    program = f"python -m {folder.__name__.removesuffix('.topics')}"
    made = argparse.ArgumentParser(prog=program, description=description)
    made.add_argument("names", nargs="*", metavar=kind, help=f"default: all {kind}s")
    made.add_argument("--list", action="store_true", help=f"show the {kind}s and stop")
    made.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    made.add_argument("--markdown", action="store_true", help="print Markdown tables")
    made.add_argument("--threads", type=at_least_one, default=2, help="default: 2")
    return made


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def main(folder: ModuleType, kind: str, options: argparse.Namespace) -> int:
    """List the modules, or run those that `options` name (all by default) and show their rows."""
    if options.list:
        for name in names(folder):
            print(f"{name:12} {title(module(folder, name))}")
        return 0
    if unknown := sorted(set(options.names) - set(names(folder))):
        for name in unknown:
            print(f"there is no {kind} {name!r}{suggestion(name, names(folder))}", file=sys.stderr)
        return 2
    described = machine(options.threads)
    tables: dict[str, object] = {}
    print(machine_line(described))
    if options.quick:
        print("--quick: small sizes and few repeats; these are not the figures to report.")
    for name in sorted(set(options.names)) or names(folder):
        one, rows = module(folder, name), []
        kept = _kept(options.json, f"{kind}s", name, quick=options.quick)
        for row in _rows(one, kept, quick=options.quick, threads=options.threads):
            rows.append(row)
            if row.figure in kept:
                continue
            # shown at once: the table comes after the last row, perhaps minutes later
            print(": ".join(cells(row)[:2]), file=sys.stderr, flush=True)
            if _by_figure(one):
                reached = {row.figure for row in rows}
                later = [row for row in kept.values() if row.figure not in reached]
                tables[name] = [plain(row) for row in (*rows, *later)]
                results = {"machine": described, "quick": options.quick, f"{kind}s": tables}
                write(options.json, results)
        print(f"\n{'## ' if options.markdown else ''}{title(one)}\n")
        print(table(rows, markdown=options.markdown), flush=True)
        tables[name] = [plain(row) for row in rows]
        write(options.json, {"machine": described, "quick": options.quick, f"{kind}s": tables})
    return 0


def _by_figure(one: ModuleType) -> bool:
    """Whether the module measures one named figure at a time, so that it can be interrupted."""
    return hasattr(one, "figures") and hasattr(one, "row")


def _kept(path: Path | None, kinds: str, name: str, *, quick: bool) -> dict[str, Row]:
    """The rows that an interrupted run has left in the file, by their figures."""
    if path is None or not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored.get("quick") is not quick:
        return {}
    return {row["figure"]: from_plain(row) for row in stored[kinds].get(name, ())}


def _rows(one: ModuleType, kept: Mapping[str, Row], *, quick: bool, threads: int) -> Iterator[Row]:
    if not _by_figure(one):
        yield from one.rows(quick=quick, threads=threads)
        return
    for figure in one.figures(quick=quick):
        yield kept.get(figure) or one.row(figure, quick=quick, threads=threads)


def write(path: Path | None, results: dict[str, object]) -> None:
    """Written again after each module, so that a later failure loses nothing."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
