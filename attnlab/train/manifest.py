"""The manifest of a checkpoint: its folder's name, its step, and a digest of every file."""

import json
from dataclasses import dataclass
from pathlib import Path

from attnlab.core.files import digest, read_plain
from attnlab.train.errors import CheckpointError

FORMAT = 2
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The manifest of a checkpoint: `name` of its folder, `step`, and digests of its `files`."""

    name: str
    step: int
    files: dict[str, str]

    def text(self) -> str:
        body = {
            "written by": "attnlab.train",
            "format": FORMAT,
            "name": self.name,
            "step": self.step,
            "files": self.files,
        }
        return json.dumps(body | {"digest": digest(json.dumps(body).encode())}, indent=1) + "\n"


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of a checkpoint of attnlab; None for every other file and folder."""
    if not path.name.startswith("step-") or not is_folder(path):
        return None
    try:
        manifest = read_manifest(path)
    except (OSError, CheckpointError):
        return None
    return manifest if manifest.name == path.name else None


def is_folder(path: Path) -> bool:
    """A folder itself, not a link to one: files outside the run's folder are never changed."""
    return path.is_dir() and not path.is_symlink()


def unreadable(path: Path, reason: object) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint at '{path}' cannot be read: {reason}. It was left as it is. Give another "
        "folder, or begin anew with resume=False, which replaces a checkpoint of attnlab at the "
        "first save and touches nothing else."
    )


def read_manifest(path: Path) -> Manifest:
    try:
        text = read_plain(path / MANIFEST).decode()
    except FileNotFoundError:
        raise without_manifest(path) from None
    except UnicodeDecodeError as error:
        raise unreadable(path, f"'{MANIFEST}' is damaged ({error})") from error
    try:
        body = json.loads(text)
        if body["format"] != FORMAT:
            raise unreadable(path, f"its format is {body['format']!r}, this attnlab reads {FORMAT}")
        manifest = Manifest(body["name"], body["step"], body["files"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise unreadable(path, f"'{MANIFEST}' is damaged ({error})") from error
    if manifest.text() != text:
        raise unreadable(path, f"'{MANIFEST}' has been damaged or changed (its digest differs)")
    return manifest


def without_manifest(path: Path) -> CheckpointError:
    if (path / "model.safetensors").exists():
        return unreadable(
            path,
            f"it has no '{MANIFEST}', so it was written by an earlier attnlab, which stored "
            "neither digests nor the model's configuration, or by something else. "
            "safetensors.torch.load_file reads the weights in its model.safetensors; a run cannot "
            "go on from it",
        )
    return unreadable(path, f"it has no '{MANIFEST}', so attnlab did not write it")
