"""The identity of a run: its model, its task and its settings, as plain JSON.

A checkpoint stores the description of its run; a run goes on from it only if its own is equal.
Weights of equal shapes do not tell two models apart (the number of heads changes no shape), so a
model is described by its configuration, if it has one, and module by module: class,
`extra_repr`, and every argument of its constructor that it keeps under the same name.
"""

import enum
import inspect
import json
import math
import numbers
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.objectives.batches import Batch
from attnlab.objectives.next_token import NextToken
from attnlab.train.task import Task
from attnlab.train.tensors import bare, described

_LONG = 120
# These change how a model computes, or record its origin; they do not change what it computes.
_LEFT_OUT = {
    *("self", "config", "checkpoint", "gradient_checkpointing", "use_cache", "dtype"),
    *("torch_dtype", "transformers_version", "_name_or_path", "_attn_implementation"),
    *("_attn_implementation_autoset", "attn_implementation"),
}


def describe_config(model: nn.Module) -> dict[str, Any]:
    """The model's own `config`, a mapping or something with `to_dict`; {} if it has none."""
    config = getattr(bare(model), "config", None)
    if callable(to_dict := getattr(config, "to_dict", None)) and not isinstance(config, type):
        config = to_dict()
    if not isinstance(config, Mapping):
        return {}
    return {str(name): _plain(v) for name, v in config.items() if name not in _LEFT_OUT}


def describe_modules(model: nn.Module) -> dict[str, str]:
    """One line for each module, by its dotted name; nothing if a configuration describes it all."""
    lines = {f"module '{name}'": _line(module) for name, module in bare(model).named_modules()}
    root = lines.pop("module ''")
    return {"the model": type(bare(model)).__name__ if describe_config(model) else root} | lines


def describe_objective(objective: nn.Module) -> dict[str, str]:
    """One entry; none for the next token, which earlier checkpoints do not name."""
    return {} if type(objective) is NextToken else {"objective": repr(objective)}


def describe_task(task: Task, digest: str | None) -> dict[str, Any]:
    """Name, kind, sizes and options of a task, and the digest of one row that it gives; None if it
    gives another one for the same seed."""
    known: dict[str, Any] = {
        name: _plain(getattr(task, name, None))
        for name in ("name", "kind", "vocab", "features", "classes", "length", "vocabulary")
    }
    known["class"] = type(task).__name__
    known |= {name: _plain(value) for name, value in _options(task).items()}
    known["digest of a row"] = digest
    return known


def fingerprint(batch: Batch) -> str:
    """A digest of the whole numbers of a batch (decimals may differ in their last bits)."""
    state = sha256()
    structure = getattr(batch, "structure", None)
    parts = [] if structure is None else [getattr(structure, f.name) for f in fields(structure)]
    for tensor in (batch.inputs, batch.targets, batch.source, *parts):
        if isinstance(tensor, Tensor) and not tensor.is_floating_point():
            state.update(f"{described(tensor)} {tensor.tolist()}".encode())
    return state.hexdigest()[:16]


def differences(theirs: Any, ours: dict[str, Any], most: int = 3) -> str:
    """ "heads 2 there and 4 here, …"; an empty string if nothing differs."""
    theirs = theirs if isinstance(theirs, dict) else {}
    found = [
        f"{name} {theirs.get(name)!r} there and {ours.get(name)!r} here"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name) != ours.get(name)
    ]
    return ", ".join(found[:most]) + (f", and {len(found) - most} more" * (len(found) > most))


def _line(module: nn.Module) -> str:
    text = module.extra_repr()
    options = ", ".join(
        f"{name}={json.dumps(_plain(value))}"
        for name, value in _options(module).items()
        if f"{name}=" not in text
    )
    frozen = [n for n, p in module.named_parameters(recurse=False) if not p.requires_grad]
    parts = [text, options, f"frozen: {', '.join(frozen)}" if frozen else ""]
    return f"{type(module).__name__}({_without_addresses('; '.join(filter(None, parts)))})"


def _options(thing: object) -> dict[str, Any]:
    """The arguments of its constructor that an object keeps under the same names."""
    kept = getattr(thing, "__dict__", {})
    names = inspect.signature(type(thing).__init__).parameters
    return {
        name: kept[name]
        for name in names
        if name in kept and name not in _LEFT_OUT and not isinstance(kept[name], Tensor)
    }


def _plain(value: Any) -> Any:
    """`value` as JSON that is equal for equal options; long values are replaced by a digest."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, str):
        return _shortened(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_plain(part) for part in value]
        parts = sorted(parts, key=json.dumps) if isinstance(value, set | frozenset) else parts
        text = json.dumps(parts)
        return parts if len(text) <= _LONG else _shortened(text)
    if is_dataclass(value) and not isinstance(value, type):
        options = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **options}
    return _named(value)


def _named(value: Any) -> str:
    if isinstance(value, enum.Enum | PurePath | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Tensor):
        return _shortened(f"{described(value)} {value.tolist()}")
    if callable(getattr(value, "tolist", None)):  # an array of NumPy
        return _shortened(f"{value.dtype} {value.tolist()}")
    if isinstance(value, nn.Module):
        return type(value).__name__
    if hasattr(value, "__name__"):
        return str(value.__name__)
    own_words = type(value).__repr__ is not object.__repr__
    return _shortened(_without_addresses(repr(value))) if own_words else type(value).__name__


def _shortened(text: str) -> str:
    if len(text) <= _LONG:
        return text
    return f"{text[:20]}… ({len(text)} characters, {sha256(text.encode()).hexdigest()[:16]})"


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
