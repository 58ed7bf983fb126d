r"""DINO: a model answers as its own past does, from smaller pieces of the same thing.

No words are hidden and no class is known. Of each sequence $V$ pieces are cut, two large ones and
$V - 2$ small ones. The model, the student, reads all of them; the teacher, a moving average of the
student, reads the two large ones. Both end in a head with $K$ outputs, and the student's
distribution for every other piece should be the teacher's for a large one:

$$\ell = \frac{1}{2V - 2} \sum_{g \in \{1, 2\}}\; \sum_{v \ne g}\; \sum_{k=1}^{K}
  -P_t(k \mid g)\, \log P_s(k \mid v)$$

$$P_t = \mathrm{softmax}\frac{t - c}{0.04},\quad P_s = \mathrm{softmax}\frac{s}{0.1},\qquad
  c \leftarrow 0.9\, c + 0.1\, \overline{t},\quad
  \theta_t \leftarrow m\,\theta_t + (1 - m)\,\theta_s$$

An answer that is the same for every input would please the loss. Two things prevent it. *Centring*,
the subtraction of the mean $c$ of the teacher's raw outputs, keeps one output from winning
everywhere: a teacher that always says the same is centred to the uniform distribution. The low
temperature of the teacher, *sharpening*, keeps it from that. Each alone lets in what the other
prevents. The centre follows after the loss; m rises from 0.996 to 1 on a cosine.

``naive``       piece by piece.
``vectorised``  all pieces of a size at once.

Common mistakes: a centre of the probabilities instead of the raw outputs; a centre that has seen
the batch it is subtracted from; the same piece as question and answer; a teacher that has a
gradient; a teacher that reads small pieces.

Departures.
- pieces of a sequence, where the paper cuts, turns and colours images
- the mean over a piece stands for it, where the paper takes [CLS]; the head is smaller
- the temperature of the teacher and the last layer are not warmed up

Caron, Touvron, Misra, Jégou, Mairal, Bojanowski, Joulin. Emerging Properties in Self-Supervised
Vision Transformers. ICCV 2021, arXiv:2104.14294, section 3.1 and algorithm 1.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.modes import mode
from attnlab.core.options import Count, Options, Size, check_share
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.encodings import beside, check_encoder
from attnlab.objectives.hiding import lengths
from attnlab.objectives.views import Head, drawn_pieces, encoded_pieces, pieces

SMALL, LARGE = (0.05, 0.4), (0.4, 1.0)  # between these shares of a sequence

# ---- options


@dataclass(frozen=True, kw_only=True)
class DinoOptions(Options):
    """Pieces, the head, and how the teacher follows.

    local: how many small pieces there are beside the two large ones, V - 2.
    outputs, hidden: the K outputs of the head, and the width of its two hidden layers.
    student, teacher: their temperatures.
    centring: whether the mean of the teacher's outputs is subtracted.
    momentum, centre_momentum: of the teacher at the beginning, and of the centre.
    """

    local: Count = 4
    outputs: Size = 64
    hidden: Size = 64
    student: float = 0.1
    teacher: float = 0.04
    centring: bool = True
    momentum: float = 0.996
    centre_momentum: float = 0.9

    def check(self) -> None:
        for name in ("student", "teacher"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise ValueError(f"{name} should be a temperature above 0, got {value}")
        for name in ("momentum", "centre_momentum"):
            check_share(name, getattr(self, name))


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Dino",
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ P_t log P_s, piece by piece."""
    asked, o = objective.prepare(batch, generator), objective.options
    student, teacher, encoder = map(objective.part, ("student", "teacher", "encoder"))
    losses = [next(model.parameters()).sum() * 0]
    for row in (asked.targets != UNSCORED).any(-1).nonzero()[:, 0].tolist():
        places = zip(kept(asked, "start")[row], kept(asked, "length")[row], strict=True)
        pieces = [asked.inputs[row : row + 1, start : start + n] for start, n in places]
        for g in (0, 1):
            with torch.no_grad():
                t = upcast(teacher(encoder.encode(pieces[g]).mean(1)))
            p = ((t - objective.centre) / o.teacher).softmax(-1)
            for v in range(len(pieces)):
                if v != g:
                    s = upcast(student(model.encode(pieces[v]).mean(1)))  # type: ignore[operator]
                    losses.append(-(p * (s / o.student).softmax(-1).log()).sum())
    return torch.stack(losses).sum(), len(losses) - 1


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Dino",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all pieces of a size at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def distilled(
    student: Float[Tensor, "b v k"], teacher: Float[Tensor, "b g k"], centre: Float[Tensor, "k"],
    options: DinoOptions,
) -> Float[Tensor, "b"]:  # fmt: skip
    """Σ over g and v ≠ g of the cross-entropy between teacher and student."""
    p = ((upcast(teacher.detach()) - centre) / options.teacher).softmax(-1)
    with no_autocast(p.device):
        losses = -p @ (upcast(student) / options.student).log_softmax(-1).mT  # (b, g, v)
    same = torch.eye(losses.shape[1], losses.shape[2], device=losses.device, dtype=torch.bool)
    return losses.masked_fill(same, 0).sum((1, 2))


def momentum(start: float, step: int, steps: int) -> float:
    """From ``start`` to 1, on half a cosine."""
    return 1 - (1 - start) * (1 + math.cos(math.pi * step / steps)) / 2


# ---- module


