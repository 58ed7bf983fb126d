"""The file of a command that yields rows: a table for each of its modules, and the machine.

Several processes may write to one file: each puts its rows among those that are there, by the names
of the figures, and they take turns. Files of their own are joined by ``merged``.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from attnlab.core.files import Unwritten, checked_place, read_plain, write_file
from attnlab.measure.report import from_plain

_Tables = dict[str, list[dict[str, Any]]]
_Held = tuple[Path, dict[str, Any]]
"""A row, and the file that it stands in."""
_AND = "; "
"""What stands between the facts of several machines."""


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
        found.get("machine", {}).items()
        for row in chain(*found.get(kinds, {}).values()):
            from_plain(row)
    except (TypeError, AttributeError):
        raise _foreign(path, kinds) from None
    if found and quick and not _is_quick(found):
        raise Unwritten(f"{path} holds rows that --quick would replace: name another file")
    return dict(found.get(kinds, {})) if _is_quick(found) is quick else {}


def _is_quick(found: Mapping[str, Any]) -> bool:
    return found.get("quick") is True


def write_rows(
    path: Path | None,
    kinds: str,
    name: str,
    rows: list[dict[str, Any]],
    *,
    described: Mapping[str, str],
    quick: bool,
    whole: bool = False,
) -> None:
    """Rows of one module, written as they come, so that a later failure loses nothing.

    What the file holds is read anew, as another process may have written meanwhile: rows of other
    modules stay, and those of other figures of this one, unless ``rows`` are the ``whole`` of it.
    The machine is that of the rows: ``described`` where all of them are new, the one that the file
    names where none is, and both where some are.
    """
    if path is not None:
        with in_turn(path):
            before = stored(path, kinds, quick=quick)
            own = {row["figure"] for row in rows}
            others = [row for row in before.get(name, ()) if row["figure"] not in own]
            tables = {**before, name: rows if whole else [*rows, *others]}
            kept, new = _kept_and_new(before, tables)
            machines = ([held(path, kinds)["machine"]] if kept else []) + [described] * (
                new or not kept
            )
            write(path, {"machine": _machine(machines), "quick": quick, kinds: tables})


def _kept_and_new(before: _Tables, after: _Tables) -> tuple[bool, bool]:
    """Whether some of the rows that a file has ``after`` a write stood in it, and whether some did
    not."""
    stood = {
        (name, row["figure"]): from_plain(row) for name, rows in before.items() for row in rows
    }
    found = {
        stood.get((name, row["figure"])) == from_plain(row)
        for name, rows in after.items()
        for row in rows
    }
    return True in found, False in found


def merged(paths: Sequence[Path], kinds: str) -> dict[str, Any]:
    """What the files of several processes hold together, as one file would.

    A row that several files have has to be the same in all of them, except where it could not be
    measured in some. Raises ValueError where files disagree, and `Unwritten` for what is no file
    of ``kinds``.
    """
    found = {path: _whole(path, kinds) for path in paths}
    quick = [str(path) for path, each in found.items() if _is_quick(each)]
    if quick and len(quick) < len(found):
        raise ValueError(f"{', '.join(quick)}: rows of --quick are not joined with others")
    machine = _machine([each["machine"] for each in found.values()])
    if kinds == "topics":
        _check_one(machine)
    tables: dict[str, dict[str, _Held]] = {}
    for path, each in found.items():
        for name, rows in each[kinds].items():
            table = tables.setdefault(name, {})
            for row in rows:
                known = table.get(row["figure"], (path, row))
                table[row["figure"]] = _agreed(name, known, (path, row))
    rows = {name: [row for _, row in tables[name].values()] for name in sorted(tables)}
    return {"machine": machine, "quick": bool(quick), kinds: rows}


def _whole(path: Path, kinds: str) -> dict[str, Any]:
    if not path.is_file():
        raise Unwritten(f"there is no file {path}")
    found = held(path, kinds)
    return {**found, kinds: stored(path, kinds, quick=_is_quick(found))}


def _agreed(name: str, one: _Held, other: _Held) -> _Held:
    """The row of two files: the measured one, if only one of them was measured."""
    (where, row), (place, again) = one, other
    if again["measured"] is None or row == again:
        return one
    if row["measured"] is None:
        return other
    about = f"{row['figure']!r} of {name}"
    if row["measured"] != again["measured"]:
        said = f"{about}: {row['measured']:g} and {again['measured']:g} {row['unit']}".rstrip()
    else:
        field = next(key for key in [*row, *again] if row.get(key) != again.get(key))
        one_says, other_says = (each.get(field, "nothing") for each in (row, again))
        said = f"the {field.replace('_', ' ')} of {about}: {one_says} and {other_says}"
    raise ValueError(
        f"{where} and {place} disagree about {said}; leave out the file whose rows are not to be "
        "kept"
    )


def _machine(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts of all machines, those that differ one after the other; each may be joined of some
    already."""
    names = dict.fromkeys(name for one in each for name in one)
    facts = {name: [str(one.get(name, "none")).split(_AND) for one in each] for name in names}
    return {name: _AND.join(dict.fromkeys(chain(*values))) for name, values in facts.items()}


def _check_one(machine: Mapping[str, str]) -> None:
    """A ValueError for facts of several machines, their loads left out."""
    for name, value in machine.items():
        if _AND in value and not name.startswith("load"):
            raise ValueError(
                f"the files are of different machines ({name}: {value}), and a topic's rows are "
                "compared on one"
            )


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
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
