r"""Distillation: a student learns the probabilities of a teacher, not the label alone.

A teacher that reads a 4 may give the 9 a small probability and the 0 a far smaller one. This says
which digits look alike, and a label does not. A temperature T above 1 makes the small probabilities
larger: with logits $z_t$ of the teacher and $z_s$ of the student at a scored target y,

$$\ell = a\, T^2\, \mathrm{KL}(p_t \,\|\, p_s) - b \log \mathrm{softmax}(z_s)_y,\qquad
  p_t = \mathrm{softmax}(z_t / T),\quad p_s = \mathrm{softmax}(z_s / T)$$

The gradient of the first term at $z_s$ is $a\,T\,(p_s - p_t)$; without the factor $T^2$ it would
fall as $1/T^2$, and for a large T the label's term alone would count. For a large T and logits of
mean 0 it becomes $a\,(z_s - z_t)$ over the number of classes. The divergence is 0 where the logits
agree up to a constant.

DistilBERT begins with layers of its teacher, 0, 2, 4, 7, 9 and 11 of twelve; ``pruned`` counts
them from 1. It learns what masked tokens are (``then``), and has a third term with the weight c for
the vectors before the output layer, $c\,(1 - \cos(h_s, h_t))$. With the numbers of its code:

    student = attnlab.models.pruned.pruned(teacher, kept=(1, 3, 5, 8, 10, 12))
    build("distillation", teacher=teacher, then=build("masked_lm", vocab=vocab),
          temperature=2.0, soft=5.0, hard=2.0, cosine=1.0)

``naive``       one scored target and one class after the other.
``vectorised``  all of them at once.

A target of -1 (``UNLABELLED``) has no label: there the student learns from the teacher alone, and
the second term is 0. The loss is the mean over all targets, with a label or without.

It is an objective, and no compression: the smaller model is one that the reader chooses, and what
is changed is what it learns from.

Common mistakes: the factor T² forgotten; a softmax in the place of its logarithm as the first
argument of ``kl_div``, and its mean over classes too; a teacher in training mode, whose dropout
gives other logits each time; a gradient to the teacher.

Departures.
- every scored target weighs alike, in all three terms
- right answers without a label are those that the teacher gives

Hinton, Vinyals, Dean. Distilling the Knowledge in a Neural Network. NeurIPS Workshop on Deep
Learning 2014, arXiv:1503.02531. Sanh, Debut, Chaumond, Wolf. DistilBERT, a distilled version of
BERT: smaller, faster, cheaper and lighter. NeurIPS EMC2 Workshop 2019, arXiv:1910.01108, section 3.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.modes import mode
from attnlab.core.options import Options
from attnlab.core.precision import upcast
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNLABELLED, UNSCORED, Batch, summed_loss
from attnlab.objectives.taught import Answers, Taught, check_alike, check_vocabulary, read

# ---- options


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(Options):
    """temperature: T, above 0. soft, hard, cosine: the weights a, b and c of the teacher's
    probabilities, of the target, and of the vectors before the output layer; at least 0."""

    temperature: float = 2.0
    soft: float = 0.5
    hard: float = 0.5
    cosine: float = 0.0

    def check(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"temperature should be above 0, got {self.temperature}")
        weights = {"soft": self.soft, "hard": self.hard, "cosine": self.cosine}
        for name, weight in weights.items():
            if weight < 0:
                raise ValueError(f"{name} is a weight of a loss, at least 0, got {weight}")


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Distillation",
) -> tuple[Tensor, int]:  # fmt: skip
    """The three terms, one scored target and one class after the other."""
    o, asked = objective.options, objective.prepare(batch, generator)
    found = objective.answers(model, asked)
    logits, taught = upcast(found.logits), upcast(kept(asked, "teacher"))
    total, count = logits.new_zeros(()), 0
    for place in (asked.targets != UNSCORED).nonzero().tolist():
        at = tuple(place)
        q = [(z / o.temperature).exp() for z in taught[at] - taught[at].max()]
        p = [(z / o.temperature).exp() for z in logits[at] - logits[at].max()]
        of_teacher, of_student = sum(q), sum(p)
        for q_k, p_k in zip(q, p, strict=True):
            share = q_k / of_teacher
            if share > 0:
                divergence = share * (share.log() - (p_k / of_student).log())
                total = total + o.soft * o.temperature**2 * divergence
        if kept(asked, "labelled")[at]:
            total = total - o.hard * logits[at].log_softmax(-1)[asked.targets[at]]
        if found.vectors is not None:
            h = upcast(found.vectors[at])
            theirs = upcast(kept(asked, "vectors")[at]).to(h)
            total = total + o.cosine * (1 - (h @ theirs) / (h.norm() * theirs.norm()))
        count += 1
    return total, count


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Distillation",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all targets and classes at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(z_t / T) ‖ softmax(z_s / T)) of each row, in nats: both logits (…, classes)
    give (…)."""
    taught = (upcast(teacher) / temperature).log_softmax(-1)
    own = (upcast(student) / temperature).log_softmax(-1)
    difference = (taught - own).masked_fill(taught == -torch.inf, 0)  # 0 log 0 = 0
    return temperature**2 * (taught.exp() * difference).sum(-1)


