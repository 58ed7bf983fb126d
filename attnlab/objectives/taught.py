"""What a teacher and its student answer to one batch, and whether the two can be compared."""

from typing import Any, NamedTuple

from torch import Tensor

from attnlab.objectives.batches import Batch, check_logits, logits_of


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


def check_alike(student: Answers, teacher: Answers) -> None:
    """A ValueError where a teacher has another vocabulary, or vectors of another width."""
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
