"""Runs tests and lessons as other processors compute; says on which they differ.

    python .ci/machines.py                                  # a selection, some minutes a machine
    python .ci/machines.py tests --ignore=tests/browser     # everything but the browser
    python .ci/machines.py --lessons 05 32                  # lessons: .ci/lessons.py

Which vector instructions PyTorch and MKL use, and how many threads share a sum, decide in which
order numbers are added up, and so their last digits. Nothing that is tested may depend on these.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLD = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
}
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
# `make test` is this machine with one thread.
MACHINES = {
    "without vector instructions, one thread": (OLD, 1),
    "AVX2, one thread": (AVX2, 1),
    "AVX2, two threads": (AVX2, 2),
    "this processor, three threads": ({}, 3),
}
SELECTION = ("tests/core", "tests/lens", "tests/mechanisms", "tests/models", "tests/widgets")
PYTEST = ("-m", "pytest", "-q", "-p", "no:nbval", "-p", "no:cacheprovider")


def environment(settings: dict[str, str], threads: int) -> dict[str, str]:
    of_threads = dict.fromkeys(("OMP_NUM_THREADS", "ATTNLAB_TEST_THREADS"), str(threads))
    return {**os.environ, **settings, **of_threads}


def command(arguments: Sequence[str]) -> list[str]:
    if arguments[:1] == ["--lessons"]:
        return [sys.executable, ".ci/lessons.py", *arguments[1:]]
    return [sys.executable, *PYTEST, *(arguments or SELECTION)]


def main(arguments: Sequence[str]) -> str:
    """Empty, or on which machines something failed."""
    failed = []
    for name, machine in MACHINES.items():
        print(f"\n==== {name}", flush=True)
        if subprocess.run(command(arguments), cwd=ROOT, env=environment(*machine)).returncode:
            failed.append(name)
    return "" if not failed else "Red: " + "; ".join(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
