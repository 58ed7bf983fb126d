r"""ELECTRA: a small model fills the gaps of a text, and a larger one says which tokens are not the
text's own.

A masked language model answers at the 15 % of a text that are hidden. Here every token is a
question. A small masked language model, the generator $G$, reads the text with masks at the places
$M$ and draws a token for each; the model itself, the discriminator $D$, reads the result
$\tilde{x}$ and says at each place whether the token was replaced:

$$\tilde{x}_i \sim p_G(\cdot \mid \hat{x})\ (i \in M),\quad \tilde{x}_i = x_i\ (i \notin M),\qquad
  r_i = [\tilde{x}_i \ne x_i]$$

$$\mathcal{L} = \frac{1}{|M|}\sum_{i \in M} -\log p_G(x_i \mid \hat{x})
  + \lambda\,\frac{1}{n} \sum_{i=1}^{n} -\log p_D(r_i \mid \tilde{x}),\qquad \lambda = 50$$

A token that the generator guessed rightly is not replaced, $r_i = 0$: the question is whether a
token is the text's, not where it comes from. Drawing tokens passes no gradient, so the generator
learns from its own loss alone and does not try to deceive. A discriminator that says 0 everywhere
has loss $50 \ln 2$.

The generator is thrown away in the end. It is small, as a good one would leave nothing to find. As
fewer than 15 % are replaced, who always says "the text's own" is right at more than 85 %: look at
the loss rather than at this share.

``naive``       place after place.
``vectorised``  all places at once.

Common mistakes, the first two of the authors' own code, which change what is learned:

- places are drawn with replacement (of 19 draws among 128 places 17.7 differ in the mean), and the
  tokens drawn for one place are *averaged*: 10 and 20 become token 15, which nobody proposed
- only 85 % of the places that the generator answers show a mask
- the label is 1 wherever something was drawn, also where it is the text's own token
- a loss of the discriminator at the hidden places alone, which gives up what is new here

Departures.
- generator and discriminator have no embedding in common, which the paper shares
- the generator has fewer heads of the model's own width, and as many layers
- no token beyond the text's own can be proposed; the mask is none of them

Clark, Luong, Le, Manning. ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
Generators. ICLR 2020, arXiv:2003.10555, sections 2 and 3.2.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.hiding import (
    check_tokens,
    lowest,
    real_tokens,
    sampled,
    share_of,
    uniform,
)

# ---- options


@dataclass(frozen=True, kw_only=True)
class ElectraOptions(Options):
    """Two losses.

    rate: the share of the real tokens of each row that the generator fills in.
    weight: of the discriminator's loss, beside the generator's.
    width: of the generator, as a share of the model's; in whole heads.
    """

    rate: float = 0.15
    weight: float = 50.0
    width: float = 0.25

    def check(self) -> None:
        check_share("rate", self.rate)
        check_share("width", self.width)
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"weight should be 0 or more, got {self.weight}")


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Electra",
) -> tuple[Tensor, int]:  # fmt: skip
    """Both losses, place after place."""
    asked = objective.prepare(batch, generator)
    hidden, noise, weight = (kept(asked, name) for name in ("hidden", "noise", "weight"))
    p = objective.proposed(asked).softmax(-1)
    read = asked.inputs.clone()
    for row, i in hidden.nonzero().tolist():
        passed = p[row, i].detach().cumsum(0) / p[row, i].detach().sum()
        read[row, i] = sum(bool(so_far <= noise[row, i]) for so_far in passed[:-1])
    scores = model(read, padding=asked.padding)
    losses = [p.new_zeros(())]
    for row, i in (asked.targets != UNSCORED).nonzero().tolist():
        replaced = torch.sigmoid(scores[row, i, 0])
        right = replaced if read[row, i] != asked.targets[row, i] else 1 - replaced
        losses.append(-objective.options.weight * right.log())
        if hidden[row, i]:
            losses.append(-weight[row] * p[row, i, asked.targets[row, i]].log())
    return torch.stack(losses).sum(), int((asked.targets != UNSCORED).sum())


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Electra",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all places at once."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def smaller(model: Any, vocab: int, width: float) -> nn.Module:
    """A token classifier like the model that proposes the tokens of the text, so much narrower."""
    config = dict(getattr(model, "config", ()))
    if not isinstance(config.get("attention"), str | list):
        raise ValueError(
            "electra builds its generator like the model, by the names of its parts, and this "
            f"{type(model).__name__} has none; give a generator: build('electra', vocab=…, "
            "small=…), a module that maps tokens (b, n) to logits (b, n, vocab)"
        )
    heads = max(1, round(config["heads"] * width))
    narrow = {"dim": config["dim"] // config["heads"] * heads, "heads": heads}
    if config.get("hidden") is not None:
        narrow["hidden"] = max(1, round(config["hidden"] * heads / config["heads"]))
    config |= narrow | {"kind": "token_classifier", "classes": vocab}
    return type(model)(**config).to(next(model.parameters()))


# ---- module


class Answers(NamedTuple):
    """What the generator proposes at each place, what the discriminator says of it (above 0:
    replaced), and whether it is."""

    proposed: Float[Tensor, "b n v"]
    scores: Float[Tensor, "b n"]
    replaced: Bool[Tensor, "b n"]


class Electra(CrossEntropy):
    """Lets a small model replace tokens of each row, and the model find them.

    vocab: how many tokens the text has. The mask is the token after them, so the model needs one
        more.
    small: the generator, any module that maps tokens (b, n) to logits (b, n, vocab). Not given, a
        narrower TinyTransformer is built like the model when that is known.
    """

    models, specials, classes = ("token_classifier",), 1, 1

    def __init__(
        self, vocab: Size, options: ElectraOptions = ElectraOptions(),
        small: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocab, self.options, self.small = vocab, options, small

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def fitted(self, model: nn.Module) -> None:
        if self.small is None:
            self.small = smaller(model, self.vocab, self.options.width)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """What the generator reads, and the text (b, n) as targets: a question at each real token.

        Notes ``hidden``, where the generator is asked, and ``scored``, both (b, n).
        """
        check_tokens("electra", batch, self.vocab)
        tokens, real = batch.inputs, real_tokens(batch)
        order, noise = uniform(torch.Size((2, *tokens.shape)), generator)
        hidden = note("hidden", lowest(order, real, share_of(real, self.options.rate)))
        note("scored", real)
        weight = real.sum() / hidden.sum()  # unread where nothing is hidden
        return Asked.of(
            batch,
            inputs=tokens.masked_fill(hidden, self.vocab),
            targets=tokens.masked_fill(~real, UNSCORED),
            hidden=hidden,
            noise=noise,
            weight=weight.expand(len(tokens)),
        )

    def proposed(self, batch: Batch) -> Tensor:
        """The generator's logits (b, n, vocab)."""
        if self.small is None:
            raise ValueError("electra has no generator yet: call objective.fitted(model) first")
        logits: Tensor = self.small(batch.inputs, padding=batch.padding)
        if logits.shape != (*batch.inputs.shape, self.vocab):
            raise ValueError(
                f"the generator should return logits (b, n, {self.vocab}) for tokens "
                f"{tuple(batch.inputs.shape)}, got {tuple(logits.shape)}"
            )
        return logits

    def answers(self, model: nn.Module, batch: Batch) -> Answers:  # type: ignore[override]
        """The answers of both models. Notes ``read``, the text with the drawn tokens (b, n)."""
        hidden, proposed = kept(batch, "hidden"), self.proposed(batch)
        drawn = sampled(proposed[hidden], kept(batch, "noise")[hidden])
        read = note("read", batch.inputs.masked_scatter(hidden, drawn))
        scores: Tensor = model(read, padding=batch.padding)
        if scores.shape != (*batch.inputs.shape, 1):
            raise ValueError(
                "the model should say one number at each place, is it replaced or not: build a "
                f"token_classifier with classes=1; it returned {tuple(scores.shape)}"
            )
        replaced = note("replaced", (read != batch.targets) & (batch.targets != UNSCORED))
        return Answers(proposed, scores[..., 0], replaced)

    def loss(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        """The generator's at hidden places, weighted to be a mean beside the discriminator's, and
        the discriminator's at all real tokens."""
        hidden, real = kept(batch, "hidden"), batch.targets != UNSCORED
        proposed, scores = (
            x if x.dtype == torch.float64 else x.float()
            for x in (answers.proposed[hidden], answers.scores[real])
        )
        guesses = F.cross_entropy(proposed, batch.targets[hidden], reduction="none")
        weight = kept(batch, "weight")[:, None].expand_as(hidden)[hidden]
        found = F.binary_cross_entropy_with_logits(
            scores, answers.replaced[real].to(scores), reduction="sum"
        )
        return (weight * guesses).sum() + self.options.weight * found

    def right(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        """At how many real tokens the discriminator is right."""
        same = (answers.scores > 0) == answers.replaced
        return (same & (batch.targets != UNSCORED)).sum()


# ---- card

n, V = letters("n V")

CARD = Card(
    __doc__,
    name="electra",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=n,
        hidden="15 % of the tokens, and which were replaced",
        models=Electra.models,
        uniform=50 * sympy.log(2) + sympy.log(V),
    ),
    options=ElectraOptions,
    build=Electra,
    variants=({"rate": 0.5, "weight": 3.0},),
    aliases=("replaced_token_detection", "rtd"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> model = attnlab.TinyTransformer(51, kind="token_classifier", classes=1, dim=32)
    >>> objective, tokens = attnlab.build("electra", vocab=50), torch.randint(50, (1, 100))
    >>> objective.fitted(model)
    >>> objective.small.dim, objective(model, Batch(tokens, tokens))[1]  # width, questions
    (8, 100)
    """,
)
