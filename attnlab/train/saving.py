"""Saving and resuming a run: what is stored, and what must be equal for a run to go on."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.train.checkpoint import (
    Checkpoint,
    learned_tensors,
    load_checkpoint,
    write_checkpoint,
)
from attnlab.train.errors import CheckpointError
from attnlab.train.folder import check_pointer, exists, pointer, sweep
from attnlab.train.generators import generator_states, set_generator_states
from attnlab.train.identity import (
    describe_config,
    describe_modules,
    describe_objective,
    differences,
)
from attnlab.train.learner import Learner
from attnlab.train.processes import Processes
from attnlab.train.settings import Settings
from attnlab.train.tensors import described


class Saves:
    """The checkpoints of one run in its folder; without folder there are none."""

    def __init__(
        self,
        folder: Path | None,
        model: nn.Module,
        task: dict[str, Any],
        objective: nn.Module,
        settings: Settings,
        processes: Processes,
    ) -> None:
        self.folder, self.settings, self.processes = folder, settings, processes
        self.step: int | None = None
        self.identity = {
            "task": task,
            "settings": settings.identity(processes.count) | describe_objective(objective),
            "config": describe_config(model),
            "modules": describe_modules(model),
        }
        if folder is not None:
            check_pointer(folder)
            self.pointer = pointer(folder)

    @property
    def kept(self) -> str:
        """A sentence about the checkpoints for error messages."""
        if self.step is None:
            return "No checkpoint was kept."
        return f"The checkpoint of step {self.step} in '{self.folder}' is intact."

    # --- going on ------------------------------------------------------------------------------

    def resume(
        self, learner: Learner, optimizer: torch.optim.Optimizer
    ) -> tuple[Checkpoint, bool] | None:
        """Restores the folder's checkpoint, if there is one and it belongs to this run, and says
        whether the random generators go on exactly. All is checked before the model is touched.
        """
        if self.folder is None or not exists(self.folder):
            return None
        self.pointer = pointer(self.folder)
        checkpoint = load_checkpoint(self.folder)
        self._check_belongs(checkpoint, learner.model)
        exact = self._restore_generators(checkpoint)
        checkpoint.restore(learner.model, optimizer, learner.objective)
        self.step = checkpoint.step
        if self.processes.is_first:  # remove files that a kill during saving has left
            with suppress(OSError, CheckpointError):  # the folder may be read-only
                sweep(self.folder)
        return checkpoint, exact

    def _check_belongs(self, checkpoint: Checkpoint, model: nn.Module) -> None:
        where, state = f"The checkpoint in '{self.folder}'", checkpoint.state
        if not isinstance(state.get("rows"), list) or not isinstance(state.get("tokens"), int):
            raise CheckpointError(
                f"{where} lacks the history of its run, so no run can go on from it; "
                "give another folder, or resume=False to begin anew "
                "(load_checkpoint(folder).restore(model) reads its weights)"
            )
        anew = "give another folder, or resume=False to begin anew in this one"
        weights = f"{anew} (load_checkpoint(folder).restore(model) reads the weights alone)"
        self._compare(state, "task", f"{where} belongs to another task", anew)
        repeat = f"repeat the call as it was to go on with it, {anew}"
        self._compare(state, "settings", f"{where} is of a run with other settings", repeat)
        self._compare(state, "config", f"{where} belongs to another model", weights)
        checkpoint.check_fits(model)
        self._compare(state, "modules", f"{where} belongs to another model", weights)
        if checkpoint.step > self.settings.steps:
            raise CheckpointError(
                f"{where} has already done {checkpoint.step} steps, more than steps="
                f"{self.settings.steps}; steps is the length of the whole run: ask for at least "
                f"{checkpoint.step}, give another folder, or resume=False to begin anew"
            )

    def _compare(self, state: dict[str, Any], what: str, trouble: str, advice: str) -> None:
        if found := differences(state.get(what), self.identity[what]):
            raise CheckpointError(f"{trouble}: {found}; {advice}")

    def _restore_generators(self, checkpoint: Checkpoint) -> bool:
        """Whether they could be, which takes as many processes and the same kind of device."""
        device, rank = self.processes.device, self.processes.rank
        stored, here = checkpoint.generators, generator_states(device)
        if stored.keys() != here.keys() or len(stored["cpu"]) != self.processes.count:
            return False
        for name, state in here.items():
            wanted = described(state.expand(self.processes.count, *state.shape))
            if described(stored[name]) != wanted:
                raise CheckpointError(
                    f"The checkpoint in '{self.folder}' holds a state of the '{name}' generator "
                    f"that is {described(stored[name])}, and this PyTorch's is {wanted}; go on "
                    "with the version that it was written with, or begin anew with resume=False"
                )
        try:
            set_generator_states({k: v[rank].clone() for k, v in stored.items()}, device)
        except RuntimeError as error:
            raise CheckpointError(
                f"The generator states in '{self.folder}' cannot be restored ({error}); give "
                "another folder, or resume=False to begin anew"
            ) from error
        return True

    # --- saving --------------------------------------------------------------------------------

    def save(
        self,
        learner: Learner,
        optimizer: torch.optim.Optimizer,
        step: int,
        tokens: int,
        rows: list[dict[str, Any]],
        carried: dict[str, Tensor],
    ) -> None:
        """Every process hands in its generators, and its shares; the first one writes."""
        if self.folder is None or self.step == step:
            return
        generators = self._gathered_generators()
        if not self.processes.is_first and self.settings.sharded:
            learned_tensors(learner.model, optimizer, learner.objective)
        if self.processes.is_first:
            write_checkpoint(
                self.folder,
                learner.model,
                optimizer,
                step=step,
                state=self.identity | self._progress(tokens, rows),
                generators=generators,
                carried=carried,
                objective=learner.objective,
                before=self._check_undisturbed,
            )
            self.pointer = pointer(self.folder)
        self.processes.wait()
        self.step = step

    def _progress(self, tokens: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
        schedule = {"steps": self.settings.steps, "warmup": self.settings.warmup_steps}
        processes = self.processes.count
        return {"schedule": schedule, "processes": processes, "tokens": tokens, "rows": rows}

    def _gathered_generators(self) -> dict[str, Tensor]:
        states = generator_states(self.processes.device)
        return {name: self.processes.gathered(state[None]) for name, state in states.items()}

    def _check_undisturbed(self) -> None:
        """Refuse a second run in the folder: each would remove the other's checkpoints."""
        assert self.folder is not None
        if pointer(self.folder) != self.pointer:
            raise CheckpointError(
                f"Somebody else has saved a checkpoint to '{self.folder}' since this run last did; "
                "two runs cannot share a folder: give each its own (the other's checkpoint was "
                "left as it is, and save_checkpoint(another_folder, model, step=...) keeps this "
                "model)"
            )
