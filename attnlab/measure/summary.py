"""What the rows of a sweep say: exponents beside claims, crossovers, changes between two runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from attnlab import catalog
from attnlab.measure.count import exponent
from attnlab.measure.fit import Crossover, Fit, crossover, fit, student
from attnlab.measure.measured import PASSES
from attnlab.measure.report import grid
from attnlab.measure.sweep import OVERHEAD, SHORT, identity

WITHIN = 0.15  # of an exponent

Row = Mapping[str, Any]
_NAME = ("mechanism", "peer", "form", "causal")


@dataclass(frozen=True)
class Summary:
    """One layer, one pass. The exponent is None if fewer than two lengths were measured.

    claimed        slope of the card's FLOPs over the lengths, the mixing alone
    counted        slope of the counted FLOPs, the mixing alone
    layer          slope of the card's FLOPs with the layer's linear maps: what is timed
    measured       slope of the times, lengths that are overhead-bound left out
    with_log       the same times as nᵃ log n; only where the card claims a logarithm of n
    overhead       those lengths
    crossover      from where on the layer is faster than fused full attention
    reasons        why figures are missing, from which length on
    """

    name: str
    family: str
    of: str
    claimed: float | None
    counted: float | None
    layer: float | None
    measured: Fit | None
    with_log: Fit | None
    overhead: tuple[int, ...]
    crossover: Crossover | None
    reasons: tuple[str, ...]

    @property
    def agrees(self) -> bool | None:
        """Whether the measured exponent is the layer's, to 0.15; None where there is none."""
        if self.measured is None or self.layer is None:
            return None
        return abs(self.measured.slope - self.layer) <= WITHIN


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """One summary for each layer and timed pass, in the order of the rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _NAME), []).append(row)
    found = []
    for group in groups.values():
        counted = _latest(row for row in group if row["pass"] == "counted")
        for which in dict.fromkeys(row["pass"] for row in group if row["pass"] in PASSES):
            timed = _latest(row for row in group if row["pass"] == which)
            found.append(_summary(timed, counted, which))
    return found


def _latest(rows: Iterable[Row]) -> dict[int, Row]:
    """By length; a row with figures replaces one without."""
    found: dict[int, Row] = {}
    for row in rows:
        if row["n"] not in found or row["reason"] is None:
            found[row["n"]] = row
    return dict(sorted(found.items()))


def _summary(timed: Mapping[int, Row], counted: Mapping[int, Row], which: str) -> Summary:
    one = next(iter(timed.values()))
    medians = {n: row["median"] for n, row in timed.items() if row["seconds"]}
    floor = OVERHEAD * medians.get(SHORT, 0.0)
    bound = tuple(n for n, median in medians.items() if n != SHORT and median < floor)
    points = {n: median for n, median in medians.items() if n != SHORT and n not in bound}
    claims = {n: row for n, row in counted.items() if row["reason"] is None}
    paired = {n: timed[n] for n in points if timed[n]["baseline_seconds"]}
    return Summary(
        name(one), one["family"], which,
        _slope({n: row["claimed_flops"] for n, row in claims.items()}),
        _slope({n: row["mixing_flops"] for n, row in claims.items()}),
        _layer(claims, points), _measured(points),
        _measured(points, log=True) if _grows_with_log(one) else None, bound,
        _crossover(paired) if name(one) != "full (fused)" else None,
        _reasons(timed) + _reasons(counted),
    )  # fmt: skip


def _reasons(rows: Mapping[int, Row]) -> tuple[str, ...]:
    """Why figures are missing: that of the shortest length, which longer ones mostly share."""
    found = [row["reason"] for row in rows.values() if row["reason"] and row["n"] != SHORT]
    return tuple(found[:1])


def name(row: Row) -> str:
    """The layer as tables show it."""
    if row["peer"]:
        return f"{row['peer']} (package)"
    return f"{row['mechanism']} ({row['form']})" + ", causal" * row["causal"]


def _slope(values: Mapping[int, float]) -> float | None:
    return exponent(list(values), list(values.values())).slope if len(values) > 1 else None


def _layer(claims: Mapping[int, Row], points: Mapping[int, float]) -> float | None:
    """The claim with the linear maps, over the lengths that were timed and counted."""
    return _slope(
        {
            n: row["claimed_flops"] + row["flops"] - row["mixing_flops"]
            for n, row in claims.items()
            if n in points
        }
    )


def _measured(points: Mapping[int, float], *, log: bool = False) -> Fit | None:
    if len(points) < 2 or (log and min(points) < 2):
        return None
    return fit(list(points), list(points.values()), log=log)


def _grows_with_log(row: Row) -> bool:
    """Whether the card claims a logarithm of n for this form, as n log n."""
    if row["peer"]:
        return False
    cost = catalog.card(row["mechanism"]).cost("time", row["form"])
    return any("n" in map(str, each.free_symbols) for each in cost.atoms(sympy.log))


def _crossover(paired: Mapping[int, Row]) -> Crossover | None:
    if len(paired) < 2:
        return None
    ours, base = (
        {n: row[key] for n, row in paired.items()} for key in ("seconds", "baseline_seconds")
    )
    return crossover(ours, base)


HEADINGS = (
    "layer", "pass", "claimed", "counted", "layer's claim", "measured", "95 %", "agrees",
    "beside fused full attention", "overhead-bound at",
)  # fmt: skip
_RIGHT = (False, False, True, True, True, True, False, False, False, False)


def table(found: Sequence[Summary], *, markdown: bool = False) -> str:
    """The summaries as a table of text."""
    return grid(HEADINGS, [_cells(one) for one in found], _RIGHT, markdown=markdown)


def _cells(one: Summary) -> tuple[str, ...]:
    measured = one.measured
    wide = measured is None or not math.isfinite(measured.low)
    return (
        one.name,
        one.of,
        *(_number(value) for value in (one.claimed, one.counted, one.layer)),
        _number(measured.slope if measured else None) + _as_log(one),
        "" if wide or measured is None else f"{measured.low:.2f} … {measured.high:.2f}",
        {True: "yes", False: "NO", None: ""}[one.agrees],
        one.crossover.sentence if one.crossover else "",
        ", ".join(f"{n:,}" for n in one.overhead),
    )


def _as_log(one: Summary) -> str:
    return f", or n^{one.with_log.slope:.2f} log n" if one.with_log else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


# ---- two runs


@dataclass(frozen=True)
class Change:
    """Run B's time over run A's at one length, with the interval at 95 %.

    Where both have fused full attention in their rounds, each run's times are first divided by
    those of the same rounds (`relative`): what the whole machine was slower by drops out.
    """

    name: str
    of: str
    n: int
    ratio: float
    low: float
    high: float
    relative: bool

    @property
    def beyond(self) -> bool:
        """Whether the interval leaves out 1: the runs differ by more than their scatter."""
        return not self.low <= 1 <= self.high


def changes(a: Iterable[Row], b: Iterable[Row]) -> list[Change]:
    """What both runs timed, on whatever machine and versions each of them ran."""
    first, second = ({_about(row): row for row in rows if row.get("seconds")} for rows in (a, b))
    return [_change(first[about], second[about]) for about in first if about in second]


def _about(row: Row) -> str:
    return identity({**row, "machine": {}})


def _change(a: Row, b: Row) -> Change:
    relative = bool(a["baseline_seconds"] and b["baseline_seconds"])
    logs = []
    for row in (a, b):
        seconds = np.log(row["seconds"])
        logs.append(seconds - np.log(row["baseline_seconds"]) if relative else seconds)
    middle = float(np.median(logs[1]) - np.median(logs[0]))
    freedom = min(map(len, logs)) - 1
    reach = math.inf
    if freedom:
        error = math.sqrt(sum(float(each.var(ddof=1)) / len(each) for each in logs))
        reach = student(0.95, freedom) * math.sqrt(math.pi / 2) * error  # a median's, not a mean's
    low, high = (math.exp(middle + sign * reach) for sign in (-1, 1))
    return Change(name(a), a["pass"], a["n"], math.exp(middle), low, high, relative)


def verdict(found: Sequence[Summary]) -> str:
    """In a sentence, how many exponents are those of the claims."""
    judged = [one for one in found if one.agrees is not None]
    met = sum(one.agrees is True for one in judged)
    ours = {one.name: one for one in found if one.counted is not None and one.claimed is not None}
    within = sum(abs(one.counted - one.claimed) <= WITHIN for one in ours.values())  # type: ignore[operator]
    return (
        f"counted exponents within {WITHIN} of the claim: {within} of {len(ours)}; measured ones "
        f"within {WITHIN} of the layer's claim: {met} of {len(judged)}"
    )


def changed(found: Sequence[Change]) -> str:
    """In a sentence, how many times differ beyond their interval, and how many would by chance."""
    beyond = sum(one.beyond for one in found)
    return (
        f"{beyond} of {len(found)} differ beyond their interval of 95 %; about "
        f"{0.05 * len(found):.0f} would by chance"
    )


def changes_table(found: Sequence[Change], *, markdown: bool = False) -> str:
    headings = ("layer", "pass", "n", "B / A", "95 %", "beyond", "")
    lines = [
        (
            one.name, one.of, f"{one.n:,}", f"{one.ratio:.2f}", f"{one.low:.2f} … {one.high:.2f}",
            "YES" if one.beyond else "", "" if one.relative else "seconds, not relative",
        )
        for one in found
    ]  # fmt: skip
    return grid(headings, lines, (False, False, True, True, False, False, False), markdown=markdown)
