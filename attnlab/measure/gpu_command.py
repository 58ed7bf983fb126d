"""`python -m attnlab.measure gpu [family or mechanism …]`: every form on a GPU, and its peers.

A sweep (`attnlab.measure.sweep`) of all forms but `naive`, beside fused full attention, which is
PyTorch's kernel, and beside FlexAttention, flash-attn and fla where they can be imported. To what a
sweep says it adds how many operations both passes start, and the share of the GPU's peak rate: rows
of the same file, of the pass `started`. `attnlab.survey(gpu=FILE)` shows all of it in a table.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from attnlab import catalog
from attnlab.core.tracing import as_on_an_accelerator
from attnlab.measure import summary, sweep_command
from attnlab.measure.command import at_least_one
from attnlab.measure.count import count
from attnlab.measure.gpu_peers import GPU_PEERS
from attnlab.measure.peak_rates import peak_rates
from attnlab.measure.report import grid, machine
from attnlab.measure.rows import STARTED, Row
from attnlab.measure.subject import Subject, subject
from attnlab.measure.sweep import Entry, Plan, empty_row, identity

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
COUNTED = (512, 2048)  # tokens at which launches are counted
LSTM = ("lstm", "fused")
"""The form that is one kernel of PyTorch on every device but the meta one, which writes it out."""
_DESCRIPTION = """Time every form of every mechanism on a GPU, beside PyTorch's fused attention,
FlexAttention, flash-attn and fla where they are installed; say exponents, from which length on a
form is faster, the operations started and the share of the peak rate. With --json an interrupted
run goes on where it stopped; attnlab.survey(gpu=FILE) shows what it wrote as a table, and
`python -m attnlab_widgets.survey --picture` draws it."""


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m attnlab.measure gpu", description=_DESCRIPTION)
    made.add_argument(
        "names", nargs="*", metavar="name", help="families or mechanisms; default: all"
    )
    made.add_argument("--lengths", nargs="+", type=at_least_one, default=LENGTHS, metavar="N")
    made.add_argument("--dim", type=at_least_one, default=1024, help="default: 1024")
    made.add_argument("--heads", type=at_least_one, default=16, help="default: 16")
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    made.add_argument(
        "--device", help="default: this machine's accelerator; cpu tries the command without one"
    )
    made.add_argument("--seconds", type=at_least_one, default=900, help="default: 900")
    made.add_argument("--threads", type=at_least_one, default=2, help="default: 2")
    made.add_argument("--json", type=Path, metavar="FILE", help="rows go there; resumed if it is")
    return made


def main(arguments: Sequence[str]) -> int:
    """Measure; 2 where it cannot be run as asked, 130 where it was interrupted."""
    options = _parser().parse_args(arguments)
    try:
        plan = _plan(options, _device(options.device))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    code, rows = sweep_command.run(plan, options.json, started)
    if code == 2:
        return code
    rows = plan.own(rows)
    print("\n" + summary.table(summary.summaries(rows)))
    print("\n" + _starts(rows))
    return code


def _device(given: str | None) -> str:
    """The device that is asked for, or this machine's accelerator; a sentence where none is."""
    if given is None and not torch.accelerator.is_available():
        raise ValueError(
            "there is no accelerator on this machine, or this PyTorch has no support for it; "
            "--device cpu tries the command without one, and its times are those of the CPU"
        )
    found = torch.accelerator.current_accelerator() if given is None else None
    name = given if found is None else found.type
    try:
        device = torch.device(name)  # type: ignore[arg-type]
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"the device {name!r} cannot be used here: {reason}") from error
    return str(device)


def _plan(options: argparse.Namespace, device: str) -> Plan:
    width = {"dim": options.dim, "heads": options.heads}
    entries = []
    for name in sweep_command.chosen(options.names):
        card = catalog.card(name)
        forms = list(card.forms)
        kernels = list(card.kernels) if device != "cpu" else []
        entries += [
            Entry(subject(name, form=form, **width))
            for form in [*(forms[1:] or forms), *kernels]
            if form == forms[-1] or "form" in card.option_names()
        ]
        peers = [peer for peer in GPU_PEERS.values() if peer.mechanism == name]
        entries += [Entry(subject(name, **width), peer) for peer in peers if device != "cpu"]
    return Plan(
        tuple(entries), tuple(options.lengths), ("forward", "both"), options.seconds,
        options.threads, device, options.dtype, 0, machine(options.threads),
    )  # fmt: skip


