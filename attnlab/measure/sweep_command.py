"""`python -m attnlab.measure sweep [family or mechanism …]` and `compare A.json B.json`."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from attnlab import catalog
from attnlab.core.files import Unwritten, checked_place
from attnlab.core.suggest import suggestion
from attnlab.measure import summary
from attnlab.measure.command import at_least_one
from attnlab.measure.measured import PASSES
from attnlab.measure.parts import add_part
from attnlab.measure.peers import PEERS
from attnlab.measure.report import machine, machine_line
from attnlab.measure.rows import STARTED, Row, alone, append, read
from attnlab.measure.subject import subject
from attnlab.measure.sweep import LENGTHS, Entry, Plan, points, sweep

More = Callable[[Plan, Sequence[Row]], Iterator[Row]]
_DESCRIPTION = """Count and time every mechanism over a range of lengths, in its fastest form,
beside its claim and beside fused full attention. Rows are shown as they come; with --json they are
also written, one a line, and a sweep that was interrupted goes on where it stopped."""


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m attnlab.measure sweep", description=_DESCRIPTION)
    made.add_argument(
        "names", nargs="*", metavar="name", help="families or mechanisms; default: all"
    )
    made.add_argument("--lengths", nargs="+", type=at_least_one, default=LENGTHS, metavar="N")
    made.add_argument(
        "--passes", nargs="+", choices=list(PASSES), default=["forward", "both"],
        help="default: forward both",
    )  # fmt: skip
    made.add_argument("--peers", action="store_true", help="other packages, where installed")
    made.add_argument("--dim", type=at_least_one, default=256, help="model width; default: 256")
    made.add_argument("--heads", type=at_least_one, default=4, help="default: 4")
    made.add_argument("--device", default="cpu", help="cpu or cuda; default: cpu")
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    made.add_argument("--threads", type=at_least_one, default=2, help="default: 2")
    made.add_argument("--seed", type=int, default=0, help="of parameters and inputs; default: 0")
    made.add_argument(
        "--seconds", type=at_least_one, default=420, help="budget of the timing; default: 420"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="rows go there; resumed if it is")
    made.add_argument("--markdown", action="store_true", help="print Markdown tables")
    add_part(made, "mechanisms")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the sweep; 2 where it cannot be run as asked, 130 where it was interrupted."""
    options = _parser().parse_args(arguments)
    try:
        plan = _plan(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    code, rows = run(plan, options.json)
    if rows or not code:
        print(_shown(rows, plan, options.markdown), flush=True)
    return code


def run(plan: Plan, path: Path | None, more: More | None = None) -> tuple[int, list[Row]]:
    """Run a sweep, show its rows as they come and write them to ``path``; then those that ``more``
    makes of the plan and of all rows so far.

    Returns 0, 2 where the file cannot be used or 130 where it was interrupted, and the rows, those
    that the file already held among them."""
    from tqdm.auto import tqdm

    with ExitStack() as held:
        try:
            known = _known(path, held)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
            return 2, []
        print(machine_line(plan.where), flush=True)
        rows, code = list(known), 0
        coming = chain(sweep(plan, known), more(plan, rows) if more else ())
        bar = tqdm(total=points(plan), unit="row", disable=None, file=sys.stderr)
        try:
            for row in coming:
                rows.append(row)
                if path:
                    append(path, row)
                if row["pass"] != STARTED:
                    tqdm.write(_line(row), file=sys.stderr)
                    bar.update()
        except KeyboardInterrupt:
            code = 130
            kept = f"; {path} has them, run again to go on" if path else ""
            print(f"\ninterrupted after {len(rows)} rows{kept}", file=sys.stderr)
        except Unwritten as error:
            code = 2
            print(f"\n{error}; run again to go on", file=sys.stderr)
        bar.close()
    return code, rows


def _known(path: Path | None, held: ExitStack) -> list[Row]:
    """The rows of a file that is this sweep's alone as long as it is held."""
    if path is None:
        return []
    read(checked_place(path))
    held.enter_context(alone(path))
    return read(path)  # once more: another sweep may have just come to its end


def _plan(options: argparse.Namespace) -> Plan:
    width = {"dim": options.dim, "heads": options.heads}
    if options.device not in ("cpu", "cuda"):
        raise ValueError(f"--device should be cpu or cuda, got {options.device!r}")
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda needs a GPU that runs CUDA; there is none here")
        if options.peers:
            raise ValueError("--peers runs on the CPU only: leave out --device cuda")
    if "bfloat16" in (options.dtype,) and (options.peers or "decode" in options.passes):
        raise ValueError("--dtype bfloat16 is for forward and both of our own layers only")
    cards = options.part.of(chosen(options.names))
    entries = []
    for card in cards:
        entries.append(Entry(subject(card, **width)))
        if options.peers:
            entries += [
                Entry(subject(card, **width), peer)
                for peer in PEERS.values()
                if peer.mechanism == card
            ]
    return Plan(
        tuple(entries), tuple(options.lengths), tuple(options.passes), options.seconds,
        options.threads, options.device, options.dtype, options.seed, machine(options.threads),
    )  # fmt: skip


def chosen(names: Sequence[str]) -> list[str]:
    """Mechanisms that mix positions: those named, those of a named family, or all."""
    cards = [card for card in catalog.cards() if card.mixes]
    families = {card.family for card in cards}
    found: dict[str, None] = {}
    for name in names:
        if name in families:
            found |= dict.fromkeys(card.name for card in cards if card.family == name)
        elif any(name in (card.name, *card.aliases) for card in cards):
            found[catalog.card(name).name] = None
        else:
            every = [*families, *(card.name for card in cards)]
            raise ValueError(
                f"there is no mechanism that mixes positions, and no family, called {name!r}"
                f"{suggestion(name, every)}"
            )
    return list(found) or [card.name for card in cards]


def _line(row: summary.Row) -> str:
    what = f"{summary.name(row)}, {row['pass']}, n = {row['n']:,}"
    if row["reason"]:
        return f"{what}: {row['reason']}"
    if row["pass"] == "counted":
        return f"{what}: {row['flops'] / 1e9:.3g} GFLOP, largest tensor {row['largest_elements']:,}"
    memory = f", {row['peak_bytes'] / 2**20:,.0f} MiB" if row["peak_bytes"] else ""
    of_both = f"user {row['user'] * 1e3:.3g}, system {row['system'] * 1e3:.3g}"
    return f"{what}: {row['median'] * 1e3:.3g} ms ({of_both}){memory}"


def _shown(rows: Sequence[summary.Row], plan: Plan, markdown: bool) -> str:
    """The table of what was swept, why figures are missing, what the peers compute, and how many
    claims are met."""
    mine = {(entry.key()["mechanism"], entry.key()["peer"]) for entry in plan.entries}
    found = summary.summaries(row for row in rows if (row["mechanism"], row["peer"]) in mine)
    missing = dict.fromkeys(f"{one.name}: {reason}" for one in found for reason in one.reasons)
    work = dict.fromkeys(f"{e.name} computes: {e.peer.work}" for e in plan.entries if e.peer)
    load = f"load at the end: {os.getloadavg()[0]:.2f}; " if hasattr(os, "getloadavg") else ""
    parts = [summary.table(found, markdown=markdown), "\n".join(missing), "\n".join(work)]
    return "\n" + "\n\n".join([*filter(None, parts), load + summary.verdict(found)])


def compare(arguments: Sequence[str]) -> str:
    """What two sweeps both timed, and what changed beyond its interval, as text.

    Raises ValueError with a sentence where a file is missing or holds no sweep.
    """
    made = argparse.ArgumentParser(
        prog="python -m attnlab.measure compare", description=summary.Change.__doc__
    )
    made.add_argument("a", type=Path, metavar="A.json")
    made.add_argument("b", type=Path, metavar="B.json")
    made.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = made.parse_args(arguments)
    for path in (options.a, options.b):
        if not os.path.exists(path):
            raise ValueError(f"there is no file {path}; a sweep writes one with --json")
    runs = [read(path) for path in (options.a, options.b)]
    found = summary.changes(*runs)
    where = [
        f"{letter}: {line}"
        for letter, rows in zip("AB", runs, strict=True)
        for line in sorted({machine_line(row["machine"]) for row in rows})
    ]
    table = summary.changes_table(found, markdown=options.markdown)
    return "\n".join([*where, "", table, "", summary.changed(found)])
