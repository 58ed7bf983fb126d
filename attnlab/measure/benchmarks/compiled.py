"""Compiled: how many times as fast as eager each form is under torch.compile, on this machine.

Each form is compiled whole, for one length, in a process of its own; the compiled call must give
what the eager one gives, up to rounding, then processor time is taken of both in the same rounds. A
form that takes a step a token is compiled for few tokens, because the compiler writes out the steps
one after the other, which takes it very long. Forms that call as many operations at any length come
first, and after ``LIMIT`` seconds of the processor the rest of a form's rows say so.
"""

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from signal import SIGKILL
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.card import Card
from attnlab.measure.measured import call_of
from attnlab.measure.parts import Mine, always
from attnlab.measure.report import Row
from attnlab.measure.subject import Subject, subject, subjects
from attnlab.measure.timing import quartiles, taken_by, thread_count

PASSES: Mapping[str, str] = {"forward": "forward", "forward and backward": "both"}
LENGTH, QUICK = 1024, 64
STEPS = 16
"""The length for which a form that takes a step a token is compiled."""
LIMIT = 300.0
"""Seconds of the processor that the process of one form may take together with the C++ compilers
that it starts, so that other programs on the machine stop no form."""
PATIENCE = 3600.0
"""Seconds by the clock after which a process is ended that does nothing, or next to nothing."""
SPENT = 75
"""The exit code of a process that has used up its seconds of the processor."""
APART = 1e-3
"""How far a tensor of the compiled result may be from the same tensor of the eager one, both in
32-bit numbers, as a share of the largest number in it. Where it is farther, both are compared with
the result in 64-bit numbers."""


@dataclass(frozen=True)
class Compiled:
    """A layer as ``torch.compile`` makes it, whole and for one length."""

    plain: Subject

    def layer(self, n: int, device: str = "cpu", seed: int = 0) -> nn.Module:
        made = self.plain.layer(n, device, seed)
        return torch.compile(made, fullgraph=True, dynamic=False)  # type: ignore[return-value]

    def extra_inputs(self, n: int, device: str = "cpu") -> dict[str, Any]:
        return self.plain.extra_inputs(n, device)

    def sequence(self, n: int, device: str = "cpu", seed: int = 0) -> Tensor:
        return self.plain.sequence(n, device, seed)


def forms(*, quick: bool = False) -> list[Subject]:
    """Every form of every mechanism that mixes positions, those first whose operations do not grow
    with n, and of them the last form of each page; quickly, two."""
    if quick:
        return [subject("full", form=form) for form in ("fused", "naive")]
    last = subjects()
    others = [
        one.with_form(form)
        for one in last
        if "form" in one.card.option_names()
        for form in one.card.forms
        if form != one.form
    ]
    return sorted([*last, *others], key=_unrolled)


def _unrolled(one: Subject) -> float:
    """How the number of operations grows that the compiler writes out one after the other: the
    claim on the card, with n = ``LENGTH`` and every other letter 1."""
    claimed = one.card.order("launches", one.form)
    letters = {each: LENGTH if each.name == "n" else 1 for each in claimed.free_symbols}
    return float(claimed.subs(letters))


def tokens(card: Card, form: str) -> int:
    """The length for which a form is compiled: ``STEPS`` where its card claims that the operations
    it calls grow like n, unless it is blocked, so that a step is one of many tokens; else
    ``LENGTH``."""
    claimed = card.order("launches", form)
    stepwise = claimed.is_Symbol and claimed.name == "n" and form != "blocked"
    return STEPS if stepwise else LENGTH


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The rows of all forms, one for each pass."""
    for batch in batches(quick=quick, threads=threads, kept={}):
        yield from batch


def batches(
    *, quick: bool, threads: int, kept: Mapping[str, Row], mine: Mine = always
) -> Iterator[list[Row]]:
    """The rows of one form after the other; those that are ``kept`` with a figure are not measured
    again, and a form that is not ``mine`` is left to another process."""
    for one in forms(quick=quick):
        if not mine():
            continue
        n = QUICK if quick else tokens(one.card, one.form)
        names = figures(one, n)
        held = [kept[name] for name in names if name in kept and kept[name].measured is not None]
        yield held if len(held) == len(names) else _apart(one, n, 3 if quick else 9, threads)


def figures(one: Subject, n: int) -> list[str]:
    """The names of the rows of one form."""
    return [named(one.mechanism, one.form, n, which) for which in PASSES]


def named(mechanism: str, form: str, n: int, which: str) -> str:
    """The name of the row of one pass, a key of ``PASSES``."""
    return f"{mechanism} ({form}), n = {n:,}, {which}"


def _apart(one: Subject, n: int, rounds: int, threads: int) -> list[Row]:
    """The rows of one form, measured in a process that is ended when its time is up."""
    context, names = _context(), figures(one, n)
    ours, theirs = context.Pipe(duplex=False)
    given = (LIMIT, _measure, theirs, one, n, rounds, threads)
    process = context.Process(target=_within, args=given, daemon=True)
    ends = time.monotonic() + PATIENCE
    found: list[Row] = []
    process.start()
    theirs.close()
    why = f"not done after {PATIENCE:,g} s"
    with suppress(EOFError):
        while len(found) < len(names) and ours.poll(max(0.0, ends - time.monotonic())):
            found.append(ours.recv())
    if time.monotonic() < ends:
        process.join(10)
        why = f"the process ended with code {process.exitcode}"
        if process.exitcode == SPENT:
            why = f"not done after {LIMIT:,g} s of the processor"
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid or 0, SIGKILL)  # and the C++ compiler that it may have started
    process.kill()  # which has no group of its own yet, if the time was up very early
    process.join()
    return [*found, *(Row(name, None, note=why) for name in names[len(found) :])]


def _within(seconds: float, measure: Callable[..., None], *given: Any) -> None:
    """Call ``measure`` in a group of processes of its own, which can be ended together, and end
    this process once it and those that it has waited for have used up the processor's time."""
    os.setsid()
    Thread(target=_watch, args=(seconds,), daemon=True).start()
    measure(*given)


