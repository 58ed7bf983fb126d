"""One run: the step, and what happens between steps."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm.auto import tqdm

from attnlab.core.modes import mode
from attnlab.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    bare,
    latest,
    load_checkpoint,
    save_checkpoint,
    sweep,
)
from attnlab.train.diagnose import Fault, TrainingError, first_fault
from attnlab.train.generators import (
    derived_seed,
    generator_states,
    preserved_generators,
    set_generator_states,
)
from attnlab.train.objective import (
    Batch,
    Evaluation,
    Task,
    autocast,
    evaluation,
    logits_of,
    scored,
    summed_loss,
    summed_scores,
    tokens_in,
)
from attnlab.train.optimizer import adamw, learning_rate
from attnlab.train.settings import Settings

_FAULT_BYTES = 1024


@dataclass
class History:
    """One plain dict per step: step, loss, learning_rate, gradient_norm (before clipping),
    tokens (read so far), tokens_per_second (real tokens of all processes over the wall clock of
    this step, fetching the batch included), and validation_loss and validation_accuracy where it
    was evaluated."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """The values of one column, for the rows that have it."""
        return [row[name] for row in self.rows if name in row]


@dataclass(frozen=True)
class State:
    """What a callback is shown after each step."""

    step: int
    steps: int
    loss: float
    model: nn.Module
    task: Task
    history: History
    device: torch.device


Callback = Callable[[State], object]


class Run:
    """Everything one call of `fit` holds: model, optimizer, and how far they are."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: Settings,
        *,
        accelerator: Accelerator,
        device: torch.device,
        folder: Path | None,
        callbacks: Sequence[Callback],
    ) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.accelerator, self.device, self.folder = accelerator, device, folder
        self.callbacks = callbacks
        self.history = History()
        self.processes, self.rank = accelerator.num_processes, accelerator.process_index
        self.optimizer = adamw(
            model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.done = self.tokens = 0
        self.saved: int | None = None
        torch.manual_seed(derived_seed(settings.seed, "generators", 0, self.rank))

    # --- between calls -------------------------------------------------------------------------

    def resume(self) -> None:
        """Goes on from the folder's checkpoint, if there is one and it belongs to this call."""
        if self.folder is None or latest(self.folder) is None:
            return
        checkpoint = load_checkpoint(self.folder)
        self._check_belongs(checkpoint)
        checkpoint.restore(self.model, self.optimizer)
        self.done = self.saved = checkpoint.step
        self.history.rows = checkpoint.state["rows"]
        self.tokens = checkpoint.state["tokens"]
        self._restore_generators(checkpoint)
        if self.accelerator.is_main_process:  # a kill between two acts of saving leaves more
            with suppress(OSError):  # the folder may be one that can only be read
                sweep(self.folder, keep=checkpoint.path)

    def _check_belongs(self, checkpoint: Checkpoint) -> None:
        where, state = f"The checkpoint in '{self.folder}'", checkpoint.state
        if not isinstance(state.get("rows"), list) or not isinstance(state.get("tokens"), int):
            raise CheckpointError(
                f"{where} lacks the history of its run, so no run can go on from it; "
                "load_checkpoint(folder).restore(model) reads its weights. Give another folder, or "
                "resume=False to begin anew."
            )
        if (theirs := state.get("task")) != (ours := description(self.task)):
            differences = _differences(theirs or {}, ours)
            raise CheckpointError(
                f"{where} belongs to another task: {differences}. Give another folder, or "
                "resume=False to begin anew in this one."
            )
        if (theirs := state.get("settings")) != (ours := self.settings.identity(self.processes)):
            raise CheckpointError(
                f"{where} is of a run with other settings: {_differences(theirs or {}, ours)}. "
                "Repeat the call as it was to go on with it; give another folder, or resume=False "
                "to begin anew; or load_checkpoint(folder).restore(model) for its weights."
            )
        if checkpoint.step > self.settings.steps:
            raise CheckpointError(
                f"{where} has already done {checkpoint.step} steps, more than steps="
                f"{self.settings.steps}. steps is the length of the whole run: ask for at least "
                f"{checkpoint.step}, give another folder, or resume=False to begin anew."
            )

    def _restore_generators(self, checkpoint: Checkpoint) -> None:
        """Exactly, for equal processes and kind of device; else from the seed and the step."""
        stored, here = checkpoint.generators, generator_states(self.device)
        if stored.keys() == here.keys() and len(stored["cpu"]) == self.processes:
            set_generator_states({k: v[self.rank].clone() for k, v in stored.items()}, self.device)
        else:
            torch.manual_seed(derived_seed(self.settings.seed, "generators", self.done, self.rank))

    def save(self) -> None:
        """Every process hands in its generators, the first one writes. Never broken weights."""
        self.check_weights()
        if self.folder is None or self.saved == self.done:
            return
        generators = {
            name: self._gathered(state[None])
            for name, state in generator_states(self.device).items()
        }
        if self.accelerator.is_main_process:
            save_checkpoint(
                self.folder,
                self.model,
                self.optimizer,
                step=self.done,
                state=self._json_state(),
                generators=generators,
            )
        self.accelerator.wait_for_everyone()
        self.saved = self.done

    def _json_state(self) -> dict[str, Any]:
        return {
            "task": description(self.task),
            "settings": self.settings.identity(self.processes),
            "schedule": {"steps": self.settings.steps, "warmup": self.settings.warmup_steps},
            "processes": self.processes,
            "tokens": self.tokens,
            "rows": self.history.rows,
        }

    def check_weights(self) -> None:
        """Raises if the last update left a weight that is not finite (its loss still was)."""
        for name, parameter in bare(self.model).named_parameters():
            if not parameter.isfinite().all():
                layer = name.rpartition(".")[0]
                fault = Fault(layer, f"'{name}' itself, after the update")
                raise self._error(self.done, "a weight is no longer finite", fault)

    # --- the loop ------------------------------------------------------------------------------

    def train(self, progress: bool) -> None:
        wrapped = self.accelerator.prepare_model(self.model, device_placement=False)
        try:
            with self._bar(progress) as bar, mode(self.model, training=True):
                while self.done < self.settings.steps:
                    row = self.step(wrapped, self.done + 1)
                    self._between(row)
                    bar.set_postfix_str(_postfix(row), refresh=False)
                    bar.update()
                    if self._stopped(row["loss"]):
                        break
                self.save()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            for module in (self.model, bare(self.model)):
                module.__dict__.pop("_is_accelerate_prepared", None)

    def _bar(self, progress: bool) -> Any:
        # tqdm reads TQDM_DISABLE only once, when it is imported; a notebook may set it later.
        silent = os.environ.get("TQDM_DISABLE", "").lower() not in ("", "0", "false")
        return tqdm(
            total=self.settings.steps,
            initial=self.done,
            desc=self.task.name,
            unit="step",
            disable=silent or not progress or not self.accelerator.is_main_process,
        )

    def step(self, wrapped: nn.Module, step: int) -> dict[str, Any]:
        """Forward, backward and update on one whole batch; returns the row of the history."""
        started = time.perf_counter()
        whole = self._whole_batch(step)
        targets = scored(whole.targets)
        if not targets:
            raise TrainingError(
                f"Step {step}: task '{self.task.name}' gave a batch without one scored target "
                "(all are -100).",
                step=step,
            )
        parts = self._parts(whole)
        before = generator_states(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        summed = self._backward(wrapped, parts, targets)
        loss, norm = self._loss_and_norm(summed / targets, parts, before, step)
        rate = self._update(norm, step)
        self.done, self.tokens = step, self.tokens + tokens_in(whole)
        return {
            "step": step,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": float(norm),
            "tokens": self.tokens,
            "tokens_per_second": tokens_in(whole) / (time.perf_counter() - started),
        }

    def _whole_batch(self, step: int) -> Batch:
        """Every process makes the batch of all; it knows without asking how many targets count."""
        size = self.settings.batch_size * self.processes
        batch: Batch = self.task.batch(
            "train", size, seed=derived_seed(self.settings.seed, "train", step)
        )
        return batch

    def _parts(self, whole: Batch) -> list[Batch]:
        size = self.settings.batch_size // self.settings.accumulate
        first = self.rank * self.settings.batch_size
        starts = range(first, first + self.settings.batch_size, size)
        return [whole[start : start + size].to(self.device) for start in starts]

    def _backward(self, model: nn.Module, parts: list[Batch], targets: int) -> Tensor:
        """Gradients of the whole batch's mean loss; returns this process's sum of losses.

        Processes are averaged by DistributedDataParallel, so each part is multiplied by their
        number. Plain `backward`: Accelerate's own divides by a setting the launcher may carry.
        """
        summed = torch.zeros((), device=self.device)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last else self.accelerator.no_sync(model):
                with autocast(self.settings.precision, self.device):
                    logits = logits_of(model, part)
                loss = summed_loss(logits, part.targets)
                (loss * (self.processes / targets)).backward()
            summed += loss.detach()
        return summed

    def _loss_and_norm(
        self, share: Tensor, parts: list[Batch], before: dict[str, Tensor], step: int
    ) -> tuple[float, Tensor]:
        """Both across processes, with one wait for the device. Not finite: the run ends here."""
        loss = self._summed(share)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).to(self.device)
        value, length = torch.stack([loss, norm.to(loss.dtype)]).tolist()
        if not (math.isfinite(value) and math.isfinite(length)):
            what = (
                f"the loss is finite ({value:.4g}) but its gradient is {length}"
                if math.isfinite(value)
                else f"the loss is {value}"
            )
            raise self._error(step, what, self._find_fault(parts, before))
        return value, norm

    def _update(self, norm: Tensor, step: int) -> float:
        s = self.settings
        rate = learning_rate(step, s.steps, s.learning_rate, s.warmup_steps)
        if s.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, s.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return rate

    # --- between steps -------------------------------------------------------------------------

    def _between(self, row: dict[str, Any]) -> None:
        s, step = self.settings, row["step"]
        if s.evaluate_every and (step % s.evaluate_every == 0 or step == s.steps):
            result = self.evaluate()
            row |= {"validation_loss": result.loss, "validation_accuracy": result.accuracy}
        self.history.rows.append(row)
        if s.save_every and step % s.save_every == 0:
            self.save()

    def evaluate(self) -> Evaluation:
        """The same questions every time, whatever the seed of the run; processes share them out."""
        indices = range(self.rank, self.settings.evaluate_batches, self.processes)
        problem: Fault | None = None
        try:
            sums = summed_scores(
                self.model,
                self.task,
                indices,
                self.settings.batch_size,
                precision=self.settings.precision,
            )
        except TrainingError as error:
            sums, problem = torch.full((3,), math.nan, dtype=torch.float64), Fault("", str(error))
        if self.processes > 1:
            sums = self._summed(sums.to(self.device))
        if not sums.isfinite().all():
            raise self._error(self.done, "the validation loss is not finite", self._agreed(problem))
        return evaluation(sums)

    def _stopped(self, loss: float) -> bool:
        """Callbacks live in the first process; what they say, all do. They disturb no dropout."""
        if not self.callbacks:
            return False
        stop = False
        if self.accelerator.is_main_process:
            state = State(
                self.done,
                self.settings.steps,
                loss,
                bare(self.model),
                self.task,
                self.history,
                self.device,
            )
            with preserved_generators(self.device), mode(self.model, training=True):
                answers = [callback(state) for callback in self.callbacks]
            stop = any(answer is False for answer in answers)
        return bool(self._summed(torch.tensor(float(stop), device=self.device)))

    # --- faults --------------------------------------------------------------------------------

    def _find_fault(self, parts: list[Batch], before: dict[str, Tensor]) -> Fault | None:
        """The step once more, from the same random state, with every layer watched."""
        model = bare(self.model)

        def again() -> None:
            self.optimizer.zero_grad(set_to_none=True)
            for part in parts:
                with autocast(self.settings.precision, self.device):
                    logits = logits_of(model, part)
                summed_loss(logits, part.targets).backward()

        with preserved_generators(self.device):
            set_generator_states(before, self.device)
            return self._agreed(first_fault(model, again))

    def _agreed(self, fault: Fault | None) -> Fault | None:
        """The fault of the first process that has one, told to all as bytes."""
        text = b"" if fault is None else "\n".join(fault).encode()[:_FAULT_BYTES]
        letters = torch.zeros(1, _FAULT_BYTES, dtype=torch.uint8)
        letters[0, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        for row in self._gathered(letters).tolist():
            layer, found, words = bytes(row).rstrip(b"\0").decode(errors="ignore").partition("\n")
            if found:
                return Fault(layer, words)
        return None

    def _error(self, step: int, what: str, fault: Fault | None) -> TrainingError:
        where = "every layer was finite, so look at the loss and its targets"
        if fault is not None:
            where = f"the first thing that is not finite is {fault.words}"
        kept = "No checkpoint was kept."
        if self.saved is not None:
            kept = f"The checkpoint of step {self.saved} in '{self.folder}' is intact."
        return TrainingError(
            f"Training stopped at step {step} of {self.settings.steps}: {what}; {where}. {kept} A "
            "smaller learning_rate, a longer warmup or a smaller clip often helps.",
            step=step,
            layer=None if fault is None else fault.layer,
        )

    # --- across processes ----------------------------------------------------------------------

    def _summed(self, value: Tensor) -> Tensor:
        total: Tensor = self.accelerator.reduce(value, "sum")
        return total

    def _gathered(self, rows: Tensor) -> Tensor:
        if self.processes == 1:
            return rows
        gathered: Tensor = self.accelerator.gather(rows.to(self.device))
        return gathered.cpu()


def description(task: Task) -> dict[str, Any]:
    """What tells one task from another; a vocabulary by its digest."""
    known = {
        name: getattr(task, name, None)
        for name in ("name", "kind", "vocab", "features", "classes", "length")
    }
    vocabulary = getattr(task, "vocabulary", None)
    if isinstance(vocabulary, str):
        known["vocabulary"] = sha256(vocabulary.encode()).hexdigest()[:16]
    return known


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {theirs.get(name)!r} there and {ours.get(name)!r} here"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name) != ours.get(name)
    )


def _postfix(row: dict[str, Any]) -> str:
    return f"loss {row['loss']:.4f}, {row['tokens_per_second']:,.0f} tokens/s"
