r"""Connectionist temporal classification: words and blanks, wherever they fit into more places.

The decoder has T places, here two for each word of the source, which is more than the target has
words. It writes a word or a blank at each, all at once. A row $a$ of T symbols is read by taking
equal neighbours for one and then leaving the blanks out: a a _ b _ b is a b b. The loss sums over
all rows, the *alignments*, that are read as the target:

$$\ell = -\log \sum_{a \,:\, \mathrm{collapse}(a) = Y} \; \prod_{t=1}^{T} p(a_t \mid X)$$

So no word has a place that it must stand at, and no length must be known: a model whose words all
stand one place too far to the right, which ``nat`` counts as wrong, is right here. What words have
to do with each other is lost as it is in ``nat``, since the places do not see each other's symbols.

``naive``      all alignments, one by one. There are $\binom{T + N - r}{2N}$ of a target of N words
               of which r equal the word before.
``recursive``  over the places: which part of the target has been read so far.
``fused``      PyTorch's ``ctc_loss``.

Common mistakes: a blank that is a word of the text; the length of the batch in the place of each
row's own; a target that needs more places than it has, whose loss is infinite; equal neighbours of
the target, which need a blank between them.

Departures.
- the decoder reads masks, where Libovický and Helcl split each vector of the encoder in as many
- blank and mask are one token, the one that is read and the other that is written

Libovický, Helcl. End-to-End Non-Autoregressive Neural Machine Translation with Connectionist
Temporal Classification. EMNLP 2018, arXiv:1811.04719. Graves, Fernández, Gomez, Schmidhuber.
Connectionist Temporal Classification. ICML 2006, sections 3 and 4.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.objectives.alignments import alignments, collapse, repeats
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, called
from attnlab.objectives.parallel import check_pairs, decoder_padding, open_to_all, places

# ---- options


@dataclass(frozen=True, kw_only=True)
class CTCOptions(Options):
    """factor: how many places the decoder has for each word of the source."""

    factor: Size = 2


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: CTCOptions = CTCOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-log Σ Π p(a_t) over all alignments a of each target, and the number of its words."""
    logp, targets, length, words = _read(model, batch, vocab, options)
    losses = [logp.new_zeros(())]
    rows = zip(logp, targets.tolist(), length.tolist(), words.tolist(), strict=True)
    for row, target, t, n in rows:
        if n:
            every = torch.tensor(alignments(target[:n], t, blank=vocab))
            of_each = row[torch.arange(t), every].sum(-1)
            losses.append(-of_each.exp().sum().log())
    return torch.stack(losses).sum(), int(words.sum())


def recursive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: CTCOptions = CTCOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes it place by place, for the target with a blank before, between and after its
    words."""
    logp, targets, length, words = _read(model, batch, vocab, options)
    b, n = targets.shape
    symbols = torch.full((b, 2 * n + 1), vocab)
    symbols[:, 1::2] = targets.clamp(min=0)
    jumps = F.pad(symbols[:, 2:] != symbols[:, :-2], (2, 0))  # over a blank, to another word
    never = torch.finfo(logp.dtype).min / 4
    alpha = logp.new_full((b, 2 * n + 1), never)
    alpha[:, 0] = 0  # before the first place
    found = alpha
    for t in range(logp.shape[1]):
        one = F.pad(alpha[:, :-1], (1, 0), value=never)
        two = F.pad(alpha[:, :-2], (2, 0), value=never).masked_fill(~jumps, never)
        alpha = torch.stack([alpha, one, two]).logsumexp(0) + logp[:, t].gather(1, symbols)
        found = torch.where((length == t + 1)[:, None], alpha, found)
    last = torch.stack([2 * words, (2 * words - 1).clamp(min=0)], 1)
    loss = -found.gather(1, last).logsumexp(1)
    return loss[words > 0].sum(), int(words.sum())


def fused(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: CTCOptions = CTCOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes it by one call of PyTorch."""
    return CTC(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "recursive": recursive, "fused": fused}


