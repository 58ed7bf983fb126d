r"""Layer distillation: a student's layers learn to hold what those of a teacher hold.

A teacher of N layers and a student of M, where M divides N: layer i of the student learns from
layer $g(i) = i N / M$ of the teacher, and the embedding, i = 0, from the embedding. With the
vectors H after each of them, a matrix W that is trained with the student and brings its width to
that of the teacher, and the scores S of each head before the softmax,

$$\ell = \sum_{i=0}^{M} \mathrm{MSE}\left(H^s_i W, H^t_{g(i)}\right)
  + \sum_{i=1}^{M} \frac{1}{h} \sum_{a=1}^{h} \mathrm{MSE}\left(S^s_{i,a}, S^t_{g(i),a}\right)$$

TinyBERT learns this first, and in a second ``fit`` the teacher's probabilities
(``build("distillation", soft=1.0, hard=0.0, temperature=1.0)``). Scores are compared and not
weights, whose squared differences are much smaller. A constant that is added to a row of scores
does not change the weights, but it does change this loss.

MobileBERT has as many layers as its teacher, IB-BERT, and vectors as wide, so that W is left out
(``projected=False``). It compares the weights by their divergence (``attention="weights"``). In its
progressive transfer the layers learn one after the other, and those below no longer change:

    for layer in range(1, 25):
        fit(student, text, 1000, objective=build(
            "layer_distillation", teacher=teacher, attention="weights", projected=False,
            upto=layer, alone=True))

Both models are encoders, whose attention notes ``queries`` and ``keys``, and all sums are over real
tokens: what stands at padding, and scores with padding, are left out.

``naive``       one row, one layer, one head and one pair of tokens after the other.
``vectorised``  all of them at once.

Common mistakes: a teacher in training mode; layers of the teacher counted from 0, so that the last
one is never learned from; scores at padding, which a mask has made very large.

Departures.
- one matrix W for the embedding and all layers, as in the first published code; ``shared=False``
  has one for each
- MobileBERT's vectors (its feature maps) are compared as they are; its code normalises them and
  compares their means and variances beside

Jiao, Yin, Shang, Jiang, Chen, Li, Wang, Liu. TinyBERT: Distilling BERT for Natural Language
Understanding. Findings of EMNLP 2020, arXiv:1909.10351, section 3. Sun, Yu, Song, Liu, Yang, Zhou.
MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices. ACL 2020, arXiv:2004.02984.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.modes import mode
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.objectives.encodings import beside
from attnlab.objectives.held_layers import (
    Held,
    blocks_of,
    check_heads,
    check_widths,
    held,
    layer_map,
    map_loss,
    uniform_loss,
    vector_loss,
)  # fmt: skip
from attnlab.objectives.hiding import real_tokens
from attnlab.objectives.taught import Taught, check_vocabulary

# ---- options


@dataclass(frozen=True, kw_only=True)
class LayerDistillationOptions(Options):
    """vectors, maps: the weights of the two sums, at least 0. attention: whether maps are "scores"
    or "weights". shared: one matrix W for all layers. projected: whether there is a W; without it,
    both models are as wide. upto: how many layers of the student learn; not given, all. alone:
    whether the last of these learns alone, or with the embedding if it is the first; those below
    get no gradient."""

    vectors: float = 1.0
    maps: float = 1.0
    attention: Literal["scores", "weights"] = "scores"
    shared: bool = True
    projected: bool = True
    upto: Size | None = None
    alone: bool = False

    def check(self) -> None:
        if self.alone and self.upto is None:
            raise ValueError("alone=True is for the layer that upto names: give upto, from 1")
        for name, weight in {"vectors": self.vectors, "maps": self.maps}.items():
            if weight < 0:
                raise ValueError(f"{name} is a weight of a loss, at least 0, got {weight}")


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "LayerDistillation",
) -> tuple[Tensor, int]:  # fmt: skip
    """Both sums, one token and one pair of tokens after the other."""
    o, asked = objective.options, objective.prepare(batch, generator)
    mine, real = objective.answers(model, asked), asked.targets != UNSCORED
    pairs = objective.pairs(asked, mine)
    total = upcast(mine.vectors[pairs[-1][0]]).sum() * 0
    for (i, g), row in product(pairs, range(len(real))):
        W, tokens = objective.projection(i), real[row].nonzero()[:, 0].tolist()
        theirs = upcast(kept(asked, f"vectors {g}")[row])
        for t in tokens:
            gap = upcast(W(mine.vectors[i][row, t])) - theirs[t]
            total = total + o.vectors * (gap @ gap) / len(gap)
        for a in range(mine.scores[i - 1].shape[1] if i else 0):
            own, others = mine.scores[i - 1][row, a], kept(asked, f"scores {g}")[row, a]
            for t in tokens:
                mean = _of_query(upcast(own[t, tokens]), upcast(others[t, tokens]), o.attention)
                total = total + o.maps * mean / mine.scores[i - 1].shape[1]
    return total, int(real.sum())


def _of_query(student: Tensor, teacher: Tensor, attention: str) -> Tensor:
    """Σ (s - s')² / n, or Σ p' log(p' / p), of the scores of one query."""
    if attention == "scores":
        return sum((s - z) ** 2 for s, z in zip(student, teacher, strict=True)) / len(student)
    p, q = student.softmax(-1), teacher.softmax(-1)
    return sum(b * (b.log() - a.log()) for a, b in zip(p, q, strict=True) if b > 0) + 0 * p.sum()


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "LayerDistillation",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows, tokens and heads of a layer at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


# ---- module


class LayerDistillation(Taught):
    """A student's layers beside those of a teacher, by their vectors and attention maps.

    teacher: a trained encoder, whose number of layers is a multiple of the student's, with as many
        heads. It is in evaluation mode while it is asked, is not trained, and is no part of a
        checkpoint.
    """

    models = ("token_classifier", "classifier")
    maps = True
    asks = "vector"
    needs_teacher = (
        "layer_distillation learns what the layers of a teacher hold, and has none; give "
        "it a trained model as teacher"
    )

    def __init__(
        self, options: LayerDistillationOptions = LayerDistillationOptions(),
        teacher: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(options, teacher)
        self.projections = nn.ModuleList()

    def fitted(self, model: nn.Module) -> None:
        """Builds W, from the width of the student to that of the teacher."""
        super().fitted(model)
        check_vocabulary(model, self.teacher)
        own: Any = model
        layers = len(layer_map(len(blocks_of(self.teacher)), len(blocks_of(own))))
        if not self.options.projected:
            check_widths(own.dim, self.teacher.dim)
        if len(self.projections) or not self.options.projected:
            return
        for _ in range(1 if self.options.shared else layers):
            self.projections.append(beside(nn.Linear(own.dim, self.teacher.dim, bias=False), model))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Any:
        """The batch with what the layers of the teacher hold; every real token is a target."""
        real = real_tokens(batch)
        home = next(self.teacher.parameters()).device
        with torch.no_grad(), mode(self.teacher, training=False):
            found = held(self.teacher, batch.to(home))
        own = {f"vectors {i}": x for i, x in enumerate(found.vectors)}
        own |= {f"scores {i + 1}": x for i, x in enumerate(found.scores)}
        targets = torch.where(real, 0, UNSCORED)
        return Asked.of(
            batch, inputs=batch.inputs, targets=targets,
            **{name: x.to(targets.device) for name, x in own.items()},
        )  # fmt: skip

    def answers(self, model: nn.Module, batch: Batch) -> Any:
        """What the layers of the student hold."""
        found = held(model, batch, (self.options.upto or 1) if self.options.alone else 1)
        check_heads(found.scores[0], kept(batch, "scores 1"))
        if not self.options.projected:
            check_widths(found.vectors[0].shape[-1], kept(batch, "vectors 0").shape[-1])
        return found

    def loss(self, answers: Any, batch: Batch) -> Tensor:
        """Both sums, over the layers that learn and the real tokens."""
        o, real = self.options, batch.targets != UNSCORED
        pairs = self.pairs(batch, answers)
        total = upcast(answers.vectors[pairs[-1][0]]).sum() * 0
        for i, g in pairs:
            own, theirs = self.projection(i)(answers.vectors[i]), kept(batch, f"vectors {g}")
            total = total + o.vectors * vector_loss(upcast(own), upcast(theirs), real)
            if i:
                own, theirs = answers.scores[i - 1], kept(batch, f"scores {g}")
                total = total + o.maps * map_loss(upcast(own), upcast(theirs), real, o.attention)
        return total

    def pairs(self, batch: Batch, answers: Held) -> list[tuple[int, int]]:
        """The layers of the student that learn, with those of the teacher; 0 is the embedding."""
        teacher = sum(name.startswith("scores") for name in batch.kept)  # type: ignore[attr-defined]
        own, upto = len(answers.scores), self.options.upto
        if upto is not None and upto > own:
            raise ValueError(f"upto={upto}, and the student has {own} layers; name one of them")
        every = list(enumerate(layer_map(teacher, own)))[: (upto or own) + 1]
        return every[0 if upto == 1 else upto :] if self.options.alone else every

    def projection(self, layer: int) -> nn.Module:
        """W of a layer of the student, 0 for the embedding; the identity without ``projected``.

        Raises ValueError before ``fitted``.
        """
        if not self.options.projected:
            return nn.Identity()
        if not len(self.projections):
            raise ValueError(
                "layer_distillation has no matrix for this student yet: call fitted(model) first, "
                "as fit does"
            )
        return self.projections[0 if self.options.shared else layer]

    def right(self, answers: Any, batch: Batch) -> Tensor:
        """None: nothing is answered that is right or wrong."""
        return torch.zeros((), dtype=torch.long, device=batch.targets.device)


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="layer_distillation",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=n,
        hidden="nothing; what the layers of a teacher hold is asked for, at every real token",
        models=LayerDistillation.models,
        uniform=uniform_loss,
    ),
    options=LayerDistillationOptions,
    build=LayerDistillation,
    variants=({"attention": "weights"}, {"shared": False, "upto": 1, "alone": True}),
    aliases=("tinybert", "feature_map_transfer"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> sizes = {"kind": "token_classifier", "classes": 3, "heads": 2}
    >>> teacher = attnlab.TinyTransformer(11, dim=16, layers=4, **sizes)
    >>> student = attnlab.TinyTransformer(11, dim=8, layers=2, **sizes)
    >>> objective = attnlab.build("layer_distillation", teacher=teacher)
    >>> objective.fitted(student)
    >>> tokens = torch.randint(11, (2, 9))
    >>> batch = objective.prepare(Batch(tokens, tokens))
    >>> objective.pairs(batch, objective.answers(student, batch))  # layers that are compared
    [(0, 0), (1, 2), (2, 4)]
    """,
)
