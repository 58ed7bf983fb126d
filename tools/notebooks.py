"""``python -m tools.notebooks [path …]``: seconds and peak memory of notebooks.

Each is run from top to bottom in a fresh kernel; it fails over 60 s or 1.5 GB.

The memory is that of the kernel's process and its children: resident, sampled twenty times a
second, and never below the kernel's own exact high-water mark where the system keeps one. Nothing
is written back to the notebooks.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.core.files import Unwritten
from attnlab.measure import command, tables
from attnlab.measure.memory import environment
from attnlab.measure.report import grid, machine, machine_line

SECONDS, GIGABYTES = 60.0, 1.5
_HEADINGS = ("notebook", "seconds", "peak memory", "verdict")


@dataclass(frozen=True)
class Profile:
    """One notebook's run; `error` is the sentence of a failing cell, empty where all ran."""

    path: Path
    seconds: float
    peak_bytes: int
    error: str = ""

    def verdict(self, seconds: float = SECONDS, gigabytes: float = GIGABYTES) -> str:
        """`ok`, or everything that is wrong: `failed: …`, `over 60 s`, `over 1.5 GB`."""
        wrong = [f"failed: {self.error}"] if self.error else []
        wrong += [f"over {seconds:g} s"] if self.seconds > seconds else []
        wrong += [f"over {gigabytes:g} GB"] if self.peak_bytes > gigabytes * 1e9 else []
        return ", ".join(wrong) or "ok"


def find(paths: Sequence[str | Path]) -> list[Path]:
    """The notebooks under the given files and folders, in order; `notebooks/` by default."""
    if isinstance(paths, str) or not all(isinstance(path, str | Path) for path in paths):
        raise TypeError(f"`paths` should be a list of files and folders, got {paths!r}")
    found: list[Path] = []
    for path in map(Path, paths or ["notebooks"]):
        found += sorted(path.glob("*.ipynb")) if path.is_dir() else [path]
    missing = [str(path) for path in found if not path.is_file()]
    if missing or not found:
        where = ", ".join(missing or map(str, paths or ["notebooks"]))
        raise FileNotFoundError(f"no notebook at {where}; give files or folders that hold some")
    return found


def profile(path: Path, *, threads: int = 2, timeout: float = 600) -> Profile:
    """Run one notebook in its own folder; a cell that fails or hangs ends up in `error`."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.resolve().parent)}}
    client = NotebookClient(notebook, timeout=int(timeout), resources=folder)
    environ = {**environment(), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    start, error, peak = time.perf_counter(), "", [0]
    try:
        with client.setup_kernel(env=environ), _sampled(_process(client), peak):
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
    except CellExecutionError as failure:
        error = f"{failure.ename}: {failure.evalue}"
    except (CellTimeoutError, DeadKernelError) as failure:
        error = str(failure).strip().splitlines()[0]
    return Profile(path, time.perf_counter() - start, peak[0], error)


def _process(client: Any) -> int:
    """The kernel's process id. Its provisioner is jupyter_client's, version 7 and later."""
    return int(client.km.provisioner.process.pid)


@contextmanager
def _sampled(process: int, peak: list[int], every: float = 0.05) -> Iterator[None]:
    """Raise `peak[0]` to the most bytes that the process and its children hold in the block."""
    import psutil

    kernel = psutil.Process(process)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(every):
            peak[0] = max(peak[0], _held(kernel))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        peak[0] = max(peak[0], _high_water(process))
        done.set()
        thread.join()


def _held(kernel: Any) -> int:
    import psutil

    total = 0
    try:
        for process in [kernel, *kernel.children(recursive=True)]:
            total += process.memory_info().rss
    except psutil.Error:  # one ended between the list and the look
        return total
    return total


def _high_water(process: int) -> int:
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return 0
    lines = status.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def report(profiles: Sequence[Profile], *, markdown: bool = False) -> str:
    """The table of both figures, one line per notebook."""
    lines = [
        (
            os.path.relpath(profiled.path),
            f"{profiled.seconds:.1f}",
            f"{profiled.peak_bytes / 1e9:.2f} GB",
            profiled.verdict(),
        )
        for profiled in profiles
    ]
    return grid(_HEADINGS, lines, (False, True, True, False), markdown=markdown)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="path", help="default: the folder notebooks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--threads", type=command.at_least_one, default=2, help="default: 2")
    options = parser.parse_args(arguments)
    profiles = []
    try:
        found = find(options.paths)
        tables.held(options.json, "notebooks")
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    for path in found:
        print(f"running {path} …", file=sys.stderr, flush=True)
        profiles.append(profile(path, threads=options.threads))
    print(machine_line(machine(options.threads)))
    print(f"\n{report(profiles, markdown=options.markdown)}")
    rows = [
        {"path": str(one.path), "seconds": one.seconds, "peak_bytes": one.peak_bytes}
        | {"verdict": one.verdict()}
        for one in profiles
    ]
    try:
        tables.write(options.json, {"machine": machine(options.threads), "notebooks": rows})
    except Unwritten as error:
        print(error, file=sys.stderr)
        return 2
    return int(any(profiled.verdict() != "ok" for profiled in profiles))


if __name__ == "__main__":
    sys.exit(main())
