"""One run: the steps, and what happens between them."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate import DistributedDataParallelKwargs
from torch import nn
from tqdm.auto import tqdm

from attnlab.core.modes import mode
from attnlab.train.diagnose import Fault
from attnlab.train.errors import TrainingError
from attnlab.train.evaluation import Evaluation, evaluation, summed_scores
from attnlab.train.generators import derived_seed, preserved_generators
from attnlab.train.history import Callback, History, State
from attnlab.train.learner import Learner
from attnlab.train.processes import Processes
from attnlab.train.saving import Saves
from attnlab.train.settings import Settings
from attnlab.train.sharding import Shares, noted_layers
from attnlab.train.states import stored
from attnlab.train.step import Broken, NotFiniteError, Stepper
from attnlab.train.task import Task
from attnlab.train.tensors import bare


class Run:
    """Everything one call of `fit` holds: model, optimizer, and how far they are."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: Settings,
        objective: Any,
        *,
        processes: Processes,
        saves: Saves,
        callbacks: Sequence[Callback],
        shares: Shares | None = None,
    ) -> None:
        self.model, self.task, self.settings = model, task, settings
        self.processes, self.saves, self.callbacks = processes, saves, callbacks
        self.device, self.history, self.done = processes.device, History(), 0
        self.objective, self.shares = objective, shares
        learner = Learner(model, objective) if shares is None else shares.learner
        self.stepper = Stepper(learner, task, settings, processes, shares)
        self._seed_generators()

    def _seed_generators(self) -> None:
        rank = self.processes.rank
        torch.manual_seed(derived_seed(self.settings.seed, "generators", self.done, rank))

    def resume(self) -> None:
        """Goes on from the folder's checkpoint, if there is one and it belongs to this call."""
        found = self.saves.resume(self.stepper.learner, self.stepper.optimizer)
        if found is None:
            return
        checkpoint, exact = found
        self.done = checkpoint.step
        self.history.rows = checkpoint.state["rows"]
        self.stepper.tokens = checkpoint.state["tokens"]
        self.stepper.carry_on(checkpoint.carried, f"The checkpoint in '{self.saves.folder}'")
        if not exact:
            self._seed_generators()

    def train(self, progress: bool) -> None:
        accelerator = self.processes.accelerator
        learner = self.stepper.learner
        if learner.trains_its_objective:  # which may leave out a part of the model, as its output
            accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=True)
        wrapped: nn.Module = learner
        if self.shares is None:
            wrapped = accelerator.prepare_model(learner, device_placement=False)
        try:
            with (
                self._bar(progress) as bar,
                learner.training_mode(),
                nullcontext() if self.shares is None else noted_layers(learner, self.processes),
            ):
                self._loop(wrapped, bar)
        finally:
            self.stepper.optimizer.zero_grad(set_to_none=True)

    def _loop(self, wrapped: nn.Module, bar: Any) -> None:
        while self.done < self.settings.steps:
            self.processes.at(f"step {self.done + 1}")
            with self._explained(self.done + 1):
                row = self.stepper.step(wrapped, self.done + 1)
            self.done = row["step"]
            self._between(row)
            bar.set_postfix_str(_postfix(row), refresh=False)
            bar.update()
            if self._stopped(row["loss"]):
                break
        self.save()

    def _bar(self, progress: bool) -> Any:
        # tqdm reads TQDM_DISABLE only once, when it is imported; a notebook may set it later.
        silent = os.environ.get("TQDM_DISABLE", "").lower() not in ("", "0", "false")
        return tqdm(
            total=self.settings.steps,
            initial=self.done,
            desc=self.task.name,
            unit="step",
            disable=silent or not progress or not self.processes.is_first,
        )

    # --- between steps -------------------------------------------------------------------------

    def _between(self, row: dict[str, Any]) -> None:
        s, step = self.settings, row["step"]
        if s.evaluate_every and (step % s.evaluate_every == 0 or step == s.steps):
            result = self.evaluate()
            row |= {"validation_loss": result.loss, "validation_accuracy": result.accuracy}
        self.history.rows.append(row)
        if s.save_every and step % s.save_every == 0:
            self.save()

    def save(self) -> None:
        """Never weights that are not finite."""
        self.processes.at(f"the checkpoint of step {self.done}")
        with self._explained(self.done):
            self.stepper.check_weights()
        carried = stored(self.stepper.carried)
        progress = (self.stepper.tokens, self.history.rows)
        self.saves.save(self.stepper.learner, self.stepper.optimizer, self.done, *progress, carried)

    def evaluate(self) -> Evaluation:
        """The same batches every time, whatever the seed; they are divided among the processes."""
        s, problem = self.settings, None
        self.processes.at(f"the evaluation of step {self.done}")
        indices = range(self.processes.rank, s.evaluate_batches, self.processes.count)
        try:
            with self._whole():
                sums = summed_scores(
                    self.model, self.task, indices, s.batch_size,
                    objective=self.objective, precision=s.precision, segment=s.segment,
                )  # fmt: skip
        except TrainingError as error:
            sums, problem = torch.full((3,), math.nan, dtype=torch.float64), Fault("", str(error))
        if self.processes.count > 1:
            sums = self.processes.summed(sums.to(self.device))
        if not sums.isfinite().all():
            broken = Broken("the validation loss is not finite", self.processes.agreed(problem))
            raise self._error(self.done, broken)
        return evaluation(sums)

    def _stopped(self, loss: float) -> bool:
        """Whether a callback, called in the first process, stops the run in all of them."""
        if not self.callbacks:
            return False
        self.processes.at(f"the callbacks of step {self.done}")
        with self._whole():
            stop = self.processes.is_first and self._call_back(loss)
        return bool(self.processes.summed(torch.tensor(float(stop), device=self.device)))

    def _whole(self) -> AbstractContextManager[object]:
        """Inside, every process has all parameters of the model."""
        return nullcontext() if self.shares is None else self.shares.filled()

    def _call_back(self, loss: float) -> bool:
        steps, model = self.settings.steps, bare(self.model)
        state = State(self.done, steps, loss, model, self.task, self.history, self.device)
        with preserved_generators(self.device), mode(self.model, training=True):
            answers = [callback(state) for callback in self.callbacks]
        return any(answer is False for answer in answers)

    # --- errors --------------------------------------------------------------------------------

    @contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        try:
            yield
        except NotFiniteError as error:
            raise self._error(step, error.broken) from None

    def _error(self, step: int, broken: Broken) -> TrainingError:
        what, fault = broken
        where = "every layer was finite, so look at the loss and its targets"
        if fault is not None:
            where = f"the first thing that is not finite is {fault.description}"
        return TrainingError(
            f"Training stopped at step {step} of {self.settings.steps}: {what}; {where}. "
            f"{self.saves.kept} A smaller learning_rate, a longer warmup or a smaller clip often "
            "helps.",
            step=step,
            layer=None if fault is None else fault.layer,
        )


def _postfix(row: dict[str, Any]) -> str:
    return f"loss {row['loss']:.4f}, {row['tokens_per_second']:,.0f} tokens/s"
