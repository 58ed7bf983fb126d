"""Runs lessons without a browser; prints where strictly compared cells print other than is stored.

    ATEN_CPU_CAPABILITY=avx2 python .ci/lessons.py [05 32 …]    # all lessons by default

The kernels get this process's environment: another processor is imitated by ATEN_CPU_CAPABILITY
(`default` or `avx2`), MKL_CBWR=COMPATIBLE, ONEDNN_MAX_CPU_ISA=SSE41 and OMP_NUM_THREADS. A lesson's
set-up takes one thread, whatever the last says. No file is changed.
"""

import argparse
import difflib
import os
import sys
import time
from pathlib import Path

import nbformat
import torch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).parents[1] / "notebooks"
MACHINE = ("ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell says; one that is compared strictly says nothing but text."""
    return "".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)


def strict(lesson: nbformat.NotebookNode) -> dict[str, str]:
    """What the strictly compared cells print, by their ids."""
    return {
        cell.id: printed(cell)
        for cell in lesson.cells
        if "nbval-check-output" in cell.metadata.get("tags", [])
    }


def differences(path: Path) -> list[str]:
    """The lines that are stored (-) and are now printed (+), or why the lesson has stopped."""
    lesson = nbformat.read(path, as_version=4)
    stored = strict(lesson)
    os.environ["ATTNLAB_TRY_PREDICTIONS"] = "1"  # what is shown after a guess is compared, too
    client = NotebookClient(lesson, timeout=3600, resources={"metadata": {"path": str(FOLDER)}})
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as failure:
        return [f"stopped: {failure}"]
    lines = []
    for name, now in strict(lesson).items():
        changed = list(difflib.ndiff(stored[name].splitlines(), now.splitlines()))
        lines += [f"[{name}] {line}" for line in changed if line[:2] in ("- ", "+ ")]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="how a lesson's name begins")
    names = parser.parse_args().names
    given = (f"{name}={os.environ.get(name, '')}" for name in MACHINE)
    print("PyTorch uses", torch.backends.cpu.get_cpu_capability(), *given)
    paths = sorted(FOLDER.glob("[0-9]*_*.ipynb"))
    wrong = 0
    for path in [p for p in paths if not names or p.name.startswith(tuple(names))]:
        start = time.perf_counter()
        found = differences(path)
        wrong += bool(found)
        state = "differs" if found else "ok"
        print(f"{path.stem} {state}, {time.perf_counter() - start:.0f} s", flush=True)
        print(*found, sep="\n", end="\n" if found else "", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
