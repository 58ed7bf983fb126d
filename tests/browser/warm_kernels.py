"""Kernels that start warm: forked from one process that has imported what every notebook imports.

Torch, attnlab and plotly take some seconds to import, and each of some hundred notebooks has a
kernel of its own. ``serve`` imports them once and waits at a socket; the kernel's command, ``ask``,
lets it fork, and lives as long as the fork: what ends one of the two ends the other. A lesson that
says how Triton is to be imported gets a new process, since the warm one has imported it.
"""

import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.browser import green, rehearsal

PACKAGES = ("attnlab", "attnlab_widgets")
KERNELS = "attnlab.core.kernels."
PATIENCE = 120  # seconds
BESIDE = ("plotly.graph_objects", "IPython.display", "ipykernel.kernelapp", "ipykernel.ipkernel")


def spec(home: Path) -> dict[str, object]:
    """The kernelspec of Python 3 under which Jupyter starts such kernels."""
    argv = [sys.executable, __file__, "ask", str(door(home)), "{connection_file}"]
    return {
        "argv": argv,
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": True},
    }


def door(home: Path) -> Path:
    return home / "warm"


def serve(path: str) -> None:
    """Import, then fork a kernel for everyone who asks."""
    for name in (*BESIDE, *modules()):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen()
        os.rename(f"{path}.new", path)
        while True:
            line, _ = listening.accept()
            asked = json.loads(line.makefile().readline())
            if os.fork() == 0:
                listening.close()
                become_kernel(line, asked)
            line.close()


def modules() -> list[str]:
    """All of the packages but their commands, and but kernels, which need Triton."""
    return [
        found.name
        for package in PACKAGES
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        if not found.name.endswith("__main__") and not found.name.startswith(KERNELS)
    ]


def become_kernel(line: socket.socket | None, asked: dict[str, object]) -> None:
    import numpy as np
    import torch
    from ipykernel.kernelapp import IPKernelApp

    torch.seed(), np.random.seed(), random.seed()  # or all forks would draw the same numbers
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(str(asked["folder"]))
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    if line is not None:
        threading.Thread(target=end_with, args=(line,), daemon=True).start()
    name = Path(os.environ.get("JPY_SESSION_NAME", "")).name
    if (folder := os.environ.get("ATTNLAB_WATCHED_LESSONS")) and name in green.lessons():
        green.watch(Path(folder) / f"{Path(name).stem}.txt")
    if rehearsal.VARIABLE in os.environ and name in green.lessons():
        rehearsal.rehearse(name)
    sys.argv = ["ipykernel_launcher", "-f", str(asked["file"])]
    sys.path.insert(0, "")  # as Jupyter starts them: what lies beside the notebook is found
    IPKernelApp.launch_instance()
    os._exit(0)


def end_with(line: socket.socket) -> None:
    """Ends this process when the other side of the line is gone."""
    line.recv(1)
    os._exit(0)


def sets_triton(name: str) -> bool:
    """Whether a lesson says whether Triton interprets its kernels, which an import decides."""
    return name in green.lessons() and "TRITON_INTERPRET" in (
        green.ROOT / "notebooks" / name
    ).read_text(encoding="utf-8")


def ask(path: str, file: str) -> None:
    """Have a kernel forked, and wait until it ends."""
    if sets_triton(Path(os.environ.get("JPY_SESSION_NAME", "")).name):
        become_kernel(None, {"file": file, "folder": os.getcwd(), "environment": {**os.environ}})
    hidden = ("JPY_PARENT_PID",)  # the fork has another parent
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    deadline = time.monotonic() + PATIENCE
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.1)  # what it imports takes some seconds
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        asked = {"file": file, "folder": os.getcwd(), "environment": environment}
        line.sendall(json.dumps(asked).encode() + b"\n")
        line.recv(1)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
