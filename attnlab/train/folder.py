"""The folder of a run: which of its files are attnlab's checkpoints, and which one is the latest.

    folder/
        latest                    one line: the latest checkpoint, and its manifest's digest
        step-00000300/
            manifest.json         this folder's name and step, and the digest of each file beside it
            model.safetensors     parameters and buffers, a tied weight once, under its first name
            optimizer.safetensors `parameter/slot`, for example `blocks.0.mix.query.weight/exp_avg`
            generators.safetensors random generator states, one row per process
            state.json            schedule, model, task, history …: plain JSON

A checkpoint is written as a hidden draft beside its final place, forced to disk, renamed (which is
atomic), and only then named in `latest` (replaced, which is atomic too); the one before is removed
last. So `latest` names a complete checkpoint at every moment.

Only what attnlab wrote is ever removed: a checkpoint whose manifest names its folder, a draft
whose name is a claim, and in both only the files listed above. All else belongs to the user.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from attnlab.core.files import digest, read_plain
from attnlab.train.errors import CheckpointError
from attnlab.train.lock import locked
from attnlab.train.manifest import (
    MANIFEST,
    Manifest,
    is_folder,
    manifest_of,
    read_manifest,
    unreadable,
    without_manifest,
)
from attnlab.train.ownership import claim, is_abandoned, is_claim, is_local

POINTER, STATE = "latest", "state.json"
PARTS = ("model", "optimizer", "generators")
FILES = (*(f"{part}.safetensors" for part in PARTS), STATE)
CARRIED = "carried"  # a part of those runs alone whose model carries a state between batches
OBJECTIVE = "objective"  # a part of those runs alone whose objective has tensors of its own
MAYBE = tuple(f"{part}.safetensors" for part in (CARRIED, OBJECTIVE))
DRAFT = ".writing-"
_OLD_DRAFT = 3600.0  # seconds without a change after which another machine's draft is abandoned
_ATTEMPTS = 1000
_LINE = re.compile(r"(step-\d{8,}(?:\.\d+)?)(?: ([0-9a-f]{64}))?\n")


@dataclass(frozen=True)
class Found:
    """A checkpoint as it was read: every file agrees with the manifest."""

    path: Path
    step: int
    files: dict[str, bytes]


# --- writing --------------------------------------------------------------------------------------


def write(
    folder: Path,
    step: int,
    files: Iterable[tuple[str, bytes]],
    before: Callable[[], None] | None = None,
) -> Path:
    """Writes a checkpoint, makes it the latest, and removes the one before; returns its place.

    `before` is called while the folder is locked against other writers; if it raises, nothing is
    published.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with claim() as owner:
        draft = folder / f"{DRAFT}{owner}"
        try:
            draft.mkdir()
            digests = {name: _store(draft / name, content) for name, content in files}
            with locked(folder, owner):
                check_pointer(folder)
                if before is not None:
                    before()
                final = _publish(folder, draft, step, digests)
                _sweep(folder)
        except Exception:
            _remove(draft)
            raise
    return final


def _store(path: Path, content: bytes) -> str:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return digest(content)


def _publish(folder: Path, draft: Path, step: int, digests: dict[str, str]) -> Path:
    final = folder / _free_name(folder, step)
    manifest = Manifest(final.name, step, digests).text().encode()
    line = f"{final.name} {_store(draft / MANIFEST, manifest)}\n"
    _store(draft / POINTER, line.encode())
    _to_disk(draft)
    os.rename(draft, final)
    _to_disk(folder)
    os.replace(final / POINTER, folder / POINTER)
    _to_disk(folder)
    return final


def _free_name(folder: Path, step: int) -> str:
    """`step-00000300`, or `step-00000300.1` where that name is taken."""
    name = f"step-{step:08d}"
    taken = {path.name for path in folder.iterdir()}
    again = 1
    while name in taken:
        name, again = f"step-{step:08d}.{again}", again + 1
    return name


def _to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- removing -------------------------------------------------------------------------------------


def sweep(folder: Path) -> None:
    """Removes attnlab's files that killed runs have left: old checkpoints, and drafts."""
    with claim() as owner, locked(folder, owner):
        _sweep(folder)


def _sweep(folder: Path) -> None:
    keep = _pointed(folder)
    for path in folder.iterdir():
        if _is_abandoned_draft(path):
            _remove(path)
        elif path.name != keep and manifest_of(path) is not None:
            _retire(path)


