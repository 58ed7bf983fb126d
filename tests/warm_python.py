"""A Python that has imported what a program needs: it starts in milliseconds, not in seconds.

`serve` is the warm interpreter: it has imported modules, and forks for every program. `command`
writes a small executable, which takes the place of `python` in a command: it gives its arguments,
environment and open streams to the warm interpreter, and ends as the program there has ended, by an
exit code or by a signal; if it is killed itself, the program is killed. What it starts as
`sys.executable` is warm again, so a launcher starts warm processes.

The process of rank 1 is forked by an interpreter of its own: two interpreters hash text
differently, so what follows the order of a set differs between processes as it does elsewhere.
"""

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

NUMBER = struct.Struct("!I")
RANKS = 2


@contextmanager
def command(folder: Path, prepared: str) -> Iterator[str]:
    """The path of an executable that stands for a Python in which these lines have run."""
    warm = folder / "python"
    warm.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text(encoding='utf-8')}")
    warm.chmod(0o700)
    listening = [socket.socket(socket.AF_UNIX) for _ in range(RANKS)]
    for number, each in enumerate(listening):
        each.bind(f"{folder}/{number}")
        each.listen()
    serving = [
        subprocess.Popen(
            [sys.executable, __file__, str(each.fileno()), str(warm), prepared],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[each.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for each in listening
    ]
    for each in listening:
        each.close()
    try:
        assert all(process.stdout and process.stdout.read(1) for process in serving)
        yield str(warm)
    finally:
        for process in serving:
            process.communicate()  # ends its input, which ends it


def serve(listening: socket.socket) -> list[str]:
    """Fork for every program that comes; returns in the process of the program, with its
    arguments."""
    ended, tell = socket.socketpair()
    tell.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(tell.fileno())  # a program's end is readable, as all that is waited for
    running: dict[int, socket.socket] = {}
    waiting = selectors.DefaultSelector()
    for each in (listening, ended, sys.stdin):
        waiting.register(each, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in waiting.select()]
        for process, asking in [*running.items()]:
            if asking in ready:  # it says nothing more: it was killed
                os.kill(process, signal.SIGKILL)
                waiting.unregister(asking)
        if sys.stdin in ready:
            for process in running:
                os.kill(process, signal.SIGKILL)
            os._exit(0)
        if ended in ready:
            ended.recv(4096)
            for process, asking in [*running.items()]:
                which, status = os.waitpid(process, os.WNOHANG)
                if which:
                    del running[process]
                    if asking in waiting.get_map():
                        waiting.unregister(asking)
                        asking.sendall(NUMBER.pack(status))
                    asking.close()
        if listening in ready:
            asking, _ = listening.accept()
            program, streams = received(asking)
            if not (process := os.fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                waiting.close()
                for each in (listening, ended, tell, asking, *running.values()):
                    each.close()
                return begun(program, streams)
            for stream in streams:
                os.close(stream)
            running[process] = asking
            waiting.register(asking, selectors.EVENT_READ)


def received(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A program, and the streams it reads and writes."""
    head, streams, _, _ = socket.recv_fds(asking, NUMBER.size, 3)
    (size,) = NUMBER.unpack(head)
    return json.loads(asking.recv(size, socket.MSG_WAITALL)), streams


def begun(program: dict[str, Any], streams: list[int]) -> list[str]:
    """This process has the program's folder, environment and streams; its arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    arguments: list[str] = program["arguments"]
    return arguments


def ask(folder: str, arguments: list[str]) -> NoReturn:
    """Have the program run by the warm interpreter of its rank; end as it ends."""
    program = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    words = json.dumps(program).encode()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(f"{folder}/{int(os.environ.get('RANK', 0)) % RANKS}")
        socket.send_fds(asking, [NUMBER.pack(len(words))], [0, 1, 2])
        asking.sendall(words)
        status = asking.recv(NUMBER.size, socket.MSG_WAITALL)
    code = os.waitstatus_to_exitcode(*NUMBER.unpack(status))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def run(arguments: list[str]) -> None:
    """As ``python`` would: a module after -m, else the file that is named first."""
    if arguments[0] == "-u":
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        sys.modules.pop(arguments[1], None)  # it was imported as another module's helper
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if os.path.basename(__file__) == "python":
        ask(os.path.dirname(os.path.abspath(__file__)), sys.argv[1:])
    number, warm, prepared = sys.argv[1:]
    sys.path[0] = str(Path(__file__).parents[1])
    exec(prepared, {})
    gc.freeze()  # what is never collected is not copied by forks
    os.write(1, b".")  # it is warm
    arguments = serve(socket.socket(fileno=int(number)))
    sys.executable = warm
    run(arguments)
