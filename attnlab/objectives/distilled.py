r"""Sequence-level distillation: the targets are those that a trained teacher writes.

A source may have several good translations, of which the data hold one, drawn anew each time. A
teacher that was trained on them from left to right writes for the same source always the same, its
likeliest word after the words so far. The student learns this target $T$ in the place of the target
Y of the data:

$$\ell = -\sum_{i} \log p(t_i \mid X),\qquad
  t_i = \arg\max_y \, p_\text{teacher}(y \mid X, t_1 \dots t_{i-1})$$

T is a function of X, so its words do not depend on each other beyond X (their conditional total
correlation $C(T \mid X)$ is 0): a student that writes all words at once
(``then=attnlab.build("nat", vocab=…)``) can be exactly right. What it learns is not the data: of
two translations, each as likely as the other, it says one. A student that has learned all of T also
repeats the errors of its teacher.

With no ``then`` the student writes from left to right too, as in the paper; there distillation
serves to train smaller models. Such a student can represent words that depend on each other, so
C does not limit it.

``naive``       the teacher writes one target after the other, and reads it again for each word.
``vectorised``  all targets at once, and where the teacher can it reads each word once.

Common mistakes: a teacher in training mode, whose dropout writes another target each time; words
sampled from the teacher, so that C is that of the data again; a gradient to the teacher; the
distillation of each word's probabilities, given the words of the data, which is another method.

Departures.
- the teacher takes the likeliest word each time; the paper searches with a beam of 5
- targets are written while the student trains, not before; they are the same each time

Kim, Rush. Sequence-Level Knowledge Distillation. EMNLP 2016, arXiv:1606.07947, section 3.2. Huang,
Tao, Zhou, Li, Huang. On the Learning of Non-Autoregressive Transformers. ICML 2022,
arXiv:2206.05975, section 4.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.modes import mode
from attnlab.core.options import Count, Options
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, one_by_one
from attnlab.objectives.parallel import places
from attnlab.objectives.taught import Taught

# ---- options


@dataclass(frozen=True, kw_only=True)
class DistilledOptions(Options):
    """end: the token with which a target ends, after which nothing is scored; not given, the
    teacher's target is as long as that of the task."""

    end: Count | None = None


# ---- forms

Write = Callable[[Any, Batch], Int[Tensor, "b n"]]


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Distilled",
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(t_i | X), for targets that are written one after the other."""
    asked = objective.prepare(batch, generator, write=written_again)
    if objective.then is not None:
        loss = objective.loss(objective.answers(model, asked), asked)
        return loss, int((asked.targets != UNSCORED).sum())
    return one_by_one(objective.answers(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Distilled",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all targets at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def written_again(teacher: Any, batch: Batch) -> Int[Tensor, "b n"]:
    """The likeliest word after the words so far, row by row; all of them are read each time."""
    source, real = batch.source, batch.source_padding
    assert source is not None
    rows = []
    for row in range(len(batch)):
        own = slice(row, row + 1)
        padding = None if real is None else real[own]
        said = batch.inputs[own, :1]
        for _ in range(batch.inputs.shape[1]):
            logits = teacher(said, source=source[own], source_padding=padding)
            said = torch.cat([said, logits[:, -1:].argmax(-1)], 1)
        rows.append(said[0, 1:])
    return torch.stack(rows)


def written(teacher: Any, batch: Batch) -> Int[Tensor, "b n"]:
    """Computes all rows at once; by ``step`` where the teacher has it."""
    read: dict[str, Any] = {"source": batch.source, "source_padding": batch.source_padding}
    steps = getattr(teacher, "steps_incrementally", False)
    if steps:
        memory = teacher.encode(batch.source, batch.source_padding)
        read = {"memory": memory, "memory_padding": batch.source_padding}
    said, state = batch.inputs[:, :1], None
    for _ in range(batch.inputs.shape[1]):
        if steps:
            logits, state = teacher.step(said[:, -1:], state, **read)
        else:
            logits = teacher(said, **read)[:, -1]
        said = torch.cat([said, logits.argmax(-1, keepdim=True)], 1)
    return said[:, 1:]


# ---- module


class Distilled(Taught):
    """The targets of a teacher, as another objective asks for them.

    teacher: a trained model of kind "encoder_decoder", or any that is called as
        ``teacher(tokens, source=…, source_padding=…)`` and gives logits. It is not trained, and is
        no part of what a checkpoint holds.
    then: the objective of the student, such as ``build("nat", vocab=…)``; not given, the next word.
    """

    models = ("encoder_decoder",)
    needs_teacher = (
        "distilled learns what a teacher writes, and has none: build('distilled', "
        "teacher=…) with a trained model of kind='encoder_decoder'"
    )

    def __init__(
        self, options: DistilledOptions = DistilledOptions(), teacher: nn.Module | None = None,
        then: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(options, teacher, then)
        self.orders = getattr(then, "orders", "")  # type: ignore[misc]

    def prepare(
        self, batch: Batch, generator: torch.Generator | None = None, *, write: Write = written
    ) -> Batch:
        """The batch with the teacher's targets, as the student's objective asks for them; notes
        ``written``, these targets (b, n)."""
        if batch.source is None:
            raise ValueError(
                "distilled has a teacher write a target for a source, and this task has no source; "
                "take a task of kind='encoder_decoder', such as 'two_dialects'"
            )
        real = places("distilled", batch)
        with torch.no_grad(), mode(self.teacher, training=False):
            home = next(self.teacher.parameters()).device
            said = write(self.teacher, batch.to(home)).to(batch.targets)
        if self.options.end is not None:
            ends = (said == self.options.end).long()
            real = real[:, :1] & (ends.cumsum(-1) - ends == 0)  # up to the first end
        before = torch.cat([batch.inputs[:, :1], said[:, :-1]], 1)
        changed = replace(
            batch,  # type: ignore[type-var]
            inputs=before.masked_fill(~real, 0),
            targets=note("written", said.masked_fill(~real, UNSCORED)),
            padding=real,
        )
        if self.then is None:
            note("scored", real)
            return changed
        asked: Batch = self.then.prepare(changed, generator)
        return asked

    def answers(self, model: nn.Module, batch: Batch) -> Any:
        own = self.then is None
        return super().answers(model, batch) if own else self.then.answers(model, batch)

    def loss(self, answers: Any, batch: Batch) -> Any:
        return super().loss(answers, batch) if self.then is None else self.then.loss(answers, batch)

    def right(self, answers: Any, batch: Batch) -> Any:
        own = self.then is None
        return super().right(answers, batch) if own else self.then.right(answers, batch)


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="distilled",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s,
        hidden="the target of the data; that of a teacher is asked for instead",
        models=Distilled.models,
        source=True,
    ),
    options=DistilledOptions,
    build=Distilled,
    aliases=("sequence_distillation",),
    demo="""
    >>> task = attnlab.tasks.task("two_dialects", words=4)
    >>> teacher = attnlab.TinyTransformer(**task.model_options(), dim=16, layers=1)
    >>> objective = attnlab.build("distilled", teacher=teacher)
    >>> batch = task.batch("train", 2, seed=0)
    >>> one, other = (objective.prepare(batch).targets for _ in range(2))
    >>> bool((one == other).all()), one.shape == batch.targets.shape  # the same each time
    (True, True)
    """,
)
