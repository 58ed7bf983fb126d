"""The training loop: `fit(model, task, steps)` on any device, in one process or several.

What it promises, each held by a test in `tests/train/`:

- **The loss is that of the whole batch.** Sums of cross-entropy over the scored targets, divided
  by their number in the whole batch of all processes: accumulating or sharding changes rounding,
  nothing else.
- **A run is a function of its arguments.** Batches, dropout and schedule follow from `seed` and
  the step; the caller's own random generators are left as they were.
- **Nothing is lost.** Checkpoints are atomic (`attnlab.train.checkpoint`); a run that was killed
  and called again goes on where it stopped, bit for bit as if it had never been killed.
- **A number that is not finite stops the run** with its step and layer, before it reaches the
  weights.

On several processes the same script runs under `accelerate launch`; each process takes its share
of the batch, and gradients are averaged by PyTorch's DistributedDataParallel. Several CPU
processes, with device="cpu": `accelerate launch --multi_gpu --num_processes 2 script.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlab.core.modes import mode
from attnlab.train.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from attnlab.train.devices import chosen_device, make_accelerator
from attnlab.train.diagnose import TrainingError
from attnlab.train.generators import derived_seed, preserved_generators
from attnlab.train.objective import (
    Batch,
    Evaluation,
    Task,
    autocast,
    check_precision,
    evaluate,
    logits_of,
)
from attnlab.train.run import Callback, History, Run, State
from attnlab.train.settings import Settings

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Evaluation",
    "History",
    "State",
    "TrainingError",
    "evaluate",
    "fit",
    "load_checkpoint",
    "save_checkpoint",
]


def fit(
    model: nn.Module,
    task: Task,
    steps: int,
    *,
    batch_size: int = 32,
    learning_rate: float = 3e-3,
    warmup: int | None = None,
    weight_decay: float = 0.01,
    clip: float | None = 1.0,
    accumulate: int = 1,
    precision: str = "fp32",
    gradient_checkpointing: bool = False,
    device: str | torch.device | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    save_every: int | None = None,
    resume: bool = True,
    evaluate_every: int | None = None,
    evaluate_batches: int = 8,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> History:
    """Trains `model` on `task` in place and returns the history, one plain dict per step.

    The model ends on the device it was trained on, every submodule in the mode (train or eval)
    it was found in, without gradients; the caller's random generators are as before. Equal
    arguments give equal bits on the CPU, and on a GPU as far as its kernels are deterministic.

    steps: length of the whole run, the steps of a resumed checkpoint included.
    batch_size: rows per process and step; `accumulate` equal parts of it go through one by one.
    learning_rate: the peak. The rate climbs to it over `warmup` steps (None: a tenth of the run, at
        most 100) and falls along half a cosine towards 0 at the end.
    clip: largest gradient norm; None leaves gradients as they are.
    precision: "fp32", or "bf16" for autocast to bfloat16 (weights and loss stay in float32).
    gradient_checkpointing: turns on the model's own switch (`model.checkpoint`, or Hugging Face's
        `gradient_checkpointing_enable`) for the run.
    folder: where checkpoints live, written every `save_every` steps, at the end, and when a
        callback stops the run. With `resume`, a run found there goes on; a finished one is
        loaded and returned at once. Only `steps` may grow (the schedule then stretches), and
        device, precision, processes and `accumulate` may change (same batch in all), at the
        price of bit-identity. With resume=False the run begins anew; an old checkpoint is
        replaced at the first save, not before.
    evaluate_every: adds validation_loss and validation_accuracy to every such row and to the
        last, over `evaluate_batches` fixed batches.
    callbacks: called after every step with a `State`, in the first process; False stops the run.

    Raises ValueError for arguments that make no sense together or a task that does not suit the
    model, CheckpointError for a checkpoint that cannot be used (it is never harmed),
    TrainingError when the loss or a gradient is not finite, naming step and layer, before
    weights or checkpoint are touched.
    """
    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        clip=clip,
        accumulate=accumulate,
        precision=precision,
        seed=seed,
        save_every=save_every,
        evaluate_every=evaluate_every,
        evaluate_batches=evaluate_batches,
    )
    place = _checked_folder(folder, save_every)
    _check_callbacks(callbacks)
    accelerator = make_accelerator(device)
    target = chosen_device(device, accelerator)
    check_precision(precision, target)
    with preserved_generators(target), _checkpointing(model, gradient_checkpointing):
        model.to(target)
        _try_out(model, task, settings, target)
        run = Run(
            model,
            task,
            settings,
            accelerator=accelerator,
            device=target,
            folder=place,
            callbacks=callbacks,
        )
        if resume:
            run.resume()
        run.train(progress)
    return run.history


def _checked_folder(folder: str | Path | None, save_every: int | None) -> Path | None:
    if folder is None:
        if save_every is not None:
            raise ValueError(
                f"save_every={save_every} needs a folder to save into; pass folder=..., or leave "
                "save_every out."
            )
        return None
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"folder='{folder}' cannot be a folder for checkpoints: {error}."
        ) from error
    return place


def _check_callbacks(callbacks: Sequence[Callback]) -> None:
    several = isinstance(callbacks, Sequence) and all(map(callable, callbacks))
    if not several:
        raise ValueError(
            "callbacks must be a list of functions that take a State, such as callbacks=[film]; "
            f"{callbacks!r} was given."
        )


@contextmanager
def _checkpointing(model: nn.Module, wanted: bool) -> Iterator[None]:
    """The model's own switch, on inside and afterwards as it was found."""
    if not wanted:
        yield
    elif isinstance(getattr(model, "checkpoint", None), bool):
        found = model.checkpoint
        model.checkpoint = True  # type: ignore[assignment]
        try:
            yield
        finally:
            model.checkpoint = found
    elif callable(enable := getattr(model, "gradient_checkpointing_enable", None)):
        already = getattr(model, "is_gradient_checkpointing", False)
        enable()
        try:
            yield
        finally:
            if not already:
                model.gradient_checkpointing_disable()  # type: ignore[operator]
    else:
        raise ValueError(
            f"gradient_checkpointing=True, but {type(model).__name__} has no switch for it (an "
            "attribute `checkpoint` that is True or False, or `gradient_checkpointing_enable`). "
            "Give the model one, or leave gradient_checkpointing out."
        )