def _is_abandoned_draft(path: Path) -> bool:
    name = path.name.removeprefix(DRAFT)
    if name == path.name or not is_claim(name) or not is_folder(path):
        return False
    with suppress(OSError):
        return is_abandoned(name) or (not is_local(name) and _age(path) > _OLD_DRAFT)
    return False


def _age(draft: Path) -> float:
    return time.time() - max(path.stat().st_mtime for path in (draft, *draft.iterdir()))


def _retire(path: Path) -> None:
    """Renames a checkpoint to a draft and removes it, so that a kill leaves only a draft."""
    known = {*FILES, *MAYBE, POINTER, MANIFEST}
    if any(file.name not in known for file in path.iterdir()):
        return _remove(path)  # with a file of the user's in it, it keeps its name
    with claim() as name, suppress(OSError):
        draft = path.with_name(f"{DRAFT}{name}")
        os.rename(path, draft)
        _remove(draft)


def _remove(path: Path) -> None:
    """Removes attnlab's files, the manifest last; a folder that holds anything else stays."""
    for name in (*FILES, *MAYBE, POINTER, MANIFEST):
        with suppress(OSError):
            (path / name).unlink()
    with suppress(OSError):
        path.rmdir()


# --- reading --------------------------------------------------------------------------------------


def read(folder: Path) -> Found | None:
    """The latest checkpoint of `folder`, every byte checked; None if there is none.

    It may be replaced while it is read: then the newer one is read instead, never half of each.
    """
    for attempt in range(_ATTEMPTS):
        before = pointer(folder)
        try:
            return _read_once(folder)
        except CheckpointError:
            if pointer(folder) == before or attempt == _ATTEMPTS - 1:
                raise
    return None


def exists(folder: Path) -> bool:
    """Whether `folder` has a checkpoint, or a pointer to one."""
    return pointer(folder) is not None or _furthest(folder) is not None


def pointer(folder: Path) -> bytes | None:
    """The content of `latest`: two equal answers mean that nothing was published in between."""
    try:
        return read_plain(folder / POINTER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(folder / POINTER, error) from error


def check_pointer(folder: Path) -> None:
    """Raises if `latest` is a file of the user's, which saving would overwrite."""
    path = folder / POINTER
    if not path.is_symlink() and not path.exists():
        return
    if not path.is_symlink() and path.is_file():
        line = _LINE.fullmatch((pointer(folder) or b"").decode(errors="replace"))
        if line is not None or any(map(manifest_of, folder.iterdir())):
            return
    raise CheckpointError(
        f"'{path}' was not written by attnlab, and a checkpoint in this folder would replace it: "
        "move it, or give another folder; nothing was changed"
    )


def _read_once(folder: Path) -> Found | None:
    path, expected = _pointed_path(folder)
    if path is None:
        return None
    try:
        manifest = read_manifest(path)
        if manifest.name != path.name:
            raise unreadable(path, f"its manifest belongs to '{manifest.name}'")
        if expected not in (None, digest(manifest.text().encode())):
            raise unreadable(path, f"its manifest is not the one that '{POINTER}' names")
        names = [*FILES, *(name for name in MAYBE if name in manifest.files)]
        files = {name: read_plain(path / name) for name in names}
    except OSError as error:
        raise unreadable(path, error) from error
    for name, content in files.items():
        if manifest.files.get(name) != digest(content):
            raise unreadable(path, f"'{name}' has been damaged or changed (its digest differs)")
    return Found(path, manifest.step, files)


def _pointed_path(folder: Path) -> tuple[Path | None, str | None]:
    """The path of the latest and its manifest's digest; without pointer, the one of most steps."""
    content = pointer(folder)
    if content is None:
        return _furthest(folder), None
    text = content.decode(errors="replace")
    line = _LINE.fullmatch(text)
    if line is None:
        raise unreadable(folder / POINTER, f"it reads {text[:80]!r}, which names no checkpoint")
    path = folder / line[1]
    if not path.is_dir():
        raise unreadable(folder / POINTER, f"it names '{line[1]}', which does not exist")
    if line[2] is None:
        raise without_manifest(path)
    return path, line[2]


def _pointed(folder: Path) -> str | None:
    path, _ = _pointed_path(folder)
    return None if path is None else path.name


def _furthest(folder: Path) -> Path | None:
    found = [] if not folder.is_dir() else [(manifest_of(p), p) for p in folder.iterdir()]
    complete = [
        (manifest.step, path.name, path)
        for manifest, path in found
        if manifest is not None and all((path / name).exists() for name in FILES)
    ]
    return max(complete)[2] if complete else None
