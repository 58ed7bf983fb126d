"""The batch that an objective takes, the answers of a model to it, and their cross-entropy."""

import inspect
import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.precision import upcast

UNSCORED = -100
"""The target at a position that is not scored."""

UNLABELLED = -1
"""The target of what is scored by a teacher alone, in `attnlab.objectives.distillation`."""


class Batch(Protocol):
    """A batch of a task. `padding` and `source_padding` are True at real tokens."""

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None
    source: Tensor | None
    source_padding: Tensor | None

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> "Batch": ...
    def to(self, device: Any) -> "Batch": ...


def check_call(model: Any, batch: Any, generator: Any) -> None:
    """TypeError or ValueError for what an objective cannot be called with."""
    if not callable(model):
        raise TypeError(
            "an objective is called as objective(model, batch, generator), and as the model came "
            + reprlib.repr(model)
        )
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            "generator should be a torch.Generator, or None for PyTorch's own, got "
            + reprlib.repr(generator)
        )
    for name in ("inputs", "targets"):
        if not isinstance(given := getattr(batch, name, None), Tensor):
            raise TypeError(
                f"the batch should be one of a task, whose {name} are a tensor, got "
                f"{reprlib.repr(batch if given is None else given)}"
            )
    inputs, targets, padding = batch.inputs, batch.targets, getattr(batch, "padding", None)
    if inputs.dim() < 2 or targets.dim() < 1 or len(inputs) != len(targets):
        raise ValueError(
            "a batch has inputs (b, n) or (b, n, width) and a row of targets, or one, for each of "
            f"the b, got inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)}"
        )
    if not len(inputs):
        raise ValueError("a batch without rows asks nothing; give it at least one")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise TypeError(f"targets are whole numbers, the answers' places, got {targets.dtype}")
    if padding is None:
        return
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        raise TypeError("padding should be a tensor of bools, True at real tokens")
    if padding.shape != inputs.shape[:2]:
        raise ValueError(
            f"padding should be of shape {tuple(inputs.shape[:2])}, as the inputs, got "
            f"{tuple(padding.shape)}"
        )


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """The model's logits; encoder-decoder batches also have a source.

    Raises TypeError or ValueError for a model whose answers are no logits of these targets.
    """
    logits = called(model, batch)
    check_logits(logits, batch)
    checked: Tensor = logits
    return checked


def called(model: nn.Module, batch: Batch) -> Any:
    """What the model returns for a batch, of which it is given all that there is."""
    options: dict[str, Any] = {}
    if batch.source is not None:
        options = {"source": batch.source, "source_padding": batch.source_padding}
    structure = getattr(batch, "structure", None)  # of trees; most tasks have none
    if structure is not None:
        check_told(model)
        options["structure"] = structure
    return model(batch.inputs, padding=batch.padding, **options)


def check_told(model: nn.Module) -> None:
    """A ValueError for a model that cannot be called as ``model(tokens, structure=…)``."""
    taken = inspect.signature(getattr(model, "forward", model)).parameters
    if "structure" not in taken and all(each.kind != each.VAR_KEYWORD for each in taken.values()):
        raise ValueError(
            "the batch says what connects its tokens, or which token sees which, and a "
            f"{type(model).__name__} is not told; its forward should take structure=…, as that of "
            "a TinyTransformer does"
        )


def check_logits(logits: Any, batch: Batch) -> None:
    """TypeError or ValueError for what is no logits of these targets."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"The model should return logits, a tensor; it returned a {type(logits).__name__}; "
            "wrap it in a module whose forward returns the logits alone"
        )
    if logits.shape[:-1] != batch.targets.shape:
        raise ValueError(
            f"For targets of shape {tuple(batch.targets.shape)} the model should return logits of "
            f"shape {tuple(batch.targets.shape)} + (classes,); it returned {tuple(logits.shape)}; "
            "is the model of the task's kind?"
        )


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy summed over the scored targets, in float32 or better."""
    return F.cross_entropy(
        upcast(logits).flatten(0, -2), targets.flatten(), ignore_index=UNSCORED, reduction="sum"
    )


def one_by_one(logits: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """The sum of -log p(target) over the scored targets, one after the other, and their number."""
    probabilities = upcast(logits).flatten(0, -2).softmax(-1)
    losses = [
        -p[target].log()
        for p, target in zip(probabilities, targets.flatten().tolist(), strict=True)
        if target != UNSCORED
    ]
    return torch.stack([probabilities.new_zeros(()), *losses]).sum(), len(losses)


class CrossEntropy(nn.Module):
    """An objective whose targets are classes: its page says by ``prepare`` what they are."""

    models: ClassVar[tuple[str, ...]]
    """The kinds of a ``TinyTransformer`` that it can train."""

    orders: ClassVar[Literal["", "given", "placed"]] = ""
    """Whether it tells the layers which token sees which: of a text as it stands ("given"), or
    of tokens at positions of their own ("placed"); empty where the layers decide themselves."""

    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Options of a ``TinyTransformer`` without which it cannot be trained, such as its depth."""

    specials: int = 0
    """How many tokens it uses beyond those of the text, such as a mask."""

    maps: ClassVar[bool] = False
    """Whether it reads the queries and keys of the layers, which then have to have some."""

    asks: ClassVar[str] = ""
    """What is wanted at a target, in a word, where this is neither a token nor a class."""

    classes: int | None = None
    """How many answers there are, where they are not those of the task or its tokens."""

    def forward(
        self, model: nn.Module, batch: Batch, generator: torch.Generator | None = None
    ) -> tuple[Tensor, int]:
        """The summed loss, and the number of scored targets."""
        check_call(model, batch, generator)
        asked = self.prepare(batch, generator)
        loss = self.loss(self.answers(model, asked), asked)
        return loss, int((asked.targets != UNSCORED).sum())

    def fitted(self, model: nn.Module) -> None:
        """Builds what is trained beside this model, such as a head of its width; called before
        anything else. A second call with the same model changes nothing. Here there is nothing.
        """

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        """Called after each of the updates 1, 2, …, ``steps``, as for the moving average of a
        teacher; here nothing follows."""

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch as the model is to see it, with its targets; here as it is."""
        return batch

    def longest(self, length: int) -> int:
        """The longest sequence that a model reads, of texts of that length."""
        return length

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's logits."""
        return logits_of(model, batch)

    def loss(self, answers: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy summed over the scored targets."""
        return summed_loss(answers, batch.targets)

    def right(self, answers: Tensor, batch: Batch) -> Tensor:
        """How many scored targets are the likeliest answer."""
        return (answers.argmax(-1) == batch.targets).sum()  # an unscored target equals no answer
