"""Memory of a call as it runs: the cross-check of the counted peak.

`count` follows PyTorch's storages; it cannot see a kernel's own workspace, fragments or caches.
`allocated` asks PyTorch's allocator, which sees the workspaces that kernels take from it.
`resident` runs the call in a fresh interpreter and asks the operating system for the peak, which
has also what libraries such as oneDNN and MKL take for themselves.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from attnlab.core.integers import check_integer

_STATUS = Path("/proc/self/status")


def resident(call: str, *, setup: str = "", threads: int = 2) -> int:
    """Bytes by which `call` raises a fresh process's peak resident memory above its start.

    Both arguments are Python source, as for `timeit`: `setup` runs first and is not measured
    (imports, inputs, a small first call that loads kernels); `call` runs once.

    Exact to some megabytes: pages that setup left free may be used again. Where there is no
    /proc (macOS), the start is the peak of the setup, so the answer is a lower bound.
    """
    for name, source in (("call", call), ("setup", setup)):
        if not isinstance(source, str):
            raise TypeError(
                f"`{name}` should be Python source as text, got {type(source).__name__}"
            )
    threads = check_integer("threads", threads, at_least=1)
    task = json.dumps({"setup": setup, "call": call, "threads": threads})
    child = subprocess.run(
        [sys.executable, "-m", "attnlab.measure.memory"],
        input=task,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"the measured process failed:\n{child.stderr.strip()}")
    return int(child.stdout.splitlines()[-1])


def allocated(call: Callable[[], object], device: str = "cpu") -> int:
    """Most bytes that PyTorch's allocator had given out at once during `call`, above those before.

    On a CPU the allocator reports every block, results and kernels' workspaces alike, to the
    profiler; on a GPU it keeps the peak itself.
    """
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        torch.cuda.synchronize()
        peak_now = torch.cuda.max_memory_allocated()
        del result
        return peak_now - before
    with _quiet(), torch.profiler.profile(activities=[_CPU], profile_memory=True) as profiled:
        result = call()
    del result
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), i, e.nbytes()) for i, e in enumerate(events) if _of_memory(e))
    return max(accumulate((size for _, _, size in changes), initial=0))


_CPU = torch.profiler.ProfilerActivity.CPU


def _of_memory(event: Any) -> bool:
    return bool(event.name() == "[memory]")


@contextmanager
def _quiet() -> Iterator[None]:
    """Some builds of the profiler write that they start and stop on the process's error stream."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def available() -> float:
    """Bytes available without swapping; 0 where there is no /proc."""
    information = Path("/proc/meminfo")
    lines = information.read_text().splitlines() if information.exists() else []
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return float(found[0]) * 1024 if found else 0.0


def environment() -> dict[str, str]:
    """This process's environment, in which a child imports the same attnlab as this process."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _kilobytes(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def _now() -> int:
    """Bytes resident now (with /proc), or at the peak so far."""
    return _kilobytes("VmRSS") * 1024 if _STATUS.exists() else peak()


def peak() -> int:
    """Bytes that this process has had resident at most, since it began."""
    # VmHWM rather than ru_maxrss where there is a choice: on Linux the latter survives exec, so a
    # child would report the size of the parent that started it.
    if _STATUS.exists():
        return _kilobytes("VmHWM") * 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _forget_peak() -> None:
    """Set VmHWM back to the present size; where the kernel refuses, the old peak stands."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _child() -> None:
    try:
        task = json.load(sys.stdin)
    except ValueError:
        sys.exit("usage: attnlab.measure.memory.resident starts this and tells it its task")
    torch.set_num_threads(task["threads"])
    names: dict[str, object] = {}
    exec(task["setup"], names)
    _forget_peak()
    start = _now()
    exec(task["call"], names)
    sys.stdout.write(f"\n{max(0, peak() - start)}\n")


if __name__ == "__main__":
    _child()