class Outputs(NamedTuple):
    """Raw outputs: the student's for all pieces, the teacher's for the two large ones."""

    student: Float[Tensor, "b v k"]
    teacher: Float[Tensor, "b g k"]


class Dino(CrossEntropy):
    """A student that answers as its teacher. Sequences of tokens or vectors, padded at the end."""

    models = ("token_classifier", "classifier")
    centre: Tensor

    def __init__(self, options: DinoOptions = DinoOptions()) -> None:
        super().__init__()
        self.options = options
        self.parts = nn.ModuleDict()
        self.register_buffer("centre", torch.zeros(options.outputs))
        self._seen: list[Tensor] = []  # sums of the teacher's outputs since the last update

    def fitted(self, model: Any) -> None:
        check_encoder("dino", model)
        if not self.parts:
            head = beside(Head(model.dim, self.options.hidden, self.options.outputs), model)
            teacher = nn.ModuleDict({"encoder": model, "teacher": head})
            self.parts.update(dict(copy.deepcopy(teacher).requires_grad_(False).items()))
            self.parts["student"] = head

    def part(self, name: str) -> Any:
        """The "student" is its head; the teacher has an "encoder", and a head, the "teacher"."""
        if name not in self.parts:
            raise ValueError("dino has no teacher yet: call objective.fitted(model) first")
        return self.parts[name]

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        """The centre follows the teacher's outputs, then the teacher the student."""
        m = momentum(self.options.momentum, step, steps)
        if self._seen:
            total = torch.stack(self._seen).sum(0)
            self._seen = []
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.all_reduce(total)
            mean = (total[:-1] / total[-1].clamp(min=1)).to(self.centre)
            self.centre.lerp_(mean, 1 - self.options.centre_momentum)
        for old, new in (
            (self.part("encoder"), model),
            (self.part("teacher"), self.part("student")),
        ):
            for average, weight in zip(old.parameters(), new.parameters(), strict=True):
                average.lerp_(weight.to(average), 1 - m)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch, where its pieces begin and how long they are, both (b, v), the large ones
        first; targets (b, 2v - 2) are 0, or say that a sequence is empty.

        Notes ``start`` and ``length``.
        """
        n = lengths(batch)
        start, length = drawn_pieces(n, [LARGE, LARGE, *[SMALL] * self.options.local], generator)
        targets = torch.zeros(len(n), 2 * self.options.local + 2, dtype=torch.int64)
        asked: Batch = Asked.of(
            batch,
            inputs=batch.inputs,
            targets=targets.masked_fill(n[:, None] == 0, UNSCORED),
            start=note("start", start),
            length=note("length", length),
        )
        return asked

    def answers(self, model: nn.Module, batch: Batch) -> Outputs:  # type: ignore[override]
        start, length, n = kept(batch, "start"), kept(batch, "length"), batch.inputs.shape[1]
        large = pieces(batch.inputs, start[:, :2], length[:, :2], n)
        vectors = [encoded_pieces("dino", model, *large)]
        if self.options.local:
            widest = max(1, round(SMALL[1] * n))
            small = pieces(batch.inputs, start[:, 2:], length[:, 2:], widest)
            vectors.append(encoded_pieces("dino", model, *small))
        encoder = self.part("encoder")
        with torch.no_grad(), mode(encoder, training=False):
            teacher = self.part("teacher")(encoded_pieces("dino", encoder, *large))
        return Outputs(self.part("student")(torch.cat(vectors, 1)), teacher)

    def loss(self, answers: Outputs, batch: Batch) -> Tensor:  # type: ignore[override]
        """The sum over the terms of all sequences; in training the centre will follow."""
        scored = (batch.targets != UNSCORED).any(-1)
        centre = self.centre if self.options.centring else torch.zeros_like(self.centre)
        found = distilled(answers.student[scored], answers.teacher[scored], centre, self.options)
        if self.training:
            raw = answers.teacher[scored].detach().double().flatten(0, 1)
            self._seen.append(torch.cat([raw.sum(0), raw.new_full((1,), len(raw))]))
        return found.sum()

    def right(self, answers: Outputs, batch: Batch) -> Tensor:  # type: ignore[override]
        """In how many terms both find the same output the likeliest."""
        teacher = answers.teacher - self.centre * self.options.centring
        same = teacher.argmax(-1)[:, :, None] == answers.student.argmax(-1)[:, None]
        same = same & ~torch.eye(2, same.shape[-1], device=same.device, dtype=torch.bool)
        return same[(batch.targets != UNSCORED).any(-1)].sum()


# ---- card

(b,) = letters("b")

CARD = Card(
    __doc__,
    name="dino",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=10 * b,
        hidden="what stands around a piece",
        models=Dino.models,
        uniform=sympy.log(DinoOptions().outputs),
    ),
    options=DinoOptions,
    build=Dino,
    variants=({"local": 0, "outputs": 7}, {"centring": False}),
    aliases=("self_distillation",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> model = attnlab.TinyTransformer(50, kind="token_classifier", classes=50, dim=32)
    >>> objective, tokens = attnlab.build("dino"), torch.randint(50, (8, 20))
    >>> objective.fitted(model)
    >>> outputs = objective.answers(model, objective.prepare(Batch(tokens, tokens)))
    >>> outputs.student.shape, outputs.teacher.shape  # six pieces, two of them large
    (torch.Size([8, 6, 64]), torch.Size([8, 2, 64]))
    """,
)
