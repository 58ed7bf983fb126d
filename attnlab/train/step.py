"""One step of training: forward, backward and update on one whole batch."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from attnlab.core.charges import charged
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.train.diagnose import Fault, first_fault
from attnlab.train.documents import Segment, documents_of
from attnlab.train.errors import TrainingError
from attnlab.train.generators import (
    derived_seed,
    generator_states,
    preserved_generators,
    set_generator_states,
)
from attnlab.train.learner import Learner
from attnlab.train.optimizer import adamw, learning_rate
from attnlab.train.precision import autocast
from attnlab.train.processes import Processes
from attnlab.train.segments import check_longest, next_logits, segment_losses
from attnlab.train.settings import Settings
from attnlab.train.sharding import Shares
from attnlab.train.states import restored
from attnlab.train.task import Drawn, Task, check_classes, check_length, draw, tokens_in
from attnlab.train.tensors import bare, whole


class Broken(NamedTuple):
    """What is not finite in a step, in words, and the layer it comes from, if known."""

    what: str
    fault: Fault | None


class NotFiniteError(Exception):
    """A loss, a gradient or a weight is not finite; `broken` says which."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(broken.what)
        self.broken = broken


class Stepper:
    """A model and its optimizer, moved by one batch at a time."""

    def __init__(
        self, learner: Learner, task: Task, settings: Settings, processes: Processes,
        shares: Shares | None = None,
    ) -> None:  # fmt: skip
        self.task, self.settings, self.processes = task, settings, processes
        self.learner, self.shares = learner, shares
        self.model, self.objective = learner.model, cast(Any, learner.objective)
        self.device = processes.device
        s = settings
        self.documents = documents_of(task, "train", s.batch_size, s.segment, s.seed)
        if self.documents is not None:
            check_longest(bare(self.model), self.documents)
        self.carried: Any = None  # what the model has left after the last step, of documents
        self._left: Any = None  # what it leaves in the present one
        self.optimizer = adamw(
            self.learner, learning_rate=s.learning_rate, weight_decay=s.weight_decay
        )
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.tokens = 0

    def step(self, wrapped: nn.Module, step: int, at: int | None = None) -> dict[str, Any]:
        """The row of the history. `wrapped` is the learner as its gradients are averaged, `at` the
        step of the schedule if it is not the one that is taken."""
        started = time.perf_counter()
        full_batch = self._whole_batch(step)
        parts = self._parts(full_batch.batch)
        before = generator_states(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        if self.shares is not None:
            self.shares.share_buffers()
        share = self._backward(wrapped, parts, full_batch)
        if self.shares is not None:
            self.shares.check_called()
        loss, norm = self._loss_and_norm(share, parts, full_batch, before)
        rate = self._update(norm, step if at is None else at)
        self.carried = self._left
        tokens = full_batch.scored if self.documents else tokens_in(full_batch.batch)
        self.tokens += tokens
        return {
            "step": step,
            "loss": loss,
            "learning_rate": rate,
            "gradient_norm": float(norm),
            "tokens": self.tokens,
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def check_weights(self) -> None:
        """Raises if the last update left a weight that is not finite (its loss still was)."""
        for name, parameter in self.learner.named():
            if not whole(parameter.detach().isfinite().all()):
                fault = Fault(name.rpartition(".")[0], f"'{name}' itself, after the update")
                raise NotFiniteError(Broken("a weight is no longer finite", fault))

    def carry_on(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Takes over what the model carried when a checkpoint was written."""
        if self.documents is None or not tensors:
            return
        first = self.documents.draw(0).batch.to(self.device)
        model: Any = bare(self.model)
        with preserved_generators(self.device), torch.no_grad():
            _, like = model.advance(first.inputs[:, :1], None)
        self.carried = restored(like, tensors, where)

    # --- the batch -----------------------------------------------------------------------------

    def _whole_batch(self, step: int) -> Drawn:
        """Each process draws the batch of all, so counting its targets needs no communication."""
        if self.documents is not None:
            return self.documents.draw(step - 1)
        size = self.settings.batch_size * self.processes.count
        seed = derived_seed(self.settings.seed, "train", step)
        drawn = draw(self.task, "train", size, seed, self.objective)
        if not drawn.scored:
            raise TrainingError(
                f"Step {step}: task '{self.task.name}' gave a batch without one scored target "
                f"(all are {UNSCORED})",
                step=step,
            )
        return drawn

    def _parts(self, full_batch: Batch) -> list[Batch]:
        """This process's share of the batch, in `accumulate` equal parts."""
        size = self.settings.batch_size // self.settings.accumulate
        first = self.processes.rank * self.settings.batch_size
        starts = range(first, first + self.settings.batch_size, size)
        parts = [full_batch[start : start + size] for start in starts]
        for part in parts:
            check_length(self.task, part, size)
        return parts

    # --- forward and backward ------------------------------------------------------------------

    def _backward(self, learner: nn.Module, parts: list[Batch], full_batch: Drawn) -> Tensor:
        """Gradients of the whole batch's mean loss. Returns (this process's share of the loss, how
        many scored targets it saw).

        Processes are averaged by DistributedDataParallel, so each part is multiplied by their
        number. Plain `backward`: Accelerate's own divides by a setting the launcher may carry.
        """
        sums = torch.zeros(2, device=self.device)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last else self.processes.accelerator.no_sync(learner):
                loss = torch.zeros((), device=self.device)
                for piece, charges in self._losses(learner, part, full_batch.largest):
                    if self.shares is not None:
                        self.processes.call_backward()
                    weight = self.processes.count / full_batch.scored
                    (weight * (piece if charges is None else piece + charges)).backward()
                    loss = loss + piece.detach()
            seen = (part.targets != UNSCORED).sum()
            sums += torch.stack([loss / full_batch.scored, seen.to(loss)])
        return sums

    def _losses(
        self, learner: nn.Module, part: Batch, largest: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The summed loss, or that of each segment, and what the layers charged, for as many
        targets; the caller takes the gradient of one before the next is computed."""
        pieces = self._pieces(learner, part.to(self.device), largest)
        with autocast(self.settings.precision, self.device):
            while True:
                with charged() as charges:  # closed while layers run again for the gradient
                    piece = next(pieces, None)
                if piece is None:
                    return
                loss, targets = piece
                total = charges.total()
                yield loss, None if total is None else total * (targets != UNSCORED).sum()

    def _pieces(
        self, learner: nn.Module, part: Batch, largest: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Each summed loss with its targets."""
        segment, model = self.settings.segment, bare(self.model)
        if segment is None:
            answers = learner(part)
            check_classes(answers, largest)
            yield self.objective.loss(answers, part), part.targets
        elif self.documents is None:
            targets = part.targets.split(segment, dim=1)
            yield from zip(segment_losses(model, part, segment), targets, strict=True)
        else:
            logits, self._left = next_logits(model, cast(Segment, part), self.carried)
            yield self.objective.loss(logits, part), part.targets

    def _loss_and_norm(
        self, share: Tensor, parts: list[Batch], full_batch: Drawn, before: dict[str, Tensor]
    ) -> tuple[float, Tensor]:
        """Loss and gradient norm over all processes; raises NotFiniteError if one is not finite."""
        sums = self.processes.summed(share)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(gradients)).to(self.device)
        loss, seen, length = torch.cat([sums, norm.to(sums.dtype)[None]]).tolist()
        self._check_seen(seen, full_batch.scored)
        if not (math.isfinite(loss) and math.isfinite(length)):
            what = (
                f"the loss is finite ({loss:.4g}) but its gradient is {length}"
                if math.isfinite(loss)
                else f"the loss is {loss}"
            )
            raise NotFiniteError(Broken(what, self._find_fault(parts, full_batch, before)))
        return loss, norm

    def _check_seen(self, seen: float, scored: int) -> None:
        """The parts must add up to the batch whose targets the loss was divided by."""
        if abs(seen - scored) > 0.5 + 1e-6 * scored:  # float32 counts to 16 million exactly
            raise ValueError(
                f"Task '{self.task.name}' gave a batch with {scored} scored targets, but its parts "
                f"have {seen:.0f} in all; batch[a:b] should give the rows from a to b, and every "
                "process should draw the same batch for the same seed"
            )

    def _update(self, norm: Tensor, step: int) -> float:
        s = self.settings
        rate = learning_rate(step, s.steps, s.learning_rate, s.warmup_steps, s.schedule)
        if s.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, s.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self._follow(step)
        return rate

    def _follow(self, step: int) -> None:
        """What the objective does after an update, with the whole parameters."""
        kind, steps = type(self.objective), self.settings.steps
        if getattr(kind, "after_step", CrossEntropy.after_step) is CrossEntropy.after_step:
            return
        with torch.no_grad():
            if self.shares is None:
                self.objective.after_step(bare(self.model), step, steps)
            else:
                with self.shares.filled() as given:
                    given.objective.after_step(given.model, step, steps)  # type: ignore[operator]
                    self.shares.take()

    def _find_fault(
        self, parts: list[Batch], full_batch: Drawn, before: dict[str, Tensor]
    ) -> Fault | None:
        """The step once more, from the same random state, with every layer watched."""

        def again() -> None:
            self.optimizer.zero_grad(set_to_none=True)
            for part in parts:
                for loss, charges in self._losses(self.learner, part, full_batch.largest):
                    (loss if charges is None else loss + charges).backward()

        with preserved_generators(self.device):
            set_generator_states(before, self.device)
            return self.processes.agreed(first_fault(bare(self.model), again))
