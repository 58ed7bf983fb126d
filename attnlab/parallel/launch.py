"""Processes on this machine, started from a script, a test or a notebook, and always ended.

A function that a process can call has to be importable there, so it stands in a module: one that is
typed into a notebook does not exist in another process.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from attnlab.core.arguments import check_positive
from attnlab.core.integers import check_integer
from attnlab.parallel.errors import ProcessesError
from attnlab.parallel.group import LIMIT, Group, connected

LARGEST = 64
"""Processes on one machine; more are a mistake in typing."""

PRELOADED = ["attnlab.parallel.ready"]
"""What is imported once for all processes that are started."""


def in_processes(
    function: Callable[..., Any],
    processes: int,
    *arguments: Any,
    limit: float = LIMIT,
    total: float = 300.0,
) -> list[Any]:
    """Call ``function(group, *arguments)`` in several processes; what each returns, by rank.

    function: one that stands in a module. It is given the ``Group`` of the processes.
    arguments, results: tensors, numbers, texts, and tuples, lists and dicts of them; tensors arrive
        on the CPU, without a graph.
    limit: seconds that one exchange may take.
    total: seconds that everything may take; then the processes are ended.

    Each process computes in one thread. None is left when this returns or raises.

    Raises ValueError for a function that no other process can import, ProcessesError when a
    process raises, dies, or is not done in time; it says which, and what that process said.
    """
    count = check_integer("`processes`", processes, at_least=1)
    if count > LARGEST:
        raise ValueError(f"`processes` should be 1 to {LARGEST} on one machine, got {count}")
    check_positive("limit", limit)
    check_positive("total", total)
    _check_importable(function)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = _context()
    running: list[tuple[Any, Connection]] = []
    try:
        for rank in range(count):
            here, there = context.Pipe(duplex=False)
            work = (there, function, rank, count, store.port, limit, _packed(arguments))
            process = context.Process(target=_work, args=work, daemon=True)
            process.start()
            there.close()
            running.append((process, here))
        return _results(running, limit, total)
    finally:
        for process, here in running:
            if process.is_alive():
                process.kill()
            process.join()
            process.close()
            here.close()


def _context() -> Any:
    """Processes that are copies of one that has imported PyTorch start at once; Linux has them."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _check_importable(function: Callable[..., Any]) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "<" in name:
        raise ValueError(
            f"`function` should stand in a module that other processes can import, got "
            f"{name or function!r} of {module}; write it into a file and import it from there"
        )


# ---- in the process


def _work(
    there: Connection,
    function: Callable[..., Any],
    rank: int,
    count: int,
    port: int,
    limit: float,
    arguments: Any,
) -> None:
    torch.set_num_threads(1)
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:  # all are on this machine, whose name may not be resolved
        os.environ.setdefault("GLOO_SOCKET_IFNAME", min(loopback))
    group: Group | None = None
    try:
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=limit))
        group = connected(store, rank, count, limit)
        group.agree("the start")  # before which none may end
        answer: Any = _Answer(True, _packed(function(group, *_unpacked(arguments))))
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
        if group is not None:
            with suppress(RuntimeError):
                group.store.set(f"failed/{rank}", said.split("\n")[0])
        late = isinstance(error, ProcessesError)
        answer = _Answer(False, said, late, traceback.format_exc())
    there.send(answer)
    there.close()
    if group is not None:  # what this process sent last may still be on its way
        with suppress(RuntimeError):
            group.store.set(f"done/{rank}", "")
            group.store.wait([f"done/{other}" for other in range(count)], timedelta(seconds=limit))
    os._exit(0)  # PyTorch's threads may still run, and tearing the interpreter down would abort


class _Answer(NamedTuple):
    succeeded: bool
    value: Any
    of_others: bool = False  # the error of a process that waited for another one
    trace: str = ""


class _Packed(NamedTuple):
    """A tensor as bytes: PyTorch's own way needs the sender alive when it is read."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    numbers: np.ndarray


def _packed(value: Any) -> Any:
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        return _Packed(plain.dtype, tuple(plain.shape), plain.reshape(-1).view(torch.uint8).numpy())
    return _mapped(_packed, value)


def _unpacked(value: Any) -> Any:
    if isinstance(value, _Packed):
        return torch.from_numpy(value.numbers.copy()).view(value.dtype).reshape(value.shape)
    return _mapped(_unpacked, value)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: function(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(function, value))
    if isinstance(value, list | tuple):
        return type(value)(map(function, value))
    return value


# ---- in the caller


def _results(running: Sequence[tuple[Any, Connection]], limit: float, total: float) -> list[Any]:
    answers: dict[int, _Answer] = {}
    waiting = dict(enumerate(running))
    until = time.monotonic() + total
    while waiting and (left := until - time.monotonic()) > 0:
        ready = wait([here for _, here in waiting.values()], timeout=left)
        for rank in [rank for rank, (_, here) in waiting.items() if here in ready]:
            answers[rank] = _answer(*waiting.pop(rank))
            if not answers[rank].succeeded:
                # The others cannot finish now; they have the time of one exchange to say why.
                until = min(until, time.monotonic() + limit + 2)
    if all(rank in answers and answers[rank].succeeded for rank in range(len(running))):
        return [_unpacked(answers[rank].value) for rank in range(len(running))]
    raise _failure(answers, sorted(waiting), len(running), total)


def _answer(process: Any, here: Connection) -> _Answer:
    """What a process sent before it ended; a closed pipe without a word means that it died."""
    try:
        answer: _Answer = here.recv()
        return answer
    except (EOFError, ConnectionResetError):
        process.join(5)
        return _Answer(False, _end(process.exitcode))


def _end(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended without a word, with exit code {code}"


def _failure(
    answers: dict[int, _Answer], silent: list[int], count: int, total: float
) -> ProcessesError:
    """One error for all: the process that was the first cause, not those that waited for it."""
    failed = {rank: answer for rank, answer in answers.items() if not answer.succeeded}
    if not failed:
        some = "process" if len(silent) == 1 else "processes"
        numbers = ", ".join(map(str, silent))
        return ProcessesError(f"{some} {numbers} of {count} not done within {total:g} s: ended")
    causes = {rank: answer for rank, answer in failed.items() if not answer.of_others} or failed
    rank = min(causes)
    error = ProcessesError(f"Process {rank} of {count} failed: {causes[rank].value}")
    for other, answer in sorted(failed.items()):
        if other != rank and answer.value != causes[rank].value:
            error.add_note(f"Process {other}: {answer.value}")
    if causes[rank].trace:
        error.add_note(causes[rank].trace)
    return error
