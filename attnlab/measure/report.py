"""The printed report: rows (with a target, for benchmarks), tables and the machine."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure: the measured value and, if there is one, its target.

    `measured` is in `unit`; None where it could not be measured, and `note` then says why.
    `quartiles` show the scatter of timed figures. A row has at most one of the two bounds.
    """

    figure: str
    measured: float | None
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    quartiles: tuple[float, float] | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or without a measurement."""
        if self.measured is None or (self.at_most is None and self.at_least is None):
            return None
        above = self.at_least is None or self.measured >= self.at_least
        return above and (self.at_most is None or self.measured <= self.at_most)


HEADINGS = ("figure", "measured", "quartiles", "target", "met", "note")
_RIGHT = (False, True, True, True, False, False)


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of `HEADINGS`."""
    sign, bound = ("≤", row.at_most) if row.at_most is not None else ("≥", row.at_least)
    spread = "" if row.quartiles is None else " – ".join(map(_number, row.quartiles))
    return (
        row.figure,
        "not measured" if row.measured is None else _quantity(row.measured, row.unit),
        spread,
        "" if bound is None else f"{sign} {_quantity(bound, row.unit)}",
        {True: "yes", False: "NO", None: ""}[row.met],
        row.note,
    )


def _quantity(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    """Three significant digits, whole above a hundred, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def table(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """The rows under their headings; columns that no row fills are left out."""
    return grid(HEADINGS, [cells(row) for row in rows], _RIGHT, markdown=markdown)


def grid(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    right: Sequence[bool],
    *,
    markdown: bool = False,
) -> str:
    """Text in aligned columns; `right` says which of them are flush right."""
    filled = [index for index in range(len(headings)) if any(line[index] for line in lines)]
    every = [[line[index] for index in filled] for line in (headings, *lines)]
    right = [right[index] for index in filled]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    rule = [
        "-" * (width - 1) + (":" if flush else "-")
        for width, flush in zip(widths, right, strict=True)
    ]
    aligned = [
        [
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ]
        for line in every
    ]
    aligned.insert(1, rule if markdown else ["-" * width for width in widths])
    if markdown:
        return "\n".join(f"| {' | '.join(line)} |" for line in aligned)
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def machine(threads: int) -> dict[str, str]:
    """The facts about the machine that the figures depend on."""
    import torch

    described = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(threads),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if torch.cuda.is_available():
        described["GPU"] = torch.cuda.get_device_name()
    if hasattr(os, "getloadavg"):
        described["load at the start"] = f"{os.getloadavg()[0]:.2f}"
    return described


def machine_line(described: dict[str, str]) -> str:
    return " · ".join(f"{name}: {value}" for name, value in described.items())


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def plain(row: Row) -> dict[str, object]:
    """The row as JSON-able values, `met` included; what a row does not say is left out."""
    said = {**asdict(row), "met": row.met}
    kept = ("figure", "measured", "unit")
    return {name: value for name, value in said.items() if name in kept or value not in (None, "")}


def from_plain(values: Mapping[str, Any]) -> Row:
    """The row of which `plain` made these values."""
    own = {name: value for name, value in values.items() if name != "met"}
    quartiles = own.get("quartiles")
    return Row(**{**own, "quartiles": None if quartiles is None else tuple(quartiles)})
