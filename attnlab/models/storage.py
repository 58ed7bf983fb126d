"""A model as one safetensors file: weights, and the config as JSON in the file's metadata.

The metadata also have a digest of all else in the file, which is compared when it is loaded; files
without one (written by earlier versions) are loaded as they are. safetensors holds only numbers and
strings, so loading a file from elsewhere runs no code. A file is compared with the model that its
config describes before memory is allocated for that model.
"""

import json
import operator
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attnlab.core.files import checked_place, in_place_of
from attnlab.models.options import MOST_LAYERS

CONFIG, DIGEST = "config", "attnlab.sha256"
PACKAGE = Path(__file__).parents[1].resolve()
Model = TypeVar("Model", bound=nn.Module)


def save(
    model: nn.Module, path: str | Path, config: Mapping[str, Any], extra: Mapping[str, str]
) -> None:
    """Write the file whole, or leave what was there."""
    path = checked_place(path)
    save_tensors(_first_names(model), path, _metadata(config, extra))


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write tensors, their metadata and a digest of both: the whole file, or nothing."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    metadata = {**metadata, DIGEST: _digest(metadata, tensors)}
    with in_place_of(path) as beside:
        try:
            save_file(tensors, beside, metadata=metadata)
        except SafetensorError as error:  # a full disk, too
            raise OSError(str(error)) from error


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """A digest of the metadata and of each tensor's name, dtype, shape and bytes."""
    sum_of = sha256(json.dumps(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        sum_of.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sum_of.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sum_of.hexdigest()


def check_extra(extra: object) -> None:
    """``extra`` maps strings to strings that a file can hold, and leaves our own names alone."""
    if not isinstance(extra, Mapping):
        raise TypeError(f"extra should be a dict of strings, got a {type(extra).__name__}")
    for key, value in extra.items():
        if key in (CONFIG, DIGEST) or not isinstance(key, str) or not isinstance(value, str):
            raise ValueError(
                f"extra holds strings under names other than {CONFIG!r} and {DIGEST!r}, got "
                f"{key!r}: {type(value).__name__}; turn other things into JSON first"
            )
        try:
            (key + value).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"extra[{key!r}] holds half a surrogate pair, which no file can hold: remove it"
            ) from error


def _as_path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path should be the name of a file, got {path!r}")
    return Path(path)


def _first_names(model: nn.Module) -> dict[str, Tensor]:
    """Each tensor under its first name only: a shared one (tied weights) is stored once."""
    first: dict[tuple[Any, ...], str] = {}
    state = model.state_dict(keep_vars=True)
    if any(tensor.is_meta for tensor in state.values()):
        raise ValueError("the model is on the meta device and holds no numbers to save")
    for name, tensor in state.items():
        first.setdefault(_identity(name, tensor), name)
    return {name: state[name].detach().cpu().contiguous().clone() for name in first.values()}


def _identity(name: str, tensor: Tensor) -> tuple[Any, ...]:
    """Equal for two names of one tensor. Empty tensors and those on meta have no address."""
    if tensor.is_meta:
        return (id(tensor),)
    if tensor.numel() == 0:
        return (name,)
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _metadata(config: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str]:
    try:
        return {CONFIG: json.dumps(dict(config)), **extra}
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the model's config cannot be written as JSON, probably its attention_options: {error}"
        ) from error


def read_told(path: str | Path) -> dict[str, str]:
    """The strings of a file, without its digest."""
    metadata: dict[str, str] = _open(path, lambda file: file.metadata() or {})
    metadata.pop(DIGEST, None)
    return metadata


