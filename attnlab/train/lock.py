"""One writer at a time: a lock file beside the checkpoints that names its owner.

A save holds the lock while it publishes what it has written, which takes milliseconds. The lock of
a process that has died is taken over: at once where the process can be seen, and otherwise, for a
process of another machine, once the lock has not changed for `PATIENCE` seconds.
"""

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnlab.train.errors import CheckpointError
from attnlab.train.ownership import is_abandoned, is_claim, is_local

LOCK = ".attnlab-lock"
TAKEOVER = ".attnlab-lock-takeover"
PATIENCE = 60.0
_UNWRITTEN = 1.0  # seconds after which a lock without a readable owner was left by a kill
_PAUSE = 0.002


@contextmanager
def locked(folder: Path, claim: str) -> Iterator[None]:
    """Holds the lock of `folder` in the name of `claim`; waits for a running owner to release it.

    Raises `CheckpointError` if the owner lives and holds it for longer than `PATIENCE`.
    """
    path = folder / LOCK
    own = _owner(claim)
    _acquire(path, own)
    try:
        with suppress(OSError):
            (folder / TAKEOVER).rmdir()  # left by a kill in the middle of a takeover
        yield
    finally:
        if _text(path) == own:
            with suppress(OSError):
                path.unlink()


def _owner(claim: str) -> str:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    who = {"claim": claim, "host": socket.gethostname(), "process": os.getpid(), "since": now}
    return json.dumps(who) + "\n"


def _acquire(path: Path, own: str) -> None:
    seen, since = "", time.monotonic()
    while not _create(path, own):
        _check_plain(path)
        found = _text(path)
        if found is None:  # it was released at this moment
            continue
        if found != seen:
            seen, since = found, time.monotonic()
        _deal_with(path, found, waited=time.monotonic() - since)
        time.sleep(_PAUSE)


def _create(path: Path, own: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(own)
    except FileExistsError:
        return False
    return _text(path) == own  # or it was taken over before it was written


def _check_plain(path: Path) -> None:
    """A link to nothing can neither be made nor read, and a pipe is read for ever."""
    try:
        plain = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not plain:
        raise _in_the_way(path)


def _in_the_way(path: Path) -> CheckpointError:
    return CheckpointError(
        f"'{path}' stands where the lock of the checkpoints would be, and attnlab did not write "
        "it. Move it, or give another folder. Nothing was written."
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _deal_with(path: Path, found: str, waited: float) -> None:
    """Take over an abandoned lock; otherwise go on waiting, or raise when the time is over."""
    owner = _parsed(found)
    if owner is None:
        if waited > _UNWRITTEN:
            if found:
                raise _in_the_way(path)
            _take_over(path, found)
    elif is_abandoned(owner["claim"]) or (waited > PATIENCE and not is_local(owner["claim"])):
        _take_over(path, found)
    elif waited > PATIENCE:
        raise CheckpointError(
            f"Process {owner['process']} on '{owner['host']}' has been writing to '{path.parent}' "
            f"since {owner['since']} and does not come to an end, and two runs cannot write to one "
            f"folder at a time: end that process, or give another folder; nothing was written"
        )


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        owner = json.loads(text)
        complete = is_claim(owner["claim"]) and {"host", "process", "since"} <= owner.keys()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return owner if complete else None


def _take_over(path: Path, found: str) -> None:
    """Removes the lock if it still reads `found`; one process at a time may do so, or a second one
    would remove the lock that the first has just made its own."""
    guard = path.with_name(TAKEOVER)
    try:
        guard.mkdir()
    except FileExistsError:
        _remove_abandoned(guard)
        return
    try:
        if _text(path) == found:
            path.unlink()
    finally:
        with suppress(OSError):
            guard.rmdir()


def _remove_abandoned(guard: Path) -> None:
    """A takeover takes milliseconds: one that is older, or dated ahead, was left by a kill."""
    with suppress(FileNotFoundError):  # it ended at this moment
        if abs(time.time() - guard.lstat().st_mtime) > PATIENCE:
            try:
                guard.rmdir()
            except OSError as error:  # not empty, or no folder
                raise _in_the_way(guard) from error