def _read(
    model: nn.Module, batch: Batch, vocab: int, options: CTCOptions
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log probabilities (b, T, symbols), targets (b, n), and of each row how many places and how
    many words it has, both (b,)."""
    objective = CTC(vocab, options)
    asked = objective.prepare(batch)
    logp = upcast(objective.answers(model, asked)).log_softmax(-1)
    words = (asked.targets != UNSCORED).sum(-1)
    return logp, asked.targets, kept(asked, "places"), words


def uniform_loss(batch: Batch, symbols: int) -> float:
    """The loss of each word of a batch that is prepared, for a model to which all symbols are
    equally likely: T ln(symbols) less the logarithm of the number of alignments."""
    words = (batch.targets != UNSCORED).sum(-1).tolist()
    rows = zip(kept(batch, "places").tolist(), words, repeats(batch.targets).tolist(), strict=True)
    loss = sum(
        t * math.log(symbols) - math.log(math.comb(t + n - r, 2 * n)) for t, n, r in rows if n
    )
    return loss / sum(words)


# ---- module


class CTC(CrossEntropy):
    """Gives the decoder ``factor`` places for each word of the source.

    vocab: how many tokens the task has. The blank is the token after them, so the model needs one
        more.
    """

    models, orders, specials = ("encoder_decoder",), "given", 1

    def __init__(self, vocab: Size, options: CTCOptions = CTCOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        """The places for the longest source."""
        return self.options.factor * length

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with T masks for the decoder, and the words of each target.

        Notes ``hidden`` and ``scored``, the words of the targets (b, n), and ``places``, how many
        each row has (b,). Raises ValueError for a target that does not fit into its places.
        """
        check_pairs("ctc", batch, self.vocab)
        real = note("scored", places("ctc", batch))
        note("hidden", real)
        targets = batch.targets.masked_fill(~real, UNSCORED)
        source: Any = batch.source
        padding = batch.source_padding
        if padding is None:
            padding = torch.ones(source.shape, dtype=torch.bool)
        count = note("places", self.options.factor * padding.sum(-1))
        needed = real.sum(-1) + repeats(targets)
        if bool((needed > count).any()):
            row = int((needed > count).nonzero()[0, 0])
            raise ValueError(
                f"a target of {int(real[row].sum())} words, of which {int(repeats(targets)[row])} "
                f"equal the word before, needs {int(needed[row])} places, and its source has "
                f"{int(padding[row].sum())} words, which give {int(count[row])}; take a larger "
                f"factor than {self.options.factor}"
            )
        width = max(1, int(count.amax())) if len(count) else 1
        inputs = torch.full((len(count), width), self.vocab)
        return Asked.of(
            batch,
            inputs=inputs,
            targets=targets,
            padding=decoder_padding(torch.arange(width) < count[:, None]),
            structure=open_to_all(inputs),
            places=count,
        )

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        """Logits at each place, (b, T, vocab + 1)."""
        logits: Tensor = called(model, batch)
        if logits.shape != (*batch.inputs.shape, self.vocab + 1):
            raise ValueError(
                f"for {batch.inputs.shape[1]} places the model should return logits of shape "
                f"{(*batch.inputs.shape, self.vocab + 1)}, words and a blank; it returned "
                f"{tuple(logits.shape)}"
            )
        return logits

    def loss(self, answers: Float[Tensor, "b T v"], batch: Batch) -> Tensor:
        """The sum over the targets that have words."""
        exact = upcast(answers)
        words = (batch.targets != UNSCORED).sum(-1)
        rows = words > 0
        if not bool(rows.any()):
            return exact.sum() * 0
        logp = exact[rows].log_softmax(-1).transpose(0, 1)
        targets, count = batch.targets[rows].clamp(min=0), kept(batch, "places")[rows]
        return F.ctc_loss(logp, targets, count, words[rows], blank=self.vocab, reduction="sum")

    def right(self, answers: Float[Tensor, "b T v"], batch: Batch) -> Tensor:
        """How many words of the targets stand at their place in what the likeliest symbols say."""
        found = 0
        rows = zip(answers.argmax(-1), kept(batch, "places").tolist(), batch.targets, strict=True)
        for symbols, count, target in rows:
            said = collapse(symbols[:count].tolist(), self.vocab)
            found += sum(a == b for a, b in zip(said, target.tolist(), strict=False))
        return torch.tensor(found)


# ---- card

(s,) = letters("s")

CARD = Card(
    __doc__,
    name="ctc",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=s,
        hidden="the whole target, and where its words stand",
        models=CTC.models,
        uniform=uniform_loss,
        source=True,
    ),
    options=CTCOptions,
    build=CTC,
    variants=({"factor": 3},),
    demo="""
    >>> from attnlab.objectives.alignments import alignments, collapse
    >>> collapse([1, 1, 0, 2, 0, 2], blank=0)
    (1, 2, 2)
    >>> alignments([1, 2], 3, blank=0)  # of the word 1 and the word 2 in three places
    [(0, 1, 2), (1, 0, 2), (1, 1, 2), (1, 2, 0), (1, 2, 2)]
    """,
)
