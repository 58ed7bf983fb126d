"""Objectives of a student with a teacher: what both answer, and whether it can be compared."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from attnlab.core.options import Options
from attnlab.objectives.batches import Batch, CrossEntropy, check_logits, logits_of


class Taught(CrossEntropy):
    """What objectives with a teacher have in common.

    teacher: a trained model. It is in evaluation mode while it is asked, is not trained, and is no
        part of a checkpoint.
    then: the objective that asks the student; not given, the task does.
    """

    needs_teacher: str
    """Why there has to be one, and how it is given."""

    def __init__(
        self, options: Options, teacher: nn.Module | None = None, then: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.options: Any = options
        self.then: Any = then
        self._teacher = [teacher]  # in a list, so that it is no part of this module
        self.specials = getattr(then, "specials", 0)

    def extra_repr(self) -> str:
        return str(self.options)

    @property
    def teacher(self) -> Any:
        """The teacher; a ValueError where there is none."""
        if self._teacher[0] is None:
            raise ValueError(self.needs_teacher)
        return self._teacher[0]

    def longest(self, length: int) -> int:
        return length if self.then is None else int(self.then.longest(length))

    def fitted(self, model: nn.Module) -> None:
        if model is self.teacher:
            raise ValueError("the teacher is the model that is trained; give another one")
        if self.then is not None:
            self.then.fitted(model)

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        if self.then is not None:
            self.then.after_step(model, step, steps)


class Answers(NamedTuple):
    """The logits of a model, and its vectors before the output layer where they are compared."""

    logits: Tensor
    vectors: Tensor | None = None


def read(model: Any, batch: Batch, *, vectors: bool) -> Answers:
    """What a model answers; with vectors, a ValueError for one that has none for each token."""
    if not vectors:
        return Answers(logits_of(model, batch))
    encode = getattr(model, "encode", None)
    kind = getattr(model, "kind", "token_classifier")  # what has none is taken at its word
    if encode is None or kind != "token_classifier" or batch.targets.dim() != 2:
        raise ValueError(
            "cosine compares the vector of each token before the output layer; take models of "
            "kind='token_classifier', or cosine=0"
        )
    found: Tensor = encode(batch.inputs, padding=batch.padding)
    logits = model.logits(found)
    check_logits(logits, batch)
    return Answers(logits, found)


def check_vocabulary(student: Any, teacher: Any) -> None:
    """A ValueError where both say how many tokens they read, and these are not the same."""
    mine, theirs = (getattr(model, "vocab", None) for model in (student, teacher))
    if mine is not None and theirs is not None and mine != theirs:
        raise ValueError(
            f"the teacher reads {theirs} different tokens, and the student {mine}; both need the "
            "same vocabulary"
        )


def check_alike(student: Answers, teacher: Answers) -> None:
    """A ValueError where a teacher has another vocabulary, vectors of another width, or answers
    that are not numbers."""
    if teacher.logits.isnan().any():
        raise ValueError(
            "the teacher answers NaN, of which nothing can be learned; look at its weights and its "
            "inputs"
        )
    mine, theirs = student.logits.shape[-1], teacher.logits.shape[-1]
    if mine != theirs:
        raise ValueError(
            f"the teacher answers with one of {theirs} classes or tokens, and the student with one "
            f"of {mine}; both need the same vocabulary"
        )
    if student.vectors is not None and teacher.vectors is not None:
        mine, theirs = student.vectors.shape[-1], teacher.vectors.shape[-1]
        if mine != theirs:
            raise ValueError(
                f"cosine compares vectors, and those of the teacher are {theirs} wide, of the "
                f"student {mine}; take a student of the same width, or cosine=0"
            )
