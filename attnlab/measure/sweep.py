"""Every mechanism counted and timed over a range of lengths, row by row.

The shortest lengths come first, so that rows arrive within seconds. At each length layers run
interleaved, a few at a time, with fused full attention among them. A budget of seconds is shared
out as it goes: a point that is predicted to exceed its share, or the memory that there is, is left
out with a sentence. `attnlab.measure.rows` keeps the rows in a file.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from attnlab.measure.costs import Cost, Uncountable, counted, decodes, state_bytes
from attnlab.measure.measured import Unproved, call_of, dtype_of, prove, total
from attnlab.measure.memory import allocated, available
from attnlab.measure.peers import Peer
from attnlab.measure.report import machine
from attnlab.measure.rows import Row
from attnlab.measure.subject import Subject, subject
from attnlab.measure.timing import MOST_ROUNDS, Taken, quartiles, taken_by, thread_count

LENGTHS = (1024, 2048, 4096, 8192, 16384)
SHORT = 16  # tokens at which nearly all time is overhead
OVERHEAD = 3.0  # a point that takes less than so many times the time at SHORT is overhead-bound
TOGETHER = 4  # layers that run interleaved
MOST, FEWEST = 9, 3  # rounds of a point
SHARES = 2.0  # a point may use so many times its share of the time that is left
HELD = 100  # so many of its largest tensor a call never holds at once
COUNTING = 3.0  # seconds that one count may be predicted to take


@dataclass(frozen=True)
class Entry:
    """What has rows: a layer of ours, or a peer's beside it."""

    subject: Subject
    peer: Peer | None = None

    @property
    def name(self) -> str:
        return self.subject.label if self.peer is None else f"{self.peer.name} (package)"

    def key(self) -> Row:
        """What tells its rows from others, as JSON."""
        own = self.subject
        return {
            "mechanism": own.mechanism, "peer": self.peer and self.peer.name,
            "family": own.card.family, "form": None if self.peer else own.form, "dim": own.dim,
            "heads": own.heads, "causal": own.causal,
            "options": {name: str(value) for name, value in own.options},
            "work": self.peer and self.peer.work,
        }  # fmt: skip

    def call(self, n: int, which: str, plan: "Plan") -> Callable[[], object]:
        if self.peer is None:
            return call_of(
                self.subject, n, which, device=plan.device, dtype=plan.dtype, seed=plan.seed
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            module, layer = self.peer.make(n, self.subject.dim, self.subject.heads)
        kind = dtype_of(plan.dtype)
        module.to(plan.device, kind)
        x = self.subject.sequence(n, plan.device, plan.seed).detach().to(kind).requires_grad_()
        leaves = [x, *(p for p in module.parameters() if p.requires_grad)]

        def forward() -> object:
            with torch.no_grad():
                return layer(x)

        def both() -> object:
            return torch.autograd.grad(total(layer(x)), leaves, allow_unused=True)

        return forward if which == "forward" else both


@dataclass(frozen=True)
class Plan:
    """What is measured, where, and for how long; `seconds` is the budget of the whole sweep."""

    entries: tuple[Entry, ...]
    lengths: tuple[int, ...] = LENGTHS
    passes: tuple[str, ...] = ("forward", "both")
    seconds: float = 420.0
    threads: int = 2
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    where: dict[str, str] = field(default_factory=dict, compare=False)

    def base(self) -> Entry:
        """Fused full attention of the same widths, with which all others are compared."""
        own = self.entries[0].subject
        return Entry(subject("full", dim=own.dim, heads=own.heads))

    def common(self) -> Row:
        """The fields that every row of this run has."""
        return {
            "device": self.device, "dtype": self.dtype, "threads": self.threads, "seed": self.seed,
            "machine": self.where or machine(self.threads),
        }  # fmt: skip

    def own(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of this plan's layers at its width and precision on this machine; a file may
        hold others."""
        any_row = {"n": 0, "pass": ""}
        mine = {identity(entry.key() | self.common() | any_row) for entry in self.entries}
        return [row for row in rows if identity(row | any_row) in mine]


IDENTITY = (
    "mechanism", "peer", "form", "dim", "heads", "causal", "options", "n", "pass", "device",
    "dtype", "threads", "seed",
)  # fmt: skip


def identity(row: Row) -> str:
    """What a row is about, the machine and the versions included, as text."""
    where = [row["machine"].get(name) for name in ("processor", "torch", "GPU")]
    return json.dumps([*(row[name] for name in IDENTITY), where])


def sweep(plan: Plan, known: Sequence[Row] = ()) -> Iterator[Row]:
    """Every row of the plan that `known` does not have, as soon as it is measured."""
    run = _Run(plan, known)
    for n in (SHORT, *sorted(plan.lengths)):
        entries = list(plan.entries)
        for start in range(0, len(entries), TOGETHER):
            some = entries[start : start + TOGETHER]
            if n != SHORT:
                for entry in some:
                    yield from run.counts(entry, n)
            yield from run.times(some, n)


def points(plan: Plan) -> int:
    """How many rows the sweep has at most."""
    ours = sum(entry.peer is None for entry in plan.entries)
    timed = len(plan.entries) * len(plan.passes) * (len(plan.lengths) + 1)
    return ours * len(plan.lengths) + timed


class _Run:
    """One sweep under way: what is known so far, and how much time is left."""

    def __init__(self, plan: Plan, known: Iterable[Row]) -> None:
        self.plan, self.ends, self.base = plan, time.monotonic() + plan.seconds, plan.base()
        self.common = plan.common()
        self.done = {identity(row) for row in known if row.get("reason") is None}
        self.past: dict[tuple[str, str], dict[int, float]] = {}
        self.counting: dict[str, tuple[int, float]] = {}
        for row in known:
            if row.get("seconds"):
                name = row["mechanism"] if row["peer"] is None else row["peer"]
                self.past.setdefault((name, row["pass"]), {})[row["n"]] = row["median"]
        cells = len(plan.entries) * len(plan.passes)
        self.left = cells * sum(map(_weight, (SHORT, *plan.lengths)))
        timed = (row for row in known if row.get("seconds"))
        self.left -= sum(_weight(row["n"]) for row in timed)

    def row(self, entry: Entry, n: int, which: str, **found: Any) -> Row:
        """One row with all its fields; `reason` says in a sentence why a figure is missing."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        about = entry.key() | {"n": n, "pass": which} | empty_row()
        return about | found | self.common | {"date": now}

    def fresh(self, entry: Entry, n: int, which: str) -> bool:
        return identity(self.row(entry, n, which)) not in self.done

    # ---- counting

    def counts(self, entry: Entry, n: int) -> Iterator[Row]:
        if entry.peer is not None or not self.fresh(entry, n, "counted"):
            return
        before, took = self.counting.get(entry.name, (n, 0.0))
        if took * (n / before) ** 2 > COUNTING:
            why = f"counting at n = {before:,} took {took:.1f} s: left out at n = {n:,}"
            yield self.row(entry, n, "counted", reason=why)
            return
        start = time.monotonic()
        try:
            yield self.row(entry, n, "counted", **_counted(entry.subject, n))
        except Uncountable as error:
            yield self.row(entry, n, "counted", reason=str(error))
        self.counting[entry.name] = n, time.monotonic() - start

    # ---- timing

    def times(self, entries: Sequence[Entry], n: int) -> Iterator[Row]:
        calls: dict[tuple[Entry, str], tuple[Callable[[], object], int]] = {}
        for entry in entries:
            for which in self.plan.passes:
                if which == "decode" and (entry.peer or not decodes(entry.subject)):
                    continue
                if not self.fresh(entry, n, which):
                    continue
                call, rounds, why = self.prepared(entry, n, which)
                if call is None:
                    yield self.row(entry, n, which, reason=why)
                else:
                    calls[entry, which] = call, rounds
                self.left -= _weight(n)
        if calls:
            yield from self.timed(calls, n)

    def prepared(
        self, entry: Entry, n: int, which: str
    ) -> tuple[Callable[[], object] | None, int, str]:
        """The call, already warm, and its rounds; or a sentence that says why there is none."""
        expected, most = self.expected(entry, n, which), self.share(n)
        if expected * (1 + FEWEST) > most:
            return None, 0, (
                f"left out at n = {n:,}: about {expected:.1f} s a round, {FEWEST} rounds and a "
                f"warm-up, are more than its share of the time that is left, {most:.1f} s"
            )  # fmt: skip
        if why := self.too_large(entry, n, which):
            return None, 0, why
        if entry.peer is not None and entry.peer.missing:
            return None, 0, entry.peer.missing
        try:
            if entry.peer is None:
                prove(entry.subject)
            with thread_count(self.plan.threads):
                call = entry.call(n, which, self.plan)
                first = taken_by(call).seconds
                if n == SHORT or first < 0.2:
                    first = taken_by(call).seconds
        except Unproved as error:
            return None, 0, str(error)
        except (ValueError, RuntimeError, AssertionError, ImportError) as error:
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            return None, 0, f"{entry.name} refuses n = {n:,}: {reason}"
        rounds = int(min(MOST, MOST_ROUNDS, max(FEWEST, most / max(first, 1e-6))))
        return call, rounds, ""

    def share(self, n: int) -> float:
        """Seconds that the next point may take, more of them at greater lengths."""
        part = SHARES * _weight(n) / max(self.left, _weight(n))
        return max(0.0, self.ends - time.monotonic()) * min(1.0, part)

    def expected(self, entry: Entry, n: int, which: str) -> float:
        """Seconds of a round, from the last two lengths; 0 where nothing but overhead is known."""
        past = self.past.get((_short(entry), which), {})
        lengths = sorted(length for length in past if SHORT < length < n)
        if not lengths:
            return 0.0
        last, slope = lengths[-1], 1.0
        if len(lengths) > 1:
            slope = math.log(past[last] / past[lengths[-2]]) / math.log(last / lengths[-2])
        elif entry.peer is None:
            claim = entry.subject.claim
            slope = math.log(claim("time", n) / claim("time", last)) / math.log(n / last)
        return past[last] * (n / last) ** max(0.0, slope)

    def too_large(self, entry: Entry, n: int, which: str) -> str:
        """A sentence where the call would hold more than nine tenths of the free memory."""
        if entry.peer is not None or which == "decode" or self.plan.device != "cpu":
            return ""
        small, free = min(n, 1024), available()
        if HELD * 4 * (entry.subject.claim("memory", n) + n * entry.subject.dim) < free:
            return ""  # so far from it that there is no need to count
        try:
            held = counted(entry.subject, small, which == "both").peak_bytes
        except Uncountable as error:
            return str(error)
        growth = entry.subject.claim("memory", n) / entry.subject.claim("memory", small)
        needed = held * max(growth, n / small)
        if free and needed > 0.9 * free:
            return (
                f"left out at n = {n:,}: it would hold about {needed / 1e9:.1f} GB, "
                f"{free / 1e9:.1f} GB are free"
            )
        return ""

    def timed(
        self, calls: dict[tuple[Entry, str], tuple[Callable[[], object], int]], n: int
    ) -> Iterator[Row]:
        """Rounds in which every call that is not done yet runs once, the baseline among them."""
        running = {key: call for key, (call, _) in calls.items()}
        rounds = {key: number for key, (_, number) in calls.items()}
        for which in {which for _, which in calls if which != "decode"}:
            if (self.base, which) not in calls and self.affordable(which, n):
                running[self.base, which] = self.base.call(n, which, self.plan)
                rounds[self.base, which] = max(rounds[key] for key in calls if key[1] == which)
        taken: dict[tuple[Entry, str], list[Taken]] = {key: [] for key in running}
        with thread_count(self.plan.threads):
            for number in range(max(rounds.values())):
                for key, call in running.items():
                    if number < rounds[key]:
                        taken[key].append(taken_by(call))
        for entry, which in calls:
            spread = _spread(taken[entry, which])
            self.past.setdefault((_short(entry), which), {})[n] = spread["median"]
            rounds_of_both = taken.get((self.base, which), [])[: len(spread["seconds"])]
            base = [one.seconds for one in rounds_of_both]
            yield self.row(
                entry, n, which, **spread,
                baseline_seconds=base if len(base) == len(spread["seconds"]) else None,
                peak_bytes=self.peak(running[entry, which], n, spread["median"]),
            )  # fmt: skip

    def affordable(self, which: str, n: int) -> bool:
        """Whether fused full attention can run beside each few layers at this length."""
        rounds = FEWEST + 1
        return 2 * rounds * self.expected(self.base, n, which) < self.share(n)

    def peak(self, call: Callable[[], object], n: int, median: float) -> int | None:
        """Bytes allocated at most, where one more call takes less than half of a share."""
        return allocated(call, self.plan.device) if median < self.share(n) / 2 else None


def empty_row() -> Row:
    """The fields of a row that was not measured."""
    return dict.fromkeys(
        ("seconds", "median", "low", "high", "user", "system", "baseline_seconds", "peak_bytes",
         "reason")
    )  # fmt: skip


def _weight(n: int) -> float:
    """How much of the time a point has beside others: it costs more at greater lengths."""
    return math.sqrt(n)


def _short(entry: Entry) -> str:
    return entry.subject.mechanism if entry.peer is None else entry.peer.name


def _spread(taken: Sequence[Taken]) -> Row:
    """By the clock every round, median and quartiles; of the processor the mean of the rounds."""
    seconds, user, system = map(list, zip(*taken, strict=True))
    low, high = quartiles(seconds)
    return {
        "seconds": seconds, "median": statistics.median(seconds), "low": low, "high": high,
        "user": statistics.fmean(user), "system": statistics.fmean(system),
    }  # fmt: skip


def _counted(one: Subject, n: int) -> Row:
    """The counted fields: of the forward pass, and what is kept for the backward one."""
    cost: Cost = counted(one, n)
    try:
        state = state_bytes(one, n) if n <= 4096 else None
    except Uncountable:
        state = None
    return {
        "flops": cost.flops, "mixing_flops": cost.mixing_flops,
        "claimed_flops": one.claim("time", n), "largest_elements": cost.largest_elements,
        "claimed_elements": one.claim("memory", n), "parameters": cost.parameters,
        "saved_bytes": cost.saved_bytes, "state_bytes": state,
        "counted_peak_bytes": cost.peak_bytes,
    }  # fmt: skip
