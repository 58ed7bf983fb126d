"""The training loop: `fit(model, task, steps)` on any device, in one process or several.

What it guarantees, each point verified by a test in `tests/train/`:

- **The loss is that of the whole batch.** Sums of cross-entropy over the scored targets, divided
  by their number in the whole batch of all processes: accumulating or sharding changes rounding,
  nothing else.
- **A run is a function of its arguments.** Batches, dropout and schedule follow from `seed` and
  the step; the caller's own random generators are left as they were.
- **Nothing is lost.** Checkpoints are atomic (`attnlab.train.folder`); a run that was killed
  and called again goes on where it stopped, bit for bit as if it had never been killed. Only
  files that attnlab wrote are ever removed.
- **A checkpoint continues only its own run.** It holds digests of its files and a description of
  its model, task and settings, which must equal those of the run.
- **A number that is not finite stops the run** with its step and layer, before it reaches the
  weights.

A pretrained encoder is tuned on another task by `fine_tune` (`attnlab.train.fine_tuning`).

On several processes the same script runs under `torchrun` or `accelerate launch`; each process
takes its share of the batch, and gradients are averaged by PyTorch's DistributedDataParallel; with
sharded=True each process keeps a share of the model, too (FSDP2, `attnlab.train.sharding`).
Several CPU processes, with device="cpu": `torchrun --nproc-per-node 2 script.py`, or `accelerate
launch --multi_gpu --num_processes 2 script.py`.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from attnlab.core.lazy import modules_of
from attnlab.core.suggest import suggestion
from attnlab.models.tiny import TinyTransformer
from attnlab.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from attnlab.train.checks import as_folder, check_flag, check_model, shown
from attnlab.train.devices import chosen_device, make_accelerator
from attnlab.train.errors import CheckpointError, TrainingError
from attnlab.train.evaluation import Evaluation, evaluate
from attnlab.train.fine_tuning import Tuned, prepared
from attnlab.train.generators import preserved_generators
from attnlab.train.history import Callback, History, State
from attnlab.train.learner import fit_objective
from attnlab.train.objective import check_kind, chosen, model_options
from attnlab.train.precision import check_precision
from attnlab.train.processes import Processes
from attnlab.train.run import Run
from attnlab.train.saving import Saves
from attnlab.train.settings import Settings
from attnlab.train.sharding import called_layers, check_shardable, in_shares
from attnlab.train.task import Task, check_task
from attnlab.train.trial import dry_run

__getattr__ = modules_of(__name__)

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Evaluation",
    "History",
    "Settings",
    "State",
    "TrainingError",
    "Tuned",
    "evaluate",
    "fine_tune",
    "fit",
    "load_checkpoint",
    "model_options",
    "save_checkpoint",
]


def fit(
    model: nn.Module,
    task: Task,
    steps: int,
    *,
    objective: str | nn.Module = "next_token",
    gradient_checkpointing: bool = False,
    device: str | torch.device | None = None,
    folder: str | Path | None = None,
    resume: bool = True,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    **options: Any,
) -> History:
    """Trains `model` on `task` in place and returns the history, one plain dict per step.

    The model ends on the device it was trained on, every submodule in the mode (train or eval)
    it was found in, without gradients; the caller's random generators are as before. Equal
    arguments give equal bits on the CPU, and on a GPU as far as its kernels are deterministic.

    steps: length of the whole run, the steps of a resumed checkpoint included.
    objective: what is hidden and what must be answered: the name of a page of
        `attnlab.objectives`, or such a module, as `attnlab.build(name, …)` makes it. "next_token"
        scores the targets of the task as they are. What an objective learns itself, such as a head,
        is trained with the model and stays in the module: give one to keep it.
    gradient_checkpointing: turns on the model's own switch (`model.checkpoint`, or Hugging Face's
        `gradient_checkpointing_enable`) for the run.
    folder: where checkpoints live, written every `save_every` steps, at the end, and when a
        callback stops the run. With `resume`, a run found there goes on; a finished one is
        loaded and returned at once. It must be of the same model, task and settings; only `steps`
        may grow (the schedule then stretches), and device, precision, processes and `accumulate`
        may change (same batch in all), at the price of bit-identity. With resume=False the run
        begins anew; an old checkpoint is replaced at the first save, not before.
    callbacks: called after every step with a `State`, in the first process; False stops the run.
    options: how to train, such as learning_rate, batch_size, seed; `Settings` lists them all.

    Raises ValueError or TypeError for arguments that make no sense together or a task that does not
    suit the model, CheckpointError for a checkpoint that cannot be used (it is never harmed),
    TrainingError when the loss or a gradient is not finite, naming step and layer, before
    weights or checkpoint are touched, attnlab.parallel.errors.ProcessesError where one of several
    processes does not come within `limit` seconds.
    """
    _check_names(options)
    settings = Settings(steps=steps, **options)
    check_model(model)
    check_task(task)
    asked = chosen(objective, task)
    check_kind(model, asked)
    for name, flag in (
        ("gradient_checkpointing", gradient_checkpointing),
        ("resume", resume),
        ("progress", progress),
    ):
        check_flag(name, flag)
    _check_callbacks(callbacks)
    place = _checked_folder(folder, settings.save_every)
    accelerator = make_accelerator(device, settings.limit)
    target = chosen_device(device, accelerator)
    check_precision(settings.precision, target)
    processes = Processes(accelerator, target, settings.limit)
    with (
        preserved_generators(target),
        _checkpointing(model, gradient_checkpointing),
        processes.explained(),
    ):
        model.to(target)
        fit_objective(asked, model, target, settings.seed)
        if settings.sharded:
            check_shardable(model, asked, processes)
        with called_layers(model) as called:
            described = dry_run(model, task, settings, asked, target, processes)
        saves = Saves(place, model, described, asked, settings, processes)
        with in_shares(model, asked, processes, called if settings.sharded else None) as shares:
            run = Run(
                model, task, settings, asked, processes=processes, saves=saves,
                callbacks=callbacks, shares=shares,
            )  # fmt: skip
            if resume:
                run.resume()
            run.train(progress)
    return run.history


def fine_tune(
    model: TinyTransformer,
    task: Any,
    *,
    examples: int = 1024,
    epochs: int = 3,
    head: Literal["mean", "decoder"] = "mean",
    learning_rate: float = 1e-3,
    batch_size: int = 16,
    **options: Any,
) -> Tuned:
    """A copy of a pretrained model with a new head, trained on few examples of a task of classes.

    model: one that has an encoder, as ``fit`` trained it by "masked_lm", "electra",
        "span_corruption", …; it is not changed.
    task: of kind "classifier" or "token_classifier"; its tokens are those that the model knows.
    examples: so many rows of the task are there to learn from.
    epochs: passes over them; each step draws its rows from all of them.
    head: what answers, see ``attnlab.models.heads``: "mean", or EncT5's one-layer "decoder".
    learning_rate: the peak, after a tenth of the steps; then the rate falls in a straight line.
    options: those of ``fit``, such as seed, folder, callbacks, progress, device.

    Raises ValueError for a task that has no classes, or whose tokens or lengths the model does not
    know, and for a model without an encoder.
    """
    tuned, labelled, steps = prepared(
        model, task, examples=examples, epochs=epochs, head=head, batch_size=batch_size,
        options=options,
    )  # fmt: skip
    history = fit(
        tuned, labelled, steps, learning_rate=learning_rate, batch_size=batch_size,
        schedule="linear", **{"warmup": steps // 10, **options},
    )  # fmt: skip
    return Tuned(tuned, history)


def _signature() -> inspect.Signature:
    """The signature of `fit` with the options of `Settings` by name, for `help` and completion."""
    own = list(inspect.signature(fit).parameters.values())[:-1]
    named = inspect.signature(Settings).parameters.values()
    options = [option for option in named if option.name != "steps"]
    return inspect.Signature([*own, *options], return_annotation=History)


fit.__signature__ = _signature()  # type: ignore[attr-defined]


def _check_names(options: dict[str, Any]) -> None:
    known = [*inspect.signature(fit).parameters]
    for name in options:
        if name not in {field.name for field in fields(Settings)}:
            raise TypeError(f"fit has no option {name!r}{suggestion(name, known)}")


def _checked_folder(folder: str | Path | None, save_every: int | None) -> Path | None:
    if folder is None:
        if save_every is not None:
            raise ValueError(
                f"save_every={save_every} needs a folder to save into; pass folder=..., or leave "
                "save_every out"
            )
        return None
    place = as_folder(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"folder='{folder}' cannot be a folder for checkpoints: {error}"
        ) from error
    return place


def _check_callbacks(callbacks: Sequence[Callback]) -> None:
    several = isinstance(callbacks, Sequence) and not isinstance(callbacks, str | bytes)
    if not (several and all(map(callable, callbacks))):
        raise ValueError(
            "callbacks should be a list of functions that take a State, such as callbacks=[film]; "
            f"{shown(callbacks)} was given"
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
            "attribute `checkpoint` that is True or False, or `gradient_checkpointing_enable`); "
            "give the model one, or leave gradient_checkpointing out"
        )


def __dir__() -> list[str]:
    """What Tab offers: the public names."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
