"""The options of `fit`, each defined once: its default, its valid values, and its meaning."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from attnlab.train.checks import (
    MOST_ROWS,
    MOST_STEPS,
    as_integer,
    as_number,
    check_flag,
    shown,
)
from attnlab.train.optimizer import SCHEDULES, default_warmup


def _option(default: Any, check: Callable[[str, Any], Any] | None = None) -> Any:
    return field(default=default, metadata={"check": check})


_size = partial(as_integer, least=1, most=MOST_STEPS)
_rows = partial(as_integer, least=1, most=MOST_ROWS)
_positive = partial(as_number, positive=True)


def _schedule(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in SCHEDULES:
        raise ValueError(f"{name} should be 'cosine' or 'linear', got {shown(value)}")
    return value


def _flag(name: str, value: Any) -> bool:
    check_flag(name, value)
    return bool(value)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a run is trained: the options that `fit` takes by name.

    steps: length of the whole run, the steps of a resumed checkpoint included.
    batch_size: rows per process and step; `accumulate` equal parts of it go through one by one.
    learning_rate: the peak. The rate climbs to it over `warmup` steps (None: a tenth of the run, at
        most 100) and falls towards 0 at the end.
    schedule: how it falls, along half a cosine ("cosine") or in a straight line ("linear").
    weight_decay: AdamW's, for matrices that multiply; biases, gains and embeddings do not decay.
    clip: largest gradient norm; None leaves gradients as they are.
    precision: "fp32", or "bf16" for autocast to bfloat16 (weights and loss stay in float32).
    segment: read texts in pieces of so many positions, one after the other; the model carries its
        state from piece to piece (`model.advance(tokens, state)`), and gradients end at each
        beginning of a piece. The pieces of a row belong to one step. Of a task of documents
        (`task.documents(split)`, such as "topics") each step reads the next piece of `batch_size`
        documents, which follow one another in a shuffled order, and the state is carried from step
        to step (`model.cleared(state, ended)` where a document begins). One process.
    sharded: of several processes each keeps its share of parameters, gradients and moments (FSDP2)
        instead of all of them; the numbers are the same (``attnlab.train.sharding``).
    limit: of several processes, the seconds that one waits for the others before an error says who
        is missing; more than a callback, an evaluation or a save takes.
    seed: decides batches and dropout.
    save_every: steps between two checkpoints; None saves at the end only.
    evaluate_every: adds validation_loss and validation_accuracy to every such row and to the
        last, over `evaluate_batches` fixed batches.
    """

    steps: int = field(metadata={"check": _size})
    batch_size: int = _option(32, _rows)
    learning_rate: float = _option(3e-3, _positive)
    warmup: int | None = _option(None)
    schedule: str = _option("cosine", _schedule)
    weight_decay: float = _option(0.01, partial(as_number, positive=False))
    clip: float | None = _option(1.0, partial(_positive, optional=True))
    accumulate: int = _option(1, _size)
    precision: str = _option("fp32")
    segment: int | None = _option(None, _size)
    sharded: bool = _option(False, _flag)
    limit: int = _option(600, _size)
    seed: int = _option(0, as_integer)
    save_every: int | None = _option(None, _size)
    evaluate_every: int | None = _option(None, _size)
    evaluate_batches: int = _option(8, _size)

    def __post_init__(self) -> None:
        for option in fields(self):
            value, check = getattr(self, option.name), option.metadata["check"]
            may_be_none = "None" in str(option.type)
            if check is not None and not (value is None and may_be_none):
                object.__setattr__(self, option.name, check(option.name, value))
        self._check_warmup()
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be split into accumulate={self.accumulate} "
                "equal parts; choose a batch_size that accumulate divides"
            )

    def _check_warmup(self) -> None:
        if self.warmup is None:
            return
        try:
            warmup = as_integer("warmup", self.warmup, least=0, most=self.steps - 1)
        except ValueError:
            raise ValueError(
                f"warmup should be a whole number from 0 to steps - 1 = {self.steps - 1}, or None; "
                f"{shown(self.warmup)} was given"
            ) from None
        object.__setattr__(self, "warmup", warmup)

    @property
    def warmup_steps(self) -> int:
        return default_warmup(self.steps) if self.warmup is None else self.warmup

    def identity(self, processes: int) -> dict[str, Any]:
        """The settings that a resumed run must share; the others, such as device, may change."""
        return {
            "seed": self.seed,
            "batch_size × processes": self.batch_size * processes,
            "learning_rate": self.learning_rate,
            "warmup": self.warmup,
            "weight_decay": self.weight_decay,
            "clip": self.clip,
            **({} if self.segment is None else {"segment": self.segment}),
            **({} if self.schedule == "cosine" else {"schedule": self.schedule}),
        }