def read_config(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Config and the other strings of a file that ``save`` wrote."""
    metadata = _open(path, lambda file: file.metadata() or {})
    if CONFIG not in metadata:
        raise ValueError(
            f"{path} holds weights but no config: TinyTransformer.save did not write it"
        )
    text, _ = metadata.pop(CONFIG), metadata.pop(DIGEST, None)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the config inside {path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"the config inside {path} is not a JSON object, got {text[:40]!r}")
    return config, metadata


def load(make: Callable[..., Model], config: Mapping[str, Any], path: str | Path) -> Model:
    """``make(**config)`` with the weights of ``path``, if these are the weights it asks for.

    Where the config is all names and numbers, the model is first built on the meta device, without
    memory, so that a damaged config cannot allocate more memory than its file needs. Files that
    came with attnlab are as they were written; for them it would only take time, as PyTorch imports
    its compiler to draw numbers on that device.
    """
    shapes = _open(path, _shapes)
    layers = config.get("layers")
    if isinstance(layers, int) and layers > max(len(shapes), MOST_LAYERS):  # which may be shared
        raise ValueError(
            f"the config inside {path} asks for {layers} layers, but the file holds only "
            f"{len(shapes)} tensors: it is damaged"
        )
    if _is_json(config) and not Path(path).resolve().is_relative_to(PACKAGE):
        with torch.device("meta"):
            _check_fit(_rebuilt(make, config, path), shapes, path)
    model = _rebuilt(make, config, path)
    _check_fit(model, shapes, path)
    model.load_state_dict(load_tensors(path), strict=False)  # second names may be missing
    return model


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a file, if it is as it was written."""
    metadata, tensors = _open(path, lambda file: (file.metadata() or {}, _tensors(file)))
    written = metadata.pop(DIGEST, None)
    damaged = written is None and any(map(_nearly_digest, metadata))
    if damaged or written not in (None, _digest(metadata, tensors)):
        raise ValueError(
            f"{path} has been damaged or changed since it was written (its digest differs): load "
            "another copy of it"
        )
    return tensors


def _nearly_digest(name: str) -> bool:
    """Whether one character makes a name differ from that of the digest, as one bit can do."""
    return len(name) == len(DIGEST) and sum(map(operator.ne, name, DIGEST)) == 1


def _is_json(config: Mapping[str, Any]) -> bool:
    try:
        return bool(json.dumps(dict(config)))
    except TypeError:
        return False


def _rebuilt(make: Callable[..., Model], config: Mapping[str, Any], path: str | Path) -> Model:
    try:
        return make(**config)
    except Exception as error:  # any option of any mechanism may be what is wrong
        raise ValueError(
            f"the config inside {path} is not one that this version of attnlab builds: {error}"
        ) from error


def _tensors(file: Any) -> dict[str, Tensor]:
    return {name: file.get_tensor(name) for name in list(file.keys())}


def _shapes(file: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every tensor, from the file's header alone."""
    slices = {name: file.get_slice(name) for name in list(file.keys())}
    return {name: (tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}


def _open(path: str | Path, read: Callable[[Any], Any]) -> Any:
    from safetensors import SafetensorError, safe_open

    path = _as_path(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            return read(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable safetensors file, perhaps cut short ({error})"
        ) from error


def _check_fit(
    model: nn.Module, found: Mapping[str, tuple[tuple[int, ...], str]], path: str | Path
) -> None:
    state = model.state_dict(keep_vars=True)
    filled = {_identity(name, state[name]) for name in found if name in state}
    missing = [k for k, v in state.items() if k not in found and _identity(k, v) not in filled]
    common = [name for name in found if name in state]
    faults = {
        "lacks": missing,
        "has no place for": [name for name in found if name not in state],
        "differs in shape at": [
            f"{name} {found[name][0]} for {tuple(state[name].shape)}"
            for name in common
            if found[name][0] != state[name].shape
        ],
        "holds another kind of number at": [
            f"{name} ({found[name][1]})"
            for name in common
            if _is_float(found[name][1]) != state[name].is_floating_point()
        ],
    }
    sentences = [f"{fault} {_few(names)}" for fault, names in faults.items() if names]
    if sentences:
        raise ValueError(f"{path} does not fit the model: it {'; it '.join(sentences)}")


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("F", "BF"))


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
