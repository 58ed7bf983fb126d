"""Files that we write: whole or not at all, and never in the place of what is not ours.

A file that a caller names is written beside its place and then renamed, so that a full disk leaves
what was there. A folder that a command fills has a manifest (`MANIFEST`), which names the files of
that command, each with its digest. Only what it names is ever replaced or removed, only inside the
folder (no link is followed), and only while it is unchanged: else the user has to say so.
"""

import json
import os
import secrets
import shutil
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

MANIFEST = ".attnlab.json"
NEW, SAME, REPLACED, REMOVED = "new", "unchanged", "replaced", "removed"
EDITED = "was changed after it was written"


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


# ---- one file


def read_plain(path: Path) -> bytes:
    """The content; an OSError for what is no plain file, as a pipe would be read for ever."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a plain file")
    return path.read_bytes()


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Write the file whole, or leave what was there; an error says what stands in the way."""
    with in_place_of(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


class Unwritten(OSError):
    """A file that could not be written, for example on a full disk."""


@contextmanager
def in_place_of(path: str | Path) -> Iterator[Path]:
    """A path to write to, whose file takes the place of `path` once the block has ended well."""
    path = checked_place(path)
    beside = path.with_name(f".writing-{secrets.token_hex(8)}")
    try:
        beside.touch(exist_ok=False)
        mode = (
            beside.stat().st_mode & 0o777
        )  # what the user's umask leaves; libraries may not ask it
        yield beside
        beside.chmod(mode)
        os.replace(beside, path)
    except OSError as error:
        raise Unwritten(
            f"{path} could not be written ({error.strerror or error}); what was there is as it was"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def checked_place(path: str | Path) -> Path:
    """`path`, if a file can be written there: its folder exists, and nothing else is there."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path should be the name of a file, got {path!r}")
    path = Path(path)
    if "\0" in str(path):
        raise ValueError(f"path should be the name of a file; {str(path)!r} holds a null character")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if not os.path.isdir(path.parent):
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileExistsError(f"{path} is not a plain file, so no file can take its place")
    return path


# ---- a folder that a command fills


class Undelivered(ValueError):
    """A command cannot fill its folder, for example as that holds files of others."""


class Fate(NamedTuple):
    """What becomes of a file of the folder, and why it may not."""

    what: str
    refused: str = ""


@dataclass(frozen=True)
class Delivery:
    """The files under `made` on their way into `folder`, whose manifest says which are ours.

    `by` is the command as its user types it. With `clear` the folder is all its own: files of an
    earlier delivery that are not made any more are removed. With `overwrite`, files that were
    changed since they were written are replaced.
    """

    made: Path
    folder: Path
    by: str
    clear: bool = False
    overwrite: bool = False

    @cached_property
    def known(self) -> dict[str, str]:
        """The digests of the files that an earlier delivery has written, by name."""
        return manifest(self.folder, self.by)

    @cached_property
    def fates(self) -> dict[str, Fate]:
        """What happens to each file that is made or, with `clear`, was made before."""
        known = self.known
        made = {p.relative_to(self.made).as_posix() for p in self.made.rglob("*") if p.is_file()}
        there = {name for name in known if self.clear and os.path.lexists(self.folder / name)}
        return {name: self._fate(name, name in made) for name in sorted(made | there)}

    @property
    def refused(self) -> list[str]:
        return [f"{name} {fate.refused}" for name, fate in self.fates.items() if fate.refused]

    def _fate(self, name: str, made: bool) -> Fate:
        what, place = REPLACED if made else REMOVED, self.folder / name
        if why := obstacle(self.folder, name):
            return Fate(what, why)
        if not place.exists():
            return Fate(NEW)
        found = digest_of(place)
        if made and found == digest_of(self.made / name):
            return Fate(SAME)
        if name not in self.known:
            return Fate(what, f"is not a file of {self.by}")
        return Fate(what, EDITED * (found != self.known[name] and not self.overwrite))

    def check(self) -> None:
        """Refuse what can be refused before anything is made."""
        folder = self.folder
        if not self.known and self.clear and os.path.isdir(folder) and os.listdir(folder):
            raise Undelivered(
                f"{folder} holds files, and no list of those that {self.by} has written: name "
                "another folder, or empty it; nothing was written"
            )

    def listed(self) -> str:
        """What would be done, a line for each file that would not stay as it is."""
        done = [f"{f.what}: {n}" for n, f in self.fates.items() if not f.refused and f.what != SAME]
        lines = [*done, *(f"refused: {each}" for each in self.refused)]
        return "\n".join(lines) or f"{self.folder} is up to date"

    def carry_out(self) -> str:
        """Write and remove, and say how many files; nothing where one of them is refused."""
        if self.refused:
            raise Undelivered(self._refusal())
        self.folder.mkdir(parents=True, exist_ok=True)
        digests = dict(self.known)
        try:
            for name, fate in self.fates.items():
                self._deal_with(name, fate.what, digests)
        finally:
            body = {"written by": self.by, "files": digests}
            write_file(self.folder / MANIFEST, json.dumps(body, indent=1) + "\n")
        counts = Counter(fate.what for fate in self.fates.values())
        return f"{self.folder}: files " + ", ".join(f"{what} {n}" for what, n in counts.items())

    def _refusal(self) -> str:
        lines = [f"  {each}" for each in self.refused[:10]]
        lines += [f"  and {len(self.refused) - 10} more"] * (len(self.refused) > 10)
        edited = any(fate.refused == EDITED for fate in self.fates.values())
        say_so = " --overwrite replaces what was changed since it was written." * edited
        named = "\n".join(lines)
        return (
            f"Nothing was written to {self.folder}, so that nothing of yours is lost:\n{named}\n"
            f"Move these files, or name another folder.{say_so}"
        )

    def _deal_with(self, name: str, what: str, digests: dict[str, str]) -> None:
        place, made = self.folder / name, self.made / name
        if what == REMOVED:
            place.unlink()
            digests.pop(name)
            with suppress(OSError):  # it holds something else
                place.parent.rmdir()
            return
        if what != SAME:
            place.parent.mkdir(parents=True, exist_ok=True)
            with in_place_of(place) as beside:
                shutil.copyfile(made, beside)
        digests[name] = digest_of(made)


def obstacle(folder: Path, name: str) -> str:
    """Why the file of this name must not be touched, whoever wrote it; "" where it may."""
    *above, place = [folder.joinpath(*parts) for parts in _beginnings(name)]
    for path in (*above, place):
        if path.is_symlink():
            return f"would be written through a link, {path}"
    for path in above:
        if path.exists() and not path.is_dir():
            return f"needs a folder where {path} is a file"
    return "is not a plain file" if place.exists() and not place.is_file() else ""


def _beginnings(name: str) -> list[tuple[str, ...]]:
    parts = PurePosixPath(name).parts
    return [parts[: length + 1] for length in range(len(parts))]


def manifest(folder: Path, by: str) -> dict[str, str]:
    """The digests of the files that `by` has written to `folder`; none where it wrote nothing."""
    path = folder / MANIFEST
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Undelivered(f"{folder} cannot be a folder: {error.strerror}") from error
    if not folder.is_dir():
        raise Undelivered(f"{folder} is not a folder: name one; nothing was written")
    if not os.path.lexists(path):
        return {}
    try:
        body: Any = None if path.is_symlink() else json.loads(read_plain(path))
        writer, files = body["written by"], dict(body["files"])
        sound = all(isinstance(d, str) and _is_inside(name) for name, d in files.items())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise Undelivered(
            f"{path} is not the list of files that {by} writes, or is damaged: name another "
            "folder, or move that file and what it was to list; nothing was written"
        )
    if writer != by:
        raise Undelivered(f"{folder} is what {writer!r} wrote; name another folder for {by}")
    return files


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


# ---- its command line


def add_options(parser: ArgumentParser) -> None:
    """What a person may say of a delivery."""
    parser.add_argument("--overwrite", action="store_true", help="also files that were changed")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def deliver(delivery: Delivery, options: Namespace) -> str:
    """What was done, or would be."""
    try:
        return delivery.listed() if options.dry_run else delivery.carry_out()
    except OSError as error:
        raise Undelivered(f"{delivery.folder} could not be written: {error}") from error
