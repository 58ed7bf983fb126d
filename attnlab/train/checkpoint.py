"""Checkpoints that survive a kill at any moment.

    folder/
        latest                    one line: the name of the folder below that counts
        step-00000300/
            model.safetensors     parameters and buffers, a tied weight once, under its first name
            optimizer.safetensors `parameter/slot`, for example `blocks.0.mix.query.weight/exp_avg`
            generators.safetensors random generator states, one row per process
            state.json            step, schedule, task, history …: plain JSON

A checkpoint is written into a hidden folder beside its final place, forced to disk, renamed
(which is atomic), and only then named in `latest` (replaced, which is atomic too); the one
before is removed last. So `latest` names a complete checkpoint at every moment. Only safetensors
and JSON are read: loading a checkpoint can run no code.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

POINTER = "latest"
FORMAT = 1
_WRITING = ".writing-"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used here. Nothing was changed or removed."""


@dataclass(frozen=True)
class Checkpoint:
    """What `load_checkpoint` found: tensors by name, and the JSON state."""

    path: Path
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    generators: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Copies weights (and the optimizer's moments) in; checks all before changing any."""
        targets = model_tensors(model)
        self._check("model", _shapes(targets), _shapes(self.model))
        if optimizer is not None:
            slots = self._optimizer_state(model, optimizer)
            optimizer.load_state_dict(slots)
        with torch.no_grad():
            for name, target in targets.items():
                target.copy_(self.model[name])

    def _check(self, what: str, wanted: dict[str, str], found: dict[str, str]) -> None:
        complaints = [f"it lacks '{n}' {s}" for n, s in wanted.items() if n not in found]
        complaints += [
            f"it holds an unknown '{n}' {s}" for n, s in found.items() if n not in wanted
        ]
        complaints += [
            f"'{n}' is {found[n]} there and {s} here"
            for n, s in wanted.items()
            if n in found and found[n] != s
        ]
        if complaints:
            more = f", and {len(complaints) - 3} more" if len(complaints) > 3 else ""
            raise CheckpointError(
                f"The checkpoint in '{self.path}' (step {self.step}) does not fit this {what}: "
                f"{'; '.join(complaints[:3])}{more}. Build the model with the options it was "
                "trained with, or give another folder. Checkpoint and model are as they were."
            )

    def _optimizer_state(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        names = {parameter: name for name, parameter in bare(model).named_parameters()}
        order = [names[p] for group in optimizer.param_groups for p in group["params"]]
        shapes = {name: tuple(p.shape) for p, name in names.items()}
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self.optimizer.items():
            name, _, slot = key.rpartition("/")
            if name not in order or (slot != "step" and tuple(tensor.shape) != shapes[name]):
                self._check("optimizer", {}, {key: _shape(tensor)})
            state.setdefault(order.index(name), {})[slot] = tensor.clone()
        return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; of several names for one and the same tensor, the first only.

    safetensors refuses tensors that share memory; a tied weight is therefore stored once, and fills
    both places again when it is copied into the one tensor that they share.
    """
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[object, ...]] = set()
    for name, tensor in bare(model).state_dict().items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"The model keeps '{name}', a {type(tensor).__name__}, in its state; a checkpoint "
                "holds tensors only. Register it as a buffer instead of get_extra_state."
            )
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if place not in seen:
            tensors[name] = tensor
        seen.add(place)
    return tensors


def bare(model: nn.Module) -> nn.Module:
    """The module inside a `torch.compile` wrapper: its names are the same compiled or not."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def save_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    step: int,
    state: Mapping[str, Any] | None = None,
    generators: Mapping[str, Tensor] | None = None,
) -> Path:
    """Writes one checkpoint into `folder`, makes it the latest, and removes the one before.

    `state` must be JSON-able (NaN is not). Raises `CheckpointError` if writing fails, for
    example on a full disk; the checkpoint before is then still the latest.
    """
    folder = Path(folder)
    text = json.dumps({**(state or {}), "format": FORMAT, "step": step}, allow_nan=False)
    tensors = {
        "model": model_tensors(model),
        "optimizer": _optimizer_tensors(model, optimizer),
        "generators": dict(generators or {}),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        final = _write(folder, step, tensors, text)
        _point(folder, final)
        sweep(folder, keep=final)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written to '{folder}' ({error}). "
            "The checkpoint before it, if there was one, is intact."
        ) from error
    return final


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Reads the latest checkpoint of `folder`: `load_checkpoint("runs/a").restore(model)`.

    Raises `CheckpointError` if there is none or it cannot be read; it is never removed or repaired.
    """
    path = latest(folder)
    if path is None:
        raise CheckpointError(f"There is no checkpoint in '{folder}'.")
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        model, optimizer, generators = (
            load_file(path / f"{part}.safetensors") for part in ("model", "optimizer", "generators")
        )
        if state["format"] != FORMAT or not isinstance(state["step"], int):
            raise ValueError(f"its format is {state['format']!r}, this attnlab reads {FORMAT}")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(_unreadable(path, error)) from error
    return Checkpoint(path, model, optimizer, generators, state)


def latest(folder: str | Path) -> Path | None:
    """Where the checkpoint of `folder` lies, or None. Without pointer, the furthest one."""
    folder = Path(folder)
    pointer = folder / POINTER
    try:
        name = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(_unreadable(pointer, error)) from error
    if name is None:
        return max(_complete(folder), default=None)
    if not name or Path(name).name != name or not (folder / name).is_dir():
        raise CheckpointError(_unreadable(pointer, f"it names '{name}', which is not there"))
    return folder / name


def _unreadable(path: Path, reason: object) -> str:
    return (
        f"The checkpoint at '{path}' cannot be read: {reason}. It was left as it is. Give another "
        "folder, or begin anew with resume=False, which replaces it at the first save."
    )


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: _shape(tensor) for name, tensor in tensors.items()}


def _optimizer_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> dict[str, Tensor]:
    if optimizer is None:
        return {}
    names: dict[Tensor, str] = {p: name for name, p in bare(model).named_parameters()}
    return {
        f"{names[parameter]}/{slot}": value
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    }


def _write(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: str
) -> Path:
    final = _free_name(folder, step)
    draft = folder / f"{_WRITING}{final.name}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for part, named in tensors.items():
        # Copies: views of one larger tensor would otherwise count as shared memory.
        plain = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in named.items()}
        save_file(plain, draft / f"{part}.safetensors")
    (draft / "state.json").write_text(state, encoding="utf-8")
    _to_disk([*draft.iterdir(), draft])
    os.rename(draft, final)
    _to_disk([folder])
    return final


def _free_name(folder: Path, step: int) -> Path:
    """`step-00000300`, or `step-00000300.1` where a new run passes the step of an old one."""
    name = f"step-{step:08d}"
    taken = {path.name for path in folder.iterdir()}
    again = 1
    while name in taken:
        name, again = f"step-{step:08d}.{again}", again + 1
    return folder / name


def _point(folder: Path, final: Path) -> None:
    draft = folder / f"{_WRITING}{POINTER}"
    draft.write_text(final.name + "\n", encoding="utf-8")
    _to_disk([draft])
    os.replace(draft, folder / POINTER)
    _to_disk([folder])


def sweep(folder: Path, keep: Path) -> None:
    """Removes all checkpoints but one, and the drafts of runs that were killed."""
    for path in folder.iterdir():
        if path.name.startswith(_WRITING) or (path in _complete(folder) and path != keep):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def _complete(folder: Path) -> list[Path]:
    return [path for path in folder.glob("step-*") if path.is_dir()]


def _to_disk(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
