r"""Fine-tuning: a pretrained encoder learns a task of which there are few examples, in two calls.

    text = task("sentences")
    model = TinyTransformer(**model_options(text, "masked_lm"), dim=64)
    fit(model, text, 2000, objective="masked_lm")
    tuned, history = fine_tune(model, task("agreement", form="words"), examples=500)

BERT's recipe: all weights are trained, the head begins untrained, the rate is small, climbs during
the first tenth of the steps and falls in a straight line to 0; few passes over the examples. The
pretrained model stays as it is: a copy is tuned.

Devlin, Chang, Lee, Toutanova. BERT. NAACL 2019, arXiv:1810.04805, section 3.2 and appendix A.3
(batches of 16 or 32, 2 to 4 epochs, rates of 2e-5 to 5e-5 for models of 110 million parameters and
more; the small ones here bear larger rates).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.models.heads import with_head
from attnlab.models.options import CLASSIFIERS
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.objectives.batches import Batch
from attnlab.train.checks import MOST_ROWS, as_integer, shown
from attnlab.train.generators import derived_seed
from attnlab.train.history import History
from attnlab.train.task import check_task


class Tuned(NamedTuple):
    """The tuned model, and the history of its training."""

    model: nn.Module
    history: History


@dataclass(frozen=True)
class Labelled:
    """A task of which there are only so many examples to learn from.

    Rows of "train" are drawn from the first ``examples``; other splits are as they were.
    """

    task: Any
    examples: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "task":
            raise AttributeError(name)
        return getattr(self.task, name)

    def batch(self, split: Any, size: int, seed: int) -> Batch:
        """Rows of the examples, each drawn with the same probability."""
        if split != "train":
            found: Batch = self.task.batch(split, size, seed)
            return found
        generator = torch.Generator().manual_seed(derived_seed(seed, "labelled"))
        rows = torch.randint(self.examples, (size,), generator=generator)
        known = self.known
        parts = {
            name: value[rows] for name, value in vars(known).items() if isinstance(value, Tensor)
        }
        chosen: Batch = replace(known, **parts)  # type: ignore[type-var]
        return chosen

    @cached_property
    def known(self) -> Batch:
        """The examples."""
        rows: Batch = self.task.batch("train", self.examples, 0)
        if getattr(rows, "structure", None) is not None:
            raise ValueError(
                f"the rows of task '{self.task.name}' are connected by a structure, and examples "
                "are drawn one by one; fine-tune on another form of it, such as form='words'"
            )
        return rows


def prepared(
    model: TinyTransformer, task: Any, *, examples: int, epochs: int, head: Any, batch_size: int,
    options: Mapping[str, Any],
) -> tuple[nn.Module, Labelled, int]:  # fmt: skip
    """A copy of the model with a new head, the examples, and how many steps the epochs are."""
    check_task(task)
    check_model(model)
    if task.kind not in CLASSIFIERS:
        raise ValueError(
            f"fine_tune puts a new head of classes on a model, and task {task.name!r} is of kind "
            f"{task.kind!r}; train the model on with fit(model, task, steps)"
        )
    examples = as_integer("examples", examples, least=1, most=MOST_ROWS)
    epochs = as_integer("epochs", epochs, least=1, most=MOST_ROWS)
    batch_size = as_integer("batch_size", batch_size, least=1, most=MOST_ROWS)
    _check_reads(model, task)
    if wrong := {"steps", "objective", "schedule"} & {*options}:
        name = min(wrong)
        raise TypeError(
            f"fine_tune decides {name} itself, from examples, epochs and the task; leave "
            f"{name}={shown(options[name])} out, or call fit"
        )
    seed = as_integer("seed", options.get("seed", 0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "head"))
        tuned = with_head(model, task.kind, task.classes, head=head)
    return tuned, Labelled(task, examples), max(1, math.ceil(examples * epochs / batch_size))


def _check_reads(model: Any, task: Any) -> None:
    """A ValueError for a task whose tokens or lengths the model does not know."""
    model = getattr(model, "_orig_mod", model)
    for what, known, needed in (
        ("tokens", model.vocab, getattr(task, "vocab", None)),
        ("positions", model.max_len, getattr(task, "length", None)),
    ):
        if known is not None and needed is not None and needed > known:
            raise ValueError(
                f"task {task.name!r} has {needed} {what}, and the pretrained model knows {known}; "
                "pretrain it on texts with the same tokens, as long as those of the task"
            )
