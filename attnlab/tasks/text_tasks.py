r"""Several tasks as pairs of texts, and the way back from what a model has written.

A text-to-text model reads a text and writes one, whatever the task is. In front of it a task is
**written**: its name, and each of its fields with a name. Behind it the answer is **read back**: a
class, a number, or the text itself.

    cola sentence: the cat sat            → acceptable
    stsb first: a cat second: a dog       → 2.4
    title text: two cats sat on a mat …   → Cats sit

A model may write what is no answer: "acceptible", or a sentence where a number was asked for. Such
an answer is None, and counts as wrong; nothing that is near to it is taken in its place. Numbers
are rounded to steps, so that a number is one of few texts that the model can learn to write.

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, section 2.4 and
appendix D.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from attnlab.core.options import check_value
from attnlab.core.suggest import choose

Value = str | float
"""A class or a text, or a number."""


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """One task as texts.

    name: what every question begins with.
    fields: the names of what is read, in their order.
    labels: of a classification, the words that answer it.
    numbers: of a regression, the least number, the largest and the step between two. With neither,
        any text is an answer.
    """

    name: str
    fields: tuple[str, ...]
    labels: tuple[str, ...] = ()
    numbers: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        _check_text("the name of a task", self.name)
        for what, names in (("fields", self.fields), ("labels", self.labels)):
            own = check_value(what, names, tuple[str, ...])
            object.__setattr__(self, what, own)
            for each in own:
                _check_text(f"each of {what}", each)
            if len(set(own)) < len(own):
                raise ValueError(f"{what} should differ from each other, got {own!r}")
        if not self.fields:
            raise ValueError(f"the task {self.name!r} reads nothing: name at least one field")
        if len(self.labels) == 1:
            raise ValueError(f"a class is one of two or more labels, got {self.labels!r}")
        if self.numbers is not None:
            self._check_numbers()

    def _check_numbers(self) -> None:
        if self.labels:
            raise ValueError(
                f"the task {self.name!r} is answered by labels or by numbers, not by both"
            )
        numbers = check_value("numbers", self.numbers, tuple[float, float, float])
        object.__setattr__(self, "numbers", numbers)
        least, most, step = numbers
        if not (least < most and 0 < step <= most - least):
            raise ValueError(
                "numbers are the least, the largest and the step between two, such as (1, 5, 0.2), "
                f"got {numbers!r}"
            )
        steps = (most - least) / step
        if abs(steps - round(steps)) > 1e-9 * steps:
            raise ValueError(
                f"steps of {step:g} from {least:g} do not end at {most:g}; choose a largest number "
                "that they reach"
            )

    def source(self, fields: Mapping[str, str]) -> str:
        """What the model reads. A ValueError for a field that lacks, is unknown or is empty."""
        if not isinstance(fields, Mapping):
            raise TypeError(
                f"an example is a dict of the fields {', '.join(self.fields)}, got {fields!r}"
            )
        for name in fields:
            choose("field", name, dict.fromkeys(self.fields))
        parts = [self.name]
        for name in self.fields:
            if name not in fields:
                raise ValueError(
                    f"the task {self.name!r} reads {', '.join(self.fields)}; the example has no "
                    f"{name!r}"
                )
            parts.append(f"{name}: {_check_text(f'the field {name!r}', fields[name])}")
        return " ".join(parts)

    def target(self, value: Value) -> str:
        """What the model should write. A ValueError for a value that is no answer to this task."""
        if self.numbers is not None:
            number = float(check_value("the answer", value, float))
            least, most, _ = self.numbers
            if not least <= number <= most:
                raise ValueError(
                    f"an answer to {self.name!r} lies between {least:g} and {most:g}, got {value!r}"
                )
            return self._rounded(number)
        text = _check_text(f"an answer to {self.name!r}", value)
        if self.labels and text not in self.labels:
            raise ValueError(
                f"{text!r} is not among the answers to {self.name!r}: {', '.join(self.labels)}"
            )
        return text

    def value(self, written: str) -> Value | None:
        """What an answer of the model means; None where it is no answer to this task."""
        if not isinstance(written, str):
            raise TypeError(f"what a model has written is a text, got {written!r}")
        text = " ".join(written.split())
        if self.numbers is not None:
            return self._number(text)
        if self.labels:
            return text if text in self.labels else None
        return text or None

    def _number(self, text: str) -> float | None:
        assert self.numbers is not None
        try:
            number = float(text)
        except ValueError:
            return None
        least, most, _ = self.numbers
        return number if math.isfinite(number) and least <= number <= most else None

    def _rounded(self, number: float) -> str:
        """The nearest number of the steps, with as many decimals as the step has."""
        assert self.numbers is not None
        least, _, step = self.numbers
        near = least + round((number - least) / step) * step
        exponent = Decimal(repr(step)).normalize().as_tuple().exponent
        return f"{near:.{max(0, -int(exponent))}f}"


class Score(NamedTuple):
    """Shares of what was written: ``right``, and ``no_answer``, which is wrong too."""

    right: float
    no_answer: float


@dataclass(frozen=True)
class Pipeline:
    """Tasks by their names, to and from texts."""

    tasks: tuple[TextTask, ...]

    def __init__(self, tasks: Sequence[TextTask]) -> None:
        if not isinstance(tasks, Sequence) or not all(isinstance(t, TextTask) for t in tasks):
            raise TypeError(f"tasks should be a list of TextTask, got {tasks!r}")
        names = [each.name for each in tasks]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"a pipeline has at least one task, and each a name of its own, got {names}: by "
                "its name alone a model can tell what to answer"
            )
        object.__setattr__(self, "tasks", tuple(tasks))

    def task(self, name: str) -> TextTask:
        """The task of this name; a ValueError that lists all for another."""
        found: TextTask = choose("task", name, {each.name: each for each in self.tasks})
        return found

    def pairs(
        self, name: str, examples: Sequence[tuple[Mapping[str, str], Value]]
    ) -> list[tuple[str, str]]:
        """(what is read, what is to be written) of examples (fields, answer) of one task."""
        one = self.task(name)
        return [(one.source(fields), one.target(value)) for fields, value in examples]

    def values(self, name: str, written: Sequence[str]) -> list[Value | None]:
        """What the texts that a model has written mean, None for those that are no answer."""
        one = self.task(name)
        return [one.value(each) for each in written]

    def score(self, name: str, written: Sequence[str], values: Sequence[Value]) -> Score:
        """How many of the texts are right: equal labels or texts, numbers equal when rounded."""
        if len(written) != len(values) or not len(values):
            raise ValueError(
                "a score needs as many texts as answers, and one at least, got "
                f"{len(written)} texts and {len(values)} answers"
            )
        one = self.task(name)
        found = self.values(name, written)
        right = [
            each is not None and one.target(each) == one.target(value)
            for each, value in zip(found, values, strict=True)
        ]
        return Score(sum(right) / len(right), sum(each is None for each in found) / len(found))


def _check_text(what: str, text: object) -> str:
    """The text, with one space between two words; an error where there is no word."""
    if not isinstance(text, str):
        raise TypeError(f"{what} should be a text, got {text!r}")
    words = " ".join(text.split())
    if not words:
        raise ValueError(f"{what} should have at least one word, got {text!r}")
    return words
