"""The file of a sweep: a row is a JSON object on a line of its own, written when it is known."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnlab.core.files import Unwritten, read_plain

Row = dict[str, Any]
STARTED = "started"
"""The pass of rows that say how many operations both passes start (``gpu_command``)."""
BEGIN = '{"mechanism": '  # of every row
_TEXT, _NUMBERS = str | None, list | None
KINDS: dict[str, Any] = {
    "mechanism": str, "peer": _TEXT, "family": str, "form": _TEXT, "dim": int, "heads": int,
    "causal": bool, "options": dict, "n": int, "pass": str, "seconds": _NUMBERS,
    "baseline_seconds": _NUMBERS, "reason": _TEXT, "device": str, "dtype": str, "threads": int,
    "seed": int, "machine": dict,
}  # fmt: skip
_COUNTED = ("flops", "mixing_flops", "claimed_flops")


def read(path: Path) -> list[Row]:
    """The rows of a file; a line that an interruption cut short is left out."""
    if not os.path.exists(path):
        return []
    try:
        lines = read_plain(path).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as rows of a sweep: {error}") from error
    return [row for number, line in enumerate(lines, 1) if (row := _row(path, number, line))]


def _row(path: Path, number: int, line: str) -> Row | None:
    """None for a line that was cut short."""
    try:
        row = json.loads(line)
        if _is_whole(row):
            return dict(row)
    except (ValueError, RecursionError):
        if line.startswith(BEGIN) or BEGIN.startswith(line):
            return None
    raise ValueError(f"{path}, line {number}, is not a row of a sweep")


def _is_whole(row: Any) -> bool:
    """Whether a row has what is read of it, each in its kind."""
    if not isinstance(row, dict) or not all(n in row and _is(row[n], k) for n, k in KINDS.items()):
        return False
    times = [*(row["seconds"] or ()), *(row["baseline_seconds"] or ())]
    times += [row.get("median")] if row["seconds"] else []
    counts: tuple[str, ...] = _COUNTED if row["pass"] == "counted" and row["reason"] is None else ()
    if row["pass"] == STARTED:
        counts = ("peak",) if row["reason"] else ("peak", "operations")
        times += [row.get("peak")]
    positive = all(_is(each, int | float) and each > 0 for each in (row["n"], *times))
    return positive and all(_is(row.get(name), int | float) for name in counts)


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keeps other sweeps away from the file, where the system has locks, until the process ends."""
    with path.open("a") as file:
        with suppress(ImportError):  # Windows
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"another sweep is writing to {path}: wait for its end, or name another file"
                ) from None
        yield


def append(path: Path, row: Row) -> None:
    """Write one row; a line that was cut short is ended first."""
    try:
        torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" * bool(torn) + json.dumps(row, ensure_ascii=False) + "\n")
    except OSError as error:
        raise Unwritten(f"{path} takes no more rows ({error.strerror})") from error