# ---- module


class Distillation(Taught):
    """What a teacher answers, beside the targets of the task or of another objective.

    teacher: a trained model of the same kind and the same classes as the student. It is in
        evaluation mode while it is asked, is not trained, and is no part of a checkpoint.
    then: the objective whose targets both answer, such as ``build("masked_lm", vocab=…)``; not
        given, those of the task.
    """

    models = ("language_model", "encoder_decoder", "classifier", "token_classifier")
    needs_teacher = (
        "distillation learns what a teacher answers, and has none: build('distillation', "
        "teacher=…) with a trained model"
    )

    def __init__(
        self, options: DistillationOptions = DistillationOptions(),
        teacher: nn.Module | None = None, then: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(options, teacher, then)
        if then is not None:
            self.models = then.models  # type: ignore[misc, assignment]

    def fitted(self, model: nn.Module) -> None:
        super().fitted(model)
        check_vocabulary(model, self.teacher)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Any:
        """The batch with the teacher's logits, and its vectors where they are compared. What has
        no label has the teacher's answer as its target, and False in ``labelled``."""
        asked = batch if self.then is None else self.then.prepare(batch, generator)
        teacher = self.teacher
        home = next(teacher.parameters()).device
        with torch.no_grad(), mode(teacher, training=False):
            found = read(teacher, asked.to(home), vectors=self.options.cosine > 0)
        own = dict(getattr(asked, "kept", {}))
        own["teacher"] = logits = found.logits.to(asked.targets.device)
        own["labelled"] = labelled = asked.targets != UNLABELLED
        if found.vectors is not None:
            own["vectors"] = found.vectors.to(asked.targets.device)
        targets = torch.where(labelled, asked.targets, logits.argmax(-1))
        return Asked.of(asked, inputs=asked.inputs, targets=targets, padding=asked.padding, **own)

    def answers(self, model: nn.Module, batch: Batch) -> Any:
        """The student's logits, and its vectors where they are compared."""
        found = read(model, batch, vectors=self.options.cosine > 0)
        of_teacher = Answers(kept(batch, "teacher"), batch.kept.get("vectors"))  # type: ignore[attr-defined]
        check_alike(found, of_teacher)
        return found

    def loss(self, answers: Any, batch: Batch) -> Tensor:
        """The three terms, summed over the scored targets."""
        o, scored = self.options, batch.targets != UNSCORED
        taught = kept(batch, "teacher")[scored]
        total = o.soft * divergence(answers.logits[scored], taught, o.temperature).sum()
        labels = batch.targets.where(kept(batch, "labelled"), UNSCORED)
        total = total + o.hard * summed_loss(answers.logits, labels)
        if answers.vectors is not None:
            own = upcast(answers.vectors[scored])
            theirs = upcast(kept(batch, "vectors")[scored]).to(own)
            total = total + o.cosine * (1 - torch.cosine_similarity(own, theirs, dim=-1)).sum()
        return total

    def right(self, answers: Any, batch: Batch) -> Tensor:
        return super().right(answers.logits, batch)


def uniform_loss(batch: Any, classes: int) -> float:
    """The loss of a student that gives all classes the same probability, for each target."""
    o = DistillationOptions()
    taught = kept(batch, "teacher")[batch.targets != UNSCORED]
    even = divergence(torch.zeros_like(taught), taught, o.temperature).mean()
    return o.soft * float(even) + o.hard * float(torch.tensor(float(classes)).log())


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="distillation",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s,
        hidden="nothing beyond the task; the probabilities of a teacher are asked for too",
        models=Distillation.models,
        uniform=uniform_loss,
    ),
    options=DistillationOptions,
    build=Distillation,
    variants=({"temperature": 1.0, "hard": 0.0}, {"soft": 5.0, "hard": 2.0, "cosine": 1.0}),
    aliases=("knowledge_distillation", "distilbert", "hinton"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> sizes = {"dim": 16, "heads": 2, "layers": 1}
    >>> teacher, student = (attnlab.TinyTransformer(11, **sizes) for _ in range(2))
    >>> tokens = torch.randint(11, (2, 9))
    >>> batch = Batch(tokens[:, :-1], tokens[:, 1:])
    >>> soft = attnlab.build("distillation", teacher=teacher, soft=1.0, hard=0.0)
    >>> soft(teacher, batch)[0].item() < 1e-5 < soft(student, batch)[0].item()
    True
    """,
)