def _peak(plan: Plan) -> float:
    """FLOPs per second of a large product in the precision of the plan."""
    return peak_rates(device=plan.device, dtype=plan.dtype, threads=plan.threads).peak


def launches(one: Subject, n: int) -> int:
    """How many operations a forward and a backward pass start on a GPU, views apart; counted on
    the meta device, the LSTM's on the CPU, so that no GPU is needed."""
    device = "cpu" if (one.mechanism, one.form) == LSTM else "meta"
    layer, x = one.layer(n, device), one.sequence(n, device)
    told = one.extra_inputs(n, device)
    with as_on_an_accelerator():
        layer(x, **told)  # what is made once for each length is not counted
        return count(lambda y: layer(y, **told), x, backward=True).operations


def started(plan: Plan, known: Sequence[Row]) -> Iterator[Row]:
    """A row for each form and each length of COUNTED that `known` does not have: `operations`, or
    the reason why they are not counted, and `peak`, the FLOPs per second of this machine."""
    done = {identity(row) for row in known if row["pass"] == STARTED}
    peaks: list[float] = []
    for entry in plan.entries:
        for n in COUNTED:
            row = entry.key() | {"n": n, "pass": STARTED} | empty_row() | plan.common()
            if entry.peer is not None or identity(row) in done:
                continue
            peaks = peaks or [_peak(plan)]  # a second of work, not done where all is known
            try:
                operations, reason = launches(entry.subject, n), None
            except (ValueError, RuntimeError, NotImplementedError) as error:  # reads structures
                why = f"{error}".strip().splitlines() or [type(error).__name__]
                operations, reason = None, f"not counted: {why[0]}"
            yield row | {"operations": operations, "reason": reason, "peak": peaks[0]}


class Started(NamedTuple):
    """What a form starts and reaches on a machine.

    operations: by length, None where they are not counted. share: of `peak` (FLOPs per second), by
    the forward pass at n tokens, the longest that was timed and counted; None where none was.
    """

    operations: dict[int, int | None]
    share: float | None
    n: int | None
    peak: float


def starts(rows: Iterable[Row]) -> dict[str, Started]:
    """By the name of each layer (``summary.name``), what rows of the pass `started` say of it."""
    rows = list(rows)
    flops = {
        (summary.name(row), row["n"]): row["flops"]
        for row in rows if row["pass"] == "counted" and row["reason"] is None
    }  # fmt: skip
    timed: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        about = summary.name(row)
        if row["pass"] == "forward" and row["seconds"] and (about, row["n"]) in flops:
            rate = flops[about, row["n"]] / row["median"]
            timed.setdefault(about, []).append((row["n"], rate))
    found: dict[str, Started] = {}
    for row in rows:
        if row["pass"] == STARTED:
            about = summary.name(row)
            n, rate = max(timed.get(about, [(None, None)]))
            share = None if rate is None else rate / row["peak"]
            one = found.setdefault(about, Started({}, share, n, row["peak"]))
            one.operations[row["n"]] = row["operations"]
    return found


def _starts(rows: Iterable[Row]) -> str:
    """A table: operations started at two lengths, and the share of the peak at the longest."""
    found = starts(rows)
    lines = []
    for name, one in found.items():
        counts = [one.operations.get(n) for n in COUNTED]
        reached = ("", "") if one.share is None else (f"{one.share:.1%}", f"{one.n:,}")
        lines.append((name, *("not counted" if x is None else f"{x:,}" for x in counts), *reached))
    headings = ("layer", *(f"started at {n:,}" for n in COUNTED), "of the peak", "at n =")
    peak = max((one.peak for one in found.values()), default=0.0)
    return (
        grid(headings, lines, (False, True, True, True, True))
        + f"\nPeak: {peak / 1e12:,.2f} TFLOPs per second, a large product in the same precision."
    )
