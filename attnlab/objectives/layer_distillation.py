r"""Layer distillation: a student's layers learn to hold what those of a teacher hold.

A teacher of N layers and a student of M, where M divides N: layer i of the student learns from
layer $g(i) = i N / M$ of the teacher, and the embedding, i = 0, from the embedding. With the
vectors H after each of them, a matrix W that is trained with the student and brings its width to
that of the teacher, and the scores S of each head before the softmax,

$$\ell = \sum_{i=0}^{M} \mathrm{MSE}\left(H^s_i W, H^t_{g(i)}\right)
  + \sum_{i=1}^{M} \frac{1}{h} \sum_{a=1}^{h} \mathrm{MSE}\left(S^s_{i,a}, S^t_{g(i),a}\right)$$

TinyBERT learns this first, and the teacher's probabilities afterwards
(``build("distillation", soft=1.0, hard=0.0, temperature=1.0)``). Scores are compared and not
weights, whose squared differences are much smaller; scores are free up to a constant in each row,
so this asks for more than the softmax can show. MobileBERT compares the weights by their divergence
instead (``attention="weights"``), has as many layers as its teacher, and lets them learn one after
the other (``upto``: progressive transfer).

Both models are encoders, whose attention notes ``queries`` and ``keys``, and all sums are over real
tokens: what stands at padding, and scores with padding, are left out.

Common mistakes: a teacher in training mode; layers of the teacher counted from 0, so that the last
one is never learned from; scores at padding, which a mask has made very large.

Departures.
- one matrix W for the embedding and all layers, as in the first published code; ``shared=False``
  has one for each
- MobileBERT's maps are compared as they are, without the normalisation of its code

Jiao, Yin, Shang, Jiang, Chen, Li, Wang, Liu. TinyBERT: Distilling BERT for Natural Language
Understanding. Findings of EMNLP 2020, arXiv:1909.10351, section 3. Sun, Yu, Song, Liu, Yang, Zhou.
MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices. ACL 2020, arXiv:2004.02984.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.core.modes import mode
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import record
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.objectives.encodings import beside
from attnlab.objectives.taught import Taught

# ---- options


@dataclass(frozen=True, kw_only=True)
class LayerDistillationOptions(Options):
    """vectors, maps: the weights of the two sums, at least 0. attention: whether maps are "scores"
    or "weights". shared: one matrix W for all layers. upto: how many layers of the student learn;
    not given, all."""

    vectors: float = 1.0
    maps: float = 1.0
    attention: Literal["scores", "weights"] = "scores"
    shared: bool = True
    upto: Size | None = None

    def check(self) -> None:
        for name, weight in {"vectors": self.vectors, "maps": self.maps}.items():
            if weight < 0:
                raise ValueError(f"{name} is a weight of a loss, at least 0, got {weight}")


# ---- what layers hold


class Held(NamedTuple):
    """The embedding and what each layer leaves, (b, n, dim); and the scores of its heads,
    (b, h, n, n)."""

    vectors: list[Tensor]
    scores: list[Tensor]


def layer_map(teacher: int, student: int) -> list[int]:
    """g(0), …, g(M), for a teacher of N layers and a student of M."""
    if student < 1 or teacher % student:
        raise ValueError(
            f"each layer of the student learns from every k-th of the teacher, and {student} "
            f"layers do not divide {teacher}; take a student whose number of layers does"
        )
    return [i * teacher // student for i in range(student + 1)]


def held(model: Any, batch: Batch) -> Held:
    """What the layers of an encoder hold when it reads a batch."""
    blocks = blocks_of(model)
    found: list[Tensor] = []

    def first(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        found.append(given[0])

    def keep(_: nn.Module, given: object, out: Tensor) -> None:
        found.append(out)

    with ExitStack() as stack, record() as notes:
        stack.callback(blocks[0].register_forward_pre_hook(first).remove)
        for block in blocks:
            stack.callback(block.register_forward_hook(keep).remove)
        model.encode(batch.inputs, padding=batch.padding)
    if "queries" not in notes or len(notes["queries"]) != len(found) - 1:
        raise ValueError(
            "layer_distillation compares the scores of each layer, and not all layers note queries "
            "and keys; take models with softmax attention"
        )
    both = zip(notes["queries"], notes["keys"], strict=True)
    return Held(found, [_scores(*each) for each in both])


def blocks_of(model: Any) -> Any:
    """The layers of an encoder; a ValueError for a model that is none."""
    blocks = getattr(getattr(model, "encoder", None), "blocks", None)
    if blocks is None or not callable(getattr(model, "encode", None)):
        raise ValueError(
            "layer_distillation compares the layers of encoders, and this "
            f"{type(model).__name__} has no encoder with blocks; take a TinyTransformer of "
            "kind='token_classifier' or 'classifier'"
        )
    return blocks


def _scores(q: Tensor, k: Tensor) -> Tensor:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return q @ k.mT / q.shape[-1] ** 0.5


def vector_loss(student: Tensor, teacher: Tensor, real: Tensor) -> Tensor:
    """The mean squared difference of each vector, summed over the real tokens (b, n)."""
    return (student - teacher).square().mean(-1)[real].sum()


def map_loss(student: Tensor, teacher: Tensor, real: Tensor, attention: str = "scores") -> Tensor:
    """The mean over heads of the squared difference of scores, or of KL(teacher ‖ student) of the
    weights; over the real keys of each real query, summed over these."""
    keys = real[:, None, None, :]
    if attention == "weights":
        own, theirs = (s.masked_fill(~keys, -torch.inf).log_softmax(-1) for s in (student, teacher))
        each = (theirs.exp() * (theirs - own).masked_fill(~keys, 0)).sum(-1)
    else:
        gaps = (student - teacher).square().masked_fill(~keys, 0).sum(-1)
        each = gaps / real.sum(-1).clamp(min=1)[:, None, None]
    return each.mean(1)[real].sum()


# ---- module


class LayerDistillation(Taught):
    """A student's layers beside those of a teacher, by their vectors and attention maps.

    teacher: a trained encoder, whose number of layers is a multiple of the student's, with as many
        heads. It is in evaluation mode while it is asked, is not trained, and is no part of a
        checkpoint.
    """

    models = ("token_classifier", "classifier")
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
        own: Any = model
        theirs, mine = len(blocks_of(self.teacher)), len(blocks_of(own))
        layers = len(layer_map(theirs, mine))
        if len(self.projections):
            return
        for _ in range(1 if self.options.shared else layers):
            made = nn.Linear(own.dim, self.teacher.dim, bias=False)
            self.projections.append(beside(made, model))

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Any:
        """The batch with what the layers of the teacher hold; every real token is a target."""
        real = batch.padding
        if real is None:
            real = torch.ones(batch.inputs.shape[:2], dtype=torch.bool, device=batch.inputs.device)
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
        return held(model, batch)

    def loss(self, answers: Any, batch: Batch) -> Tensor:
        """Both sums, over the layers that learn and the real tokens."""
        o, real = self.options, batch.targets != UNSCORED
        teacher = sum(name.startswith("scores") for name in batch.kept)  # type: ignore[attr-defined]
        g = layer_map(teacher, len(answers.scores))
        total = upcast(answers.vectors[0]).new_zeros(())
        for i in range(min(len(g) - 1, o.upto or len(g)) + 1):
            W = self._projection(i)
            vectors, theirs = upcast(W(answers.vectors[i])), upcast(kept(batch, f"vectors {g[i]}"))
            total = total + o.vectors * vector_loss(vectors, theirs, real)
            if i:
                mine, theirs = upcast(answers.scores[i - 1]), upcast(kept(batch, f"scores {g[i]}"))
                _check_heads(mine, theirs)
                total = total + o.maps * map_loss(mine, theirs, real, o.attention)
        return total

    def _projection(self, layer: int) -> nn.Module:
        if not len(self.projections):
            raise ValueError(
                "layer_distillation has no matrix for this student yet: call fitted(model) first, "
                "as fit does"
            )
        return self.projections[0 if self.options.shared else layer]

    def right(self, answers: Any, batch: Batch) -> Tensor:
        """None: nothing is answered that is right or wrong."""
        return torch.zeros((), dtype=torch.long, device=batch.targets.device)


def _check_heads(student: Tensor, teacher: Tensor) -> None:
    if student.shape[1] != teacher.shape[1]:
        raise ValueError(
            f"layer_distillation compares head by head, and the teacher has {teacher.shape[1]} in "
            f"a layer, the student {student.shape[1]}; take a student with as many"
        )
