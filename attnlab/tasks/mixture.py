r"""Mixture: several tasks as one, each written as text, and how often each is drawn.

A row begins with the name of its task, and the answer follows the question:

    reversing: c a b | b a c
    number_words: 4 0 7 | four hundred and seven

The name tells what to do with the question: with "sorting:" before the same letters another answer
is right. So one model of one kind, with one loss, learns all of them (T5). How often is a task
drawn that has n_i examples? Examples-proportional mixing takes

$$r_i = \frac{\min(n_i, K)}{\sum_j \min(n_j, K)}\qquad\text{or}\qquad
  r_i = \frac{n_i^{1/T}}{\sum_j n_j^{1/T}}$$

A cap $K$ below the smallest n, and a temperature $T \to \infty$, both give all tasks the same rate.

``text`` is a task whose rows have no question, such as ``sentences``: there the objective decides
what is asked. ExT5 draws R of them for each row of the supervised tasks: ``ratio=0`` is fine-tuning
on all tasks at once, ``ratio=math.inf`` is pretraining without them.

The answers have no end of their own: the objective ``text_to_text`` adds one.

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, section 3.5.2.
Aribandi, Tay, Schuster, Rao, Zheng, Mehta, Zhuang, Tran, Bahri, Ni, Gupta, Hui, Ruder, Metzler.
ExT5: Towards Extreme Multi-Task Scaling for Transfer Learning. ICLR 2022, arXiv:2111.10952.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.sequences import SEPARATOR, display_names, next_words

END = "end"
"""A name of a token that ends the answers of some tasks; it is left out."""


def rates(
    sizes: Sequence[float], *, cap: float = math.inf, temperature: float = 1.0
) -> tuple[float, ...]:
    """How often each task is drawn, from the numbers of their examples; the rates sum to 1.

    cap: K, the most examples that count of a task. temperature: T, 1 for rates that are
    proportional to the examples; larger ones make the rates more equal.
    """
    numbers = [float(size) for size in sizes]
    if not numbers or not all(math.isfinite(size) and size > 0 for size in numbers):
        raise ValueError(f"sizes should be numbers of examples, each more than 0, got {sizes!r}")
    for name, value in (("cap", cap), ("temperature", temperature)):
        if math.isnan(value) or value <= 0:
            raise ValueError(f"{name} should be more than 0, got {value}")
    most = max(numbers)
    weights = [(min(size, cap) / min(most, cap)) ** (1 / temperature) for size in numbers]
    return tuple(weight / sum(weights) for weight in weights)


@dataclass(frozen=True)
class Mixture:
    """Rows of several tasks, each drawn as often as its rate says.

    tasks: of the kinds language_model, encoder_decoder and classifier, with ``tokens(ids)``; what a
        task scores is the answer, and what stands before it the question.
    sizes: how many examples each is said to have; not given, all as many. With ``cap`` and
        ``temperature`` they give the rates.
    text: a task whose rows have no question, or None.
    ratio: R, how many rows of ``text`` are drawn for each of the others, 0 to ``math.inf``.
    vocabulary: the word of each token, that of another mixture for a model that is to learn both;
        not given, the words of these tasks.
    """

    tasks: tuple[Any, ...]
    sizes: tuple[float, ...] | None = None
    cap: float = math.inf
    temperature: float = 1.0
    text: Any = None
    ratio: float = 0.0
    vocabulary: tuple[str, ...] = ()
    name: str = field(default="mixture", init=False)
    kind: str = field(default="language_model", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        if not self.tasks:
            raise ValueError("a mixture needs one task or more, got none")
        for each in self._all:
            if not callable(getattr(each, "tokens", None)):
                raise TypeError(
                    "a mixture writes its tasks as text, so each needs tokens(ids), the words of "
                    f"its tokens; task {getattr(each, 'name', each)!r} has none"
                )
        names = [each.name for each in self._all]
        if len({*names}) < len(names):
            raise ValueError(f"the name of a task is what tells it apart, got {names}")
        if self.sizes is not None and len(self.sizes) != len(self.tasks):
            raise ValueError(f"{len(self.tasks)} tasks need as many sizes, got {len(self.sizes)}")
        if math.isnan(self.ratio) or self.ratio < 0:
            raise ValueError(f"ratio should be 0 or more, perhaps math.inf, got {self.ratio}")
        if (self.ratio > 0) != (self.text is not None):
            raise ValueError(
                f"ratio={self.ratio} is of rows of text and text={self.text!r}: give both, or "
                "leave both out"
            )
        _ = self.rates, self.words

    @cached_property
    def rates(self) -> dict[str, float]:
        """The share of the rows that each task has, by its name, that of ``text`` included."""
        sizes = self.sizes or (1.0,) * len(self.tasks)
        own = rates(sizes, cap=self.cap, temperature=self.temperature)
        of_text = 1.0 if math.isinf(self.ratio) else self.ratio / (1 + self.ratio)
        found = {
            task.name: (1 - of_text) * rate for task, rate in zip(self.tasks, own, strict=True)
        }
        return found | ({self.text.name: of_text} if self.text is not None else {})

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The word of each token: the tasks' names, the separator, then the words of the tasks."""
        own = [word for task in self._all for word in _names(task)]
        heads = [f"{task.name}:" for task in self.tasks]
        words = tuple(dict.fromkeys((*heads, SEPARATOR, *own)))
        if missing := {*words} - {*self.vocabulary} - {END} if self.vocabulary else ():
            raise ValueError(f"vocabulary lacks words of the tasks, such as {min(missing)!r}")
        return self.vocabulary or words

    @property
    def vocab(self) -> int:
        return len(self.words)

    @property
    def length(self) -> int:
        """Positions of the longest row that is read."""
        pairs = (2 if task.kind == "encoder_decoder" else 1 for task in self._all)
        return 2 + max(task.length * sides for task, sides in zip(self._all, pairs, strict=True))

    def model_options(self) -> dict[str, Any]:
        """The keyword arguments that a `TinyTransformer` for this task needs."""
        return {
            "vocab": self.vocab, "kind": self.kind, "classes": None, "features": None,
            "max_len": self.length,
        }  # fmt: skip

    @property
    def _all(self) -> tuple[Any, ...]:
        return (*self.tasks, *([self.text] if self.text is not None else []))

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The word of each token, "" where nothing is scored."""
        return display_names(ids, self.words)

    def encode(self, text: str) -> Tensor:
        """The tokens (n,) of words with spaces between them."""
        known = self._place
        unknown = [word for word in text.split() if word not in known]
        if unknown:
            raise ValueError(f"the tasks of this mixture have no word {unknown[0]!r}")
        return torch.tensor([known[word] for word in text.split()], dtype=torch.int64)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows of the tasks in a random order; of each the answer is scored, of text all of it."""
        generator = np.random.default_rng([2, seed])
        chosen = generator.choice(len(self._all), size=size, p=list(self.rates.values()))
        rows: list[tuple[list[int], list[int]]] = [([], [])] * size
        for index, task in enumerate(self._all):
            where = (chosen == index).nonzero()[0].tolist()
            if where:
                given = task.batch(split, len(where), int(generator.integers(2**40)))
                own = self._texts if task is self.text else self._questions
                for place, row in zip(where, own(task, given), strict=True):
                    rows[place] = row
        return next_words(rows)

    def _texts(self, task: Any, batch: Batch) -> list[tuple[list[int], list[int]]]:
        """Nothing, and the words of each row of texts, the target of the last one included."""
        to = self._table(task)
        rows = zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        return [
            ([], [to[x] for x in (*row[:1], *targets) if x != UNSCORED]) for row, targets in rows
        ]

    def _questions(self, task: Any, batch: Batch) -> list[tuple[list[int], list[int]]]:
        """The words of the question and of the answer of each row."""
        to, head = self._table(task), self._place[f"{task.name}:"]
        bar, end = self._place[SEPARATOR], self._place.get(END)
        found = []
        for asked, answer in questions(batch):
            words = [head, *(to[x] for x in asked)]
            words += [bar] if words[-1] != bar else []
            if task.kind == "classifier":
                said = [self._place[_class_names(task)[answer[0]]]]
            else:
                said = [to[x] for x in answer]
            found.append((words, [word for word in said if word != end]))
        return found

    def _table(self, task: Any) -> list[int]:
        """The token of the mixture for each token of a task."""
        return [self._place[word] for word in task.tokens(range(task.vocab))]


def questions(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The tokens of the question and of the answer of each row, whatever the kind of its task."""
    found = []
    source = batch.inputs if batch.source is None else batch.source
    real = batch.padding if batch.source is None else batch.source_padding
    for i, row in enumerate(source.tolist()):
        read = (
            row
            if real is None
            else [x for x, own in zip(row, real[i].tolist(), strict=True) if own]
        )
        if batch.targets.dim() == 1:
            found.append((read, [int(batch.targets[i])]))
            continue
        targets = batch.targets[i].tolist()
        answer = [x for x in targets if x != UNSCORED]
        first = next((at for at, x in enumerate(targets) if x != UNSCORED), len(read))
        found.append((read if batch.source is not None else read[: first + 1], answer))
    return found


def _names(task: Any) -> list[str]:
    own = list(task.tokens(range(task.vocab)))
    return own + (_class_names(task) if task.kind == "classifier" else [])


def _class_names(task: Any) -> list[str]:
    return list(getattr(task, "names_of_classes", None) or map(str, range(task.classes)))
