"""Claims: names that say which process made a file, and whether it may still be at work on it.

    <place>-<process>-<start>-<random>-<checksum>

`place` stands for the machine (its name, boot and process namespace), `start` is when the kernel
started the process, so that a later process with the same number is not mistaken for it. The
checksum of the rest distinguishes a claim from any name that a user may choose: a file named by a
claim was made by attnlab, even if the process was killed before it wrote one byte.
"""

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

_SHAPE = re.compile(r"([0-9a-f]{8})-(\d+)-(\d*)-[0-9a-f]{8}-([0-9a-f]{8})")
_in_use: set[str] = set()  # the claims of this process; each is removed when its block ends


@contextmanager
def claim() -> Iterator[str]:
    """A name that no other process or thread has; it counts as abandoned when the block ends."""
    pid = os.getpid()
    body = f"{_place()}-{pid}-{_start(pid) or ''}-{secrets.token_hex(4)}"
    name = f"{body}-{_checksum(body)}"
    _in_use.add(name)
    try:
        yield name
    finally:
        _in_use.discard(name)


def is_claim(name: str) -> bool:
    """Whether `claim` made this name, in whatever process."""
    match = _SHAPE.fullmatch(name)
    return match is not None and _checksum(name.rpartition("-")[0]) == match[4]


def is_local(name: str) -> bool:
    """Whether the process of this claim runs, or ran, where it can be seen from here."""
    return is_claim(name) and name.startswith(f"{_place()}-")


def is_abandoned(name: str) -> bool:
    """Whether this claim's process has certainly ended, or released the claim."""
    if not is_local(name):
        return False
    pid, start = (part for part in name.split("-")[1:3])
    if int(pid) == os.getpid() and start == (_start(os.getpid()) or ""):
        return name not in _in_use
    return not _is_running(int(pid), start)


def _is_running(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is another user's
    found = _start(pid)
    return found is None or found == start


def _start(pid: int) -> str | None:
    """When the process began, in the kernel's ticks: "" for one that has ended (a zombie), None
    where the system does not report it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


@cache
def _place() -> str:
    facts = [socket.gethostname()]
    try:
        facts += [os.readlink("/proc/self/ns/pid")]
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")]
    except OSError:
        pass  # not Linux: only the name of the machine is available
    return _checksum("/".join(facts))


def _checksum(text: str) -> str:
    return sha256(f"attnlab.train {text}".encode()).hexdigest()[:8]