def _watch(seconds: float) -> None:
    while sum(os.times()[:4]) < seconds:  # user and system, of this process and its children
        time.sleep(min(1.0, seconds / 10))
    os._exit(SPENT)


def _context() -> Any:
    """Processes are copies of one that has imported PyTorch and its compiler, where Linux has them;
    nothing is compiled in that one."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._inductor.compile_fx"])
    return context


def _measure(to: Connection, one: Subject, n: int, rounds: int, threads: int) -> None:
    """Send the row of each pass as soon as it is known."""
    torch._inductor.config.compile_threads = 1
    for name, which in zip(figures(one, n), PASSES.values(), strict=True):
        try:
            to.send(compared(name, one, n, which, rounds=rounds, threads=threads))
        except Exception as error:  # whatever a compiler raises
            reason = str(error).strip().splitlines() or [""]
            to.send(Row(name, None, note=f"{type(error).__name__}: {reason[0][:200]}"))


def compared(figure: str, one: Subject, n: int, which: str, *, rounds: int, threads: int) -> Row:
    """How many times as long the eager call takes as the compiled one, above 1 where compiling
    gains; not measured where their results differ."""
    eager, compiled = call_of(one, n, which), call_of(Compiled(one), n, which)  # type: ignore[arg-type]
    with thread_count(threads):
        start = time.perf_counter()
        made = _seeded(compiled)
        took = time.perf_counter() - start
        wanted = _seeded(eager)
        if wrong := _wrong(made, wanted, one, n, which):
            why = f"the compiled result differs from the eager one by {max(wrong):.1e} of its size"
            return Row(figure, None, "×", note=why)
        del made, wanted
        pairs = [(_busy(eager), _busy(compiled)) for _ in range(rounds + 1)][1:]
    ratios = [own / other for own, other in pairs]
    own, other = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    note = f"eager: {own:.3g} ms; compiled: {other:.3g} ms, and {took:.0f} s to compile"
    return Row(figure, statistics.median(ratios), "×", quartiles=quartiles(ratios), note=note)


def _wrong(made: Any, wanted: Any, one: Subject, n: int, which: str) -> list[float]:
    """The differences of those tensors that rounding does not explain.

    A tensor may differ by more than ``APART`` if it is at most twice as far from the one in 64-bit
    numbers as the eager one is. Gradients that would be zero without rounding need this, such as
    those of a sum of layer-normed numbers: they have no size to compare with. A form that draws
    random numbers would draw others in 64 bits, so for it ``APART`` alone counts.
    """
    apart = differences(made, wanted)
    far = [not each <= APART for each in apart]  # a NaN is far, too
    if any(far) and not _draws(call_of(one, n, which)):
        exact = _seeded(call_of(one, n, which, dtype="float64"))
        pairs = zip(differences(made, exact), differences(wanted, exact), strict=True)
        far = [
            is_far and not own <= 2 * eager for is_far, (own, eager) in zip(far, pairs, strict=True)
        ]
    return [each for each, is_far in zip(apart, far, strict=True) if is_far]


def _draws(call: Any) -> bool:
    """Whether a call takes random numbers from PyTorch's generator."""
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        call()
        return not torch.equal(before, torch.get_rng_state())


def _busy(call: Any) -> float:
    """Processor seconds of one call, which other programs on the machine change less than the
    clock."""
    taken = taken_by(call)
    return taken.user + taken.system


def _seeded(call: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return call()


def differences(made: Any, wanted: Any) -> list[float]:
    """How far each tensor of a result is from the same tensor of the second result: the largest
    difference of two numbers, divided by the largest number of the second tensor."""
    pairs = zip(_tensors(made), _tensors(wanted), strict=True)
    return [_relative(one.detach(), other.detach()) for one, other in pairs]


def _relative(one: Tensor, other: Tensor) -> float:
    size = max(float(other.abs().max()), 1e-6) if other.numel() else 1.0
    return float((one - other).abs().max()) / size if other.numel() else 0.0


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, list | tuple):
        for part in result:
            yield from _tensors(part)
