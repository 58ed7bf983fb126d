"""A model as one safetensors file: weights, and the config as JSON in the file's metadata.

safetensors holds plain numbers and strings, so opening a stranger's file runs none of its code.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

CONFIG = "config"
Model = TypeVar("Model", bound=nn.Module)


def save(
    model: nn.Module, path: str | Path, config: Mapping[str, Any], extra: Mapping[str, str]
) -> None:
    """Write ``path`` whole or not at all: first beside it, then renamed."""
    from safetensors.torch import save_file

    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first.")
    metadata = _metadata(config, extra)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(_first_names(model), beside, metadata=metadata)
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _first_names(model: nn.Module) -> dict[str, Tensor]:
    """Each tensor under its first name only: a shared one (tied weights) is stored once."""
    first: dict[tuple[Any, ...], str] = {}
    state = model.state_dict()
    for name, tensor in state.items():
        first.setdefault(_identity(name, tensor), name)
    return {name: state[name].detach().cpu().contiguous().clone() for name in first.values()}


def _identity(name: str, tensor: Tensor) -> tuple[Any, ...]:
    """Equal for two names of one tensor; an empty tensor has no address and is only itself."""
    if tensor.numel() == 0:
        return (name,)
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _metadata(config: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str]:
    for key, value in extra.items():
        if key == CONFIG or not isinstance(key, str) or not isinstance(value, str):
            raise ValueError(
                f"extra holds strings under names other than {CONFIG!r}; got {key!r}: "
                f"{type(value).__name__}. Turn other things into JSON first."
            )
    try:
        return {CONFIG: json.dumps(dict(config)), **extra}
    except TypeError as error:
        raise ValueError(
            "the model's config cannot be written as JSON, probably its attention_options: "
            f"{error}."
        ) from error


def read_config(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Config and the other strings of a file that ``save`` wrote."""
    metadata = _open(path, lambda file: file.metadata() or {})
    if CONFIG not in metadata:
        raise ValueError(
            f"{path} holds weights but no config: TinyTransformer.save did not write it."
        )
    text = metadata.pop(CONFIG)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the config inside {path} is not JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ValueError(f"the config inside {path} is not a JSON object; got {text[:40]!r}.")
    return config, metadata


def rebuild(make: Callable[..., Model], config: Mapping[str, Any], path: str | Path) -> Model:
    try:
        return make(**config)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the config inside {path} is not one that this version of attnlab builds: {error}."
        ) from error


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Fill ``model`` from ``path``; a file whose names or shapes differ changes nothing."""
    found = _open(path, _tensors)
    _check_fit(model, found, path)
    model.load_state_dict(found, strict=False)  # strict but for second names of a shared tensor


def _tensors(file: Any) -> dict[str, Tensor]:
    return {name: file.get_tensor(name) for name in list(file.keys())}


def _open(path: str | Path, read: Callable[[Any], Any]) -> Any:
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            return read(file)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is not a readable safetensors file, perhaps cut short ({error})."
        ) from error


def _check_fit(model: nn.Module, found: Mapping[str, Tensor], path: str | Path) -> None:
    state = model.state_dict()
    filled = {_identity(name, state[name]) for name in found if name in state}
    missing = [k for k, v in state.items() if k not in found and _identity(k, v) not in filled]
    surplus = [k for k in found if k not in state]
    unequal = [
        f"{k} {tuple(found[k].shape)} for {tuple(state[k].shape)}"
        for k in found
        if k in state and found[k].shape != state[k].shape
    ]
    faults = {"lacks": missing, "has no place for": surplus, "differs in shape at": unequal}
    said = [f"{fault} {_few(names)}" for fault, names in faults.items() if names]
    if said:
        raise ValueError(f"{path} does not fit the model: it {'; it '.join(said)}.")


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
