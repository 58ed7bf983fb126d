r"""WKLM: names are replaced by other names of the same kind, and the model says which were.

A text names entities: persons, places, in the documentation of a language its modules and
exceptions. Some of them are replaced by others of the same type, so that grammar and kind still
fit: "open raises ValueError" in the place of "open raises OSError". Only who knows what is true can
tell. The answer for an entity at place i is read from the vectors beside it, not from its own:

$$s_i = w^\top [h_{i-1}\,;\, h_{i+1}] + b,\qquad
  \ell = -\sum_{i \in E} \log \sigma(\pm s_i) - \sum_{i \in M} \log p(x_i \mid \hat x)$$

with + where the entity was replaced. E are the entities with a token on either side. Two that
follow one another are never both replaced, so that each can be told by what stands around it. M are
masked tokens outside of the entities, 5 % of them, as in ``masked_lm``: a text teaches words, too.

``types`` lists the tokens of each type; ``attnlab.tasks.entities`` has the names of Python's
standard library by their kinds. Without it every token is an entity, and all are of one type.

``naive``       entity by entity, token by token.
``vectorised``  all places at once.

Common mistakes: an entity replaced by itself and called replaced; one of another type, which
grammar gives away; masked tokens beside an entity whose neighbours have to answer for it.

Departures.
- an entity is one token, where the paper's mentions are of several
- masks alone: no token of M is kept or replaced
- the paper masks 5 %, its code 15 % (``masked=0.15``); its code reads the first token of the
  mention, too (``first=True``)

Xiong, Du, Wang, Stoyanov. Pretrained Encyclopedia: Weakly Supervised Knowledge-Pretrained Language
Model. ICLR 2020, arXiv:1912.09637, section 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.encodings import beside, check_encoder
from attnlab.objectives.hiding import check_tokens, lowest, real_tokens, share_of, uniform
from attnlab.objectives.replacing import Types, alternating

# ---- options


@dataclass(frozen=True, kw_only=True)
class WKLMOptions(Options):
    """Entities.

    types: the tokens of each type, two or more; not given, all tokens are of one type.
    rate: the share of the entities that are replaced, at most a half.
    masked: the share of the other tokens that are masked.
    first: the answer is read from the entity's own vector, too.
    """

    types: Sequence[Sequence[int]] = ()
    rate: float = 1 / 3
    masked: float = 0.05
    first: bool = False

    def check(self) -> None:
        for name in ("rate", "masked"):
            check_share(name, getattr(self, name))
        if self.rate > 1 / 2:
            raise ValueError(
                f"rate should be at most 0.5, as no two neighbours are replaced, got {self.rate}"
            )
        tokens = [token for own in self.types for token in own]
        if len({*tokens}) < len(tokens):
            raise ValueError("a token of types stands in two of them, or twice in one")
        if any(len(own) < 2 for own in self.types):
            raise ValueError(
                "a type of one token has nothing to replace it; leave such types out of types"
            )


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "WKLM",
) -> tuple[Tensor, int]:  # fmt: skip
    """Both losses, place after place."""
    asked: Any = objective.prepare(batch, generator)
    net: Any = model
    h = net.encode(asked.inputs, padding=asked.padding)
    losses = [upcast(h).new_zeros(())]
    for row, i in (asked.targets != UNSCORED).nonzero().tolist():
        target = int(asked.targets[row, i])
        if target < objective.vocab:
            losses.append(-upcast(net.logits(h[row, i])).softmax(-1)[target].log())
        else:
            own = [h[row, i]] if objective.options.first else []
            score = objective.head(torch.cat([h[row, i - 1], h[row, i + 1], *own]))[0]  # type: ignore[misc]
            replaced = torch.sigmoid(upcast(score))
            losses.append(-(replaced if target > objective.vocab else 1 - replaced).log())
    return torch.stack(losses).sum(), len(losses) - 1


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "WKLM",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all places at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class Answers(NamedTuple):
    """The logits of all tokens at each place, and a number that is above 0 for "replaced"."""

    words: Float[Tensor, "b n v"]
    scores: Float[Tensor, "b n"]


class WKLM(CrossEntropy):
    """Replaces entities by others of their type, and masks some of the other tokens.

    vocab: how many tokens the text has. The mask is the token after them, so the model needs one
        more. The head is built for the width of the model and trained with it.
    """

    models, specials = ("token_classifier",), 1
    verdicts: ClassVar[tuple[str, ...]] = ("true", "replaced")
    """What the targets ``vocab`` and ``vocab`` + 1 say of an entity."""

    def __init__(self, vocab: Size, options: WKLMOptions = WKLMOptions()) -> None:
        super().__init__()
        wrong = [t for own in options.types for t in own if not 0 <= t < vocab]
        if wrong:
            raise ValueError(f"types has the token {wrong[0]}, and the text has vocab={vocab}")
        self.vocab, self.options = vocab, options
        self.types = Types.of(vocab, options.types)
        self.head: nn.Linear | None = None

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def fitted(self, model: nn.Module) -> None:
        check_encoder("wklm", model)
        if self.head is None:
            width = int(model.dim)  # type: ignore[arg-type]
            self.head = beside(nn.Linear((2 + self.options.first) * width, 1), model)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The text with some entities replaced and some other tokens masked. The target of a masked
        token is what it was, that of an entity ``vocab``, or ``vocab`` + 1 if it was replaced.

        Notes ``scored``, ``hidden`` (the masks) and ``replaced``, each (b, n), True there.
        """
        check_tokens("wklm", batch, self.vocab)
        tokens, real = batch.inputs, real_tokens(batch)
        known = (self.types.place[tokens] >= 0) & real
        around = F.pad(real, (1, 1))
        entity = known & around[:, :-2] & around[:, 2:]
        order, which, chosen = uniform(torch.Size((3, *tokens.shape)), generator)
        replaced = note("replaced", alternating(entity, chosen, self.options.rate))
        outside = real & ~known
        hidden = lowest(order, outside, share_of(outside, self.options.masked))
        note("scored", note("hidden", hidden) | entity)
        read = tokens.masked_scatter(replaced, self.types.other(tokens[replaced], which[replaced]))
        targets = torch.where(entity, self.vocab + replaced.long(), tokens)
        asked: Batch = Asked.of(
            batch,
            inputs=read.masked_fill(hidden, self.vocab),
            targets=targets.masked_fill(~(entity | hidden), UNSCORED),
            entity=entity,
        )
        return asked

    def answers(self, model: nn.Module, batch: Batch) -> Answers:  # type: ignore[override]
        if self.head is None:
            raise ValueError("wklm has no head yet: call objective.fitted(model) first")
        net: Any = model
        h = net.encode(batch.inputs, padding=batch.padding)
        around = F.pad(h, (0, 0, 1, 1))
        read = [around[:, :-2], around[:, 2:], *([h] if self.options.first else [])]
        return Answers(net.logits(h), self.head(torch.cat(read, dim=-1))[..., 0])

    def loss(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        entity = kept(batch, "entity") & (batch.targets != UNSCORED)
        hidden = (batch.targets != UNSCORED) & ~entity
        words, scores = upcast(answers.words[hidden]), upcast(answers.scores[entity])
        replaced = (batch.targets[entity] > self.vocab).to(scores)
        found = F.binary_cross_entropy_with_logits(scores, replaced, reduction="sum")
        return found + F.cross_entropy(words, batch.targets[hidden], reduction="sum")

    def right(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        """How many entities are judged rightly, and masked tokens guessed."""
        judged = (answers.scores > 0) == (batch.targets > self.vocab)
        guessed = answers.words.argmax(-1) == batch.targets
        return torch.where(kept(batch, "entity"), judged, guessed).sum()


# ---- card

n, b = letters("n b")

CARD = Card(
    __doc__,
    name="wklm",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=n - 2 * b,
        hidden="which names were replaced by others of their kind, and 5 % of the other tokens",
        models=WKLM.models,
        uniform=sympy.log(2),
        beside=1,
    ),
    options=WKLMOptions,
    build=WKLM,
    variants=(
        {"types": ((0, 1, 2), (5, 6))},
        {"types": ((0, 1, 2), (5, 6)), "first": True, "masked": 0.5},
        {"rate": 0.5},
    ),
    aliases=("entity_replacement",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.tensor([[0, 7, 1, 7, 2, 7, 0, 7]] * 50)
    >>> objective = attnlab.build("wklm", vocab=8, types=((0, 1, 2),), masked=0)
    >>> asked = objective.prepare(Batch(tokens, tokens))
    >>> sorted({*asked.inputs[:, 2].tolist()}), {*asked.inputs[:, 1].tolist()}  # entities change
    ([0, 1, 2], {7})
    >>> changed = asked.inputs != tokens
    >>> bool((changed[:, 2] & changed[:, 4]).any())  # but no two in a row
    False
    """,
)