def _try_out(model: nn.Module, task: Task, settings: Settings, device: torch.device) -> None:
    """One row through the model first: a mismatch is told in the task's words."""
    if not callable(getattr(task, "batch", None)):
        raise TypeError(
            f"task must be a task, such as attnlab.tasks.task('copying'); {task!r} was given."
        )
    batch = task.batch("train", 1, seed=derived_seed(settings.seed, "try"))
    _check_batch(task, batch)
    try:
        with mode(model, training=False), torch.no_grad(), autocast(settings.precision, device):
            logits = logits_of(model, batch.to(device))
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"The model cannot take a batch of task '{task.name}' ({_wants(task)}): {error}"
            f"{'' if str(error).endswith('.') else '.'} {_advice(task)}"
        ) from error
    declared = getattr(task, "classes" if task.kind == "classifier" else "vocab", None) or 0
    needed = max(declared, int(batch.targets.max()) + 1)
    if logits.shape[-1] < needed:
        raise ValueError(
            f"Task '{task.name}' has {needed} different targets ({_wants(task)}); the model tells "
            f"only {logits.shape[-1]} apart. {_advice(task)}"
        )


def _check_batch(task: Task, batch: Batch) -> None:
    if len(batch) != 1 or not batch.inputs.numel() or not batch.targets.numel():
        raise ValueError(
            f"Task '{task.name}' is empty: asked for 1 row, it gave inputs of shape "
            f"{tuple(batch.inputs.shape)} and targets of shape {tuple(batch.targets.shape)}."
        )


def _wants(task: Task) -> str:
    names = ("kind", "vocab", "features", "classes", "length")
    known: dict[str, Any] = {name: getattr(task, name, None) for name in names}
    return ", ".join(f"{name}={value!r}" for name, value in known.items() if value is not None)


def _advice(task: Task) -> str:
    if hasattr(task, "model_options"):
        return "TinyTransformer(**task.model_options()) fits."
    return "Build the model for this task."
