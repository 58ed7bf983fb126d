"""The survey's rows of a GPU: what ``python -m attnlab.measure gpu --json FILE`` has written.

One row for each form and each kernel of another package, beside the exponent that was measured on a
CPU. Without such a file the table has none of this: no rows are stored with attnlab.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.catalog import card, cards
from attnlab.measure import gpu_command, summary
from attnlab.measure.rows import read
from attnlab.measure.sweep import OVERHEAD, SHORT
from attnlab_widgets.survey.gains import spread
from attnlab_widgets.words import to_fixed

ORDERS = {
    "name": "name", "measured": "measured", "forward": "forward", "both": "both", "share": "share",
}  # fmt: skip
"""By what these rows can be sorted, and their key."""
ONLY = tuple(order for order in ORDERS if order not in ("name", "measured"))
"""Of these, the orders that no other table of the survey has."""

Row = dict[str, Any]


def of_file(path: str | Path, on_a_cpu: Mapping[str, Row]) -> tuple[list[dict[str, Any]], str, str]:
    """The rows, the name of the device, and in a sentence how its times were taken.

    on_a_cpu: by mechanism, the rows that are stored, with ``measured`` and ``interval``.

    Raises ValueError for a file that is not there, holds no rows of a sweep or no times, rows of
    several machines or precisions, which would be no comparison, or of forms that are not known.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"`gpu` should be the name of a file, got {path!r}")
    if not Path(path).is_file():
        raise ValueError(
            f"there is no file {path}; `python -m attnlab.measure gpu --json {path}` writes it, on "
            "a machine with a GPU"
        )
    rows = read(Path(path))
    if not any(row["seconds"] for row in rows):
        raise ValueError(f"{path} has no times: `python -m attnlab.measure gpu` was not run whole")
    places = {_place(row) for row in rows}
    if len(places) > 1:
        raise ValueError(
            f"{path} has rows of {len(places)} machines, widths or precisions; give one of them: "
            + "; ".join(sorted(place for _, place in places))
        )
    _check_known(path, rows)
    ((device, place),) = places
    return _rows_of(rows, on_a_cpu), device, place


def _check_known(path: str | Path, rows: Iterable[Row]) -> None:
    known = {one.name: {*one.forms, *one.kernels} for one in cards()}
    for row in rows:
        forms = known.get(row["mechanism"], set())
        if row["peer"] is None and row["form"] not in forms:
            raise ValueError(
                f"{path} has rows of {summary.name(row)}, which this version of attnlab does not "
                "have; measure again with this version, or read the file with the other one"
            )


def _place(row: Row) -> tuple[str, str]:
    """The device, and what was measured there."""
    where = row["machine"]
    named = where.get("GPU") if row["device"] != "cpu" else None
    device = str(named or f"{where.get('processor', 'an unnamed processor')}, {row['device']}")
    width = f"width {row['dim']:,}, {row['heads']} heads"
    return device, f"{device}, PyTorch {where.get('torch', '?')}, {row['dtype']}, {width}"


def _rows_of(rows: Sequence[Row], on_a_cpu: Mapping[str, Row]) -> list[dict[str, Any]]:
    """One for each layer, in the order of the file."""
    starts = gpu_command.starts(rows)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = summary.name(row)
        if name not in found:
            found[name] = _empty(row, name, on_a_cpu)
    for one in summary.summaries(rows):
        row = found[one.name]
        timed = _longest(rows, one.name, one.of)
        if timed is None:
            row["because"] = row["because"] or "; ".join(one.reasons) or "not timed"
            continue
        row |= {one.of: timed["median"], f"{one.of}_n": timed["n"]}
        if one.of == "forward" and one.measured:
            row["measured"] = round(one.measured.slope, 3)
            row["interval"] = _interval(one.measured)
        elif one.of == "forward":
            row["unfitted"] = _unfitted(one)
        if one.of == "both" and one.crossover:
            row["beside"] = one.crossover.sentence
    for name, begun in starts.items():
        counts = [[n, operations] for n, operations in sorted(begun.operations.items())]
        found[name] |= {"starts": counts, "share": begun.share, "share_n": begun.n}
    return list(found.values())


def _empty(row: Row, name: str, on_a_cpu: Mapping[str, Row]) -> dict[str, Any]:
    """What is known of a layer before its figures are read; of the last form also the CPU's."""
    one = card(row["mechanism"])
    last = row["peer"] is None and row["form"] == list(one.forms)[-1]
    known: Row = on_a_cpu.get(one.name, {}) if last else {}
    return {
        "name": name, "mechanism": one.name, "title": one.title, "family": one.family,
        "year": one.paper.year, "cpu": known.get("measured"), "cpu_interval": known.get("interval"),
        "measured": None, "interval": None, "forward": None, "forward_n": None, "both": None,
        "both_n": None, "beside": "", "starts": [], "share": None, "share_n": None, "because": "",
        "unfitted": "",
    }  # fmt: skip


def _longest(rows: Iterable[Row], name: str, which: str) -> Row | None:
    """The row of the longest length that was timed."""
    timed = [row for row in rows if row["pass"] == which and row["seconds"]]
    mine = [row for row in timed if summary.name(row) == name]
    return max(mine, key=lambda row: row["n"], default=None)


def _unfitted(one: summary.Summary) -> str:
    """Why times have no exponent."""
    if not one.overhead:
        return "an exponent needs two lengths that were timed"
    lengths = ", ".join(f"{n:,}" for n in one.overhead)
    return (
        f"at n = {lengths} it takes less than {OVERHEAD:g} times what {SHORT} tokens take, so that "
        "starting it is a large part, and the rest is too few lengths for an exponent"
    )


def _interval(line: Any) -> list[float] | None:
    """The bounds of the exponent; None where two lengths give none."""
    bounds = [line.low, line.high]
    return [round(x, 3) for x in bounds] if all(abs(x) < 1e6 for x in bounds) else None


def shown(rows: Sequence[dict[str, Any]], survey: Any) -> list[dict[str, Any]]:
    """The rows that pass the filter, in order, as ``arrangedForms`` of ``rows.js``."""
    words = survey.search.casefold()
    kept = [
        row for row in rows
        if survey.family in ("", row["family"])
        and words in f"{row['title']} {row['name']}".casefold()
    ]  # fmt: skip
    key = ORDERS.get(survey.order)
    if key is None:
        return kept
    with_value = [row for row in kept if row[key] is not None]
    with_value.sort(key=lambda row: _sortable(row[key]), reverse=survey.down)
    return with_value + [row for row in kept if row[key] is None]


def _sortable(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def cells(row: Row) -> list[str]:
    """A row in words, as ``formCells`` of ``rows.js``."""
    return [
        row["name"],
        exponent(row["cpu"], row["cpu_interval"]),
        exponent(row["measured"], row["interval"]),
        time_at(row["forward"], row["forward_n"]),
        time_at(row["both"], row["both_n"]),
        row["beside"] or "–",
        " → ".join("not counted" if x is None else f"{x:,}" for _, x in row["starts"]) or "–",
        "–" if row["share"] is None else f"{to_fixed(100 * row['share'], 1)} %",
    ]


def exponent(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "–"
    return to_fixed(value, 2) + (f" ({spread(interval)})" if interval else "")


def time_at(seconds: float | None, n: int | None) -> str:
    """A time with its length, in three digits."""
    if seconds is None:
        return "–"
    return f"{float(f'{1e3 * seconds:.3g}'):g} ms at {n:,}"
