"""Checkpoints: a model, its optimizer and the state of a run, written and read as one unit.

Only safetensors and JSON are written and read, so loading a checkpoint can run no code. Where the
files lie, and how they survive a kill at any moment, stands in `attnlab.train.folder`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from attnlab.train.checks import as_folder, as_integer, check_model, check_optimizer, shown
from attnlab.train.errors import CheckpointError
from attnlab.train.folder import CARRIED, OBJECTIVE, PARTS, STATE, read, write
from attnlab.train.manifest import MANIFEST, unreadable
from attnlab.train.tensors import (
    check_agreement,
    descriptions,
    model_tensors,
    optimizer_state,
    optimizer_tensors,
    own_share,
    whole,
)


@dataclass(frozen=True)
class Checkpoint:
    """What `load_checkpoint` found: tensors by name, and the JSON state."""

    path: Path
    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    generators: dict[str, Tensor]
    state: dict[str, Any]
    carried: dict[str, Tensor] = field(default_factory=dict)
    """What the model carries from batch to batch, of a run that reads documents in segments."""
    objective: dict[str, Tensor] = field(default_factory=dict)
    """What the objective has learned beside the model, such as a head or a teacher."""

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        objective: nn.Module | None = None,
    ) -> None:
        """Copies weights (the optimizer's moments, the objective's tensors) in; checks all before
        changing any."""
        targets = self.check_fits(model)
        own = {} if objective is None else model_tensors(objective)
        if objective is not None:
            check_agreement(
                "objective", descriptions(own), descriptions(self.objective), self._where
            )
        if optimizer is not None:
            check_optimizer(optimizer)
            optimizer.load_state_dict(
                optimizer_state(self.optimizer, model, optimizer, self._where, objective)
            )
        with torch.no_grad():
            for name, target in targets.items():
                target.copy_(own_share(self.model[name], target))
            for name, target in own.items():
                target.copy_(own_share(self.objective[name], target))

    def check_fits(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors of `model` by name, if the checkpoint has each of them in its shape."""
        check_model(model)
        targets = model_tensors(model)
        check_agreement("model", descriptions(targets), descriptions(self.model), self._where)
        return targets

    @property
    def _where(self) -> str:
        return f"The checkpoint in '{self.path}' (step {self.step})"


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

    `state` must be JSON-able (NaN is not). Of several processes that save into one folder, each
    replaces the checkpoint of the other, whole. Raises `CheckpointError` if writing fails, for
    example on a full disk; the checkpoint before is then still the latest.
    """
    return write_checkpoint(folder, model, optimizer, step=step, state=state, generators=generators)


def write_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    step: int,
    state: Mapping[str, Any] | None = None,
    generators: Mapping[str, Tensor] | None = None,
    carried: Mapping[str, Tensor] | None = None,
    objective: nn.Module | None = None,
    before: Callable[[], None] | None = None,
) -> Path:
    """`save_checkpoint` of a run, with a last check (`before`) while the folder is locked."""
    place, step = as_folder(folder), as_integer("step", step, least=0)
    check_model(model)
    if optimizer is not None:
        check_optimizer(optimizer)
    tensors = {
        **learned_tensors(model, optimizer, objective),
        "generators": _checked_generators(generators),
        **({CARRIED: carried} if carried else {}),
    }
    try:
        return write(place, step, _files(tensors, _json(state)), before)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"The checkpoint of step {step} could not be written to '{folder}' ({error}); "
            "the checkpoint before it, if there was one, is intact"
        ) from error


def learned_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    objective: nn.Module | None = None,
) -> dict[str, dict[str, Tensor]]:
    """The whole tensors of a checkpoint's parts. Of a learner in shares every process gathers them,
    though the first one alone writes, in one order (a loaded optimizer has one of its own)."""
    own = {} if objective is None else model_tensors(objective)
    parts = {
        "model": model_tensors(model),
        "optimizer": optimizer_tensors(model, optimizer, objective),
        **({OBJECTIVE: own} if own else {}),
    }
    return {part: {n: whole(named[n]) for n in sorted(named)} for part, named in parts.items()}


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Reads the latest checkpoint of `folder`: `load_checkpoint("runs/a").restore(model)`.

    Every file is compared with its digest. Raises `CheckpointError` if there is none or it cannot
    be read; it is never removed or repaired.
    """
    place = as_folder(folder)
    found = read(place)
    if found is None:
        itself = f", but it is a checkpoint itself; give its folder, '{place.parent}'"
        here = itself if (place / MANIFEST).is_file() else ""
        raise CheckpointError(f"There is no checkpoint in '{folder}'{here}")
    try:
        state = json.loads(found.files[STATE])
        parts = {n: load(found.files[f"{n}.safetensors"]) for n in PARTS}
        rest = {
            part: load(file)
            for part in (CARRIED, OBJECTIVE)
            if (file := found.files.get(f"{part}.safetensors")) is not None
        }
    except (SafetensorError, ValueError, RecursionError) as error:
        raise unreadable(found.path, error) from error
    return Checkpoint(found.path, found.step, **parts, state=state, **rest)


def _files(tensors: Mapping[str, Mapping[str, Tensor]], state: str) -> Iterator[tuple[str, bytes]]:
    for part, named in tensors.items():
        # Copies: views of one larger tensor would otherwise count as shared memory.
        plain = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in named.items()}
        yield f"{part}.safetensors", save(plain)
    yield STATE, state.encode()


def _checked_generators(generators: Any) -> dict[str, Tensor]:
    named = {} if generators is None else generators
    if not isinstance(named, Mapping) or not all(isinstance(t, Tensor) for t in named.values()):
        raise ValueError(f"generators should be tensors by name; {shown(generators)} was given")
    return dict(named)


def _json(state: Any) -> str:
    """The state as JSON text, if reading the text gives it back (tuples as lists)."""
    state = {} if state is None else state
    try:
        text = json.dumps(state, allow_nan=False)
        if isinstance(state, Mapping) and _only_string_keys(state):
            return text
        reason = "its keys should be strings"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    raise ValueError(
        "state should be plain JSON (a dict of strings, finite numbers, lists and dicts); "
        f"{shown(state)} was given: {reason}"
    )


def _only_string_keys(value: Any) -> bool:
    if isinstance(value, Mapping):
        keys = all(isinstance(key, str) for key in value)
        return keys and all(map(_only_string_keys, value.values()))
    return not isinstance(value, list | tuple) or all(map(_only_string_keys, value))
