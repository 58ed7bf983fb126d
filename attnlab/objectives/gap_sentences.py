r"""Gap sentences: whole sentences are taken out, and the model writes them from the rest.

Of the S sentences of a text, 30 % are taken out, and in the place of each stands one mask. An
encoder reads the text with its gaps; a decoder writes the missing sentences one after the other, as
if it wrote a summary:

$$\text{source}: \; s_1 \, \langle\text{mask}\rangle \, s_3 \, s_4 \qquad
  \text{target}: \; s_2 \,\text{end}$$

A summary repeats what the whole text says. So the sentences are taken out that have most words in
common with the rest ("principal"), measured by ROUGE-1. Let $a_w$ be how often the word w stands in
the sentences taken out, and $r_w$ how often in the rest:

$$F_1 = \frac{2 \sum_w \min(a_w, r_w)}{\sum_w a_w + \sum_w r_w}$$

The sentences are scored one by one, and the best are taken (``sequential=False``); or one after the
other is added to those that are taken out already, whichever gives the highest $F_1$ together.
As in ROUGE, a word counts as often as it stands there; with ``unique=True`` only once. Without
``unique`` the denominator is n, the same for all sentences: a longer sentence has more words to
share and is taken first. With unique words this holds less.

Two controls: sentences at random, and the first of the text.

LongT5 is pretrained by principal sentences, too, since with them long texts have long targets.

``naive``       row by row, word by word.
``vectorised``  all rows at once; sequential choice goes through as many steps as sentences.

Common mistakes: a sentence compared with the whole text, itself included; the sentences in the
order of their scores, where that of the text is wanted; one mask for neighbouring gaps.

Departures.
- where no ends of sentences are given, ``length`` tokens are a sentence
- PEGASUS's code adds noise to the scores, so that a text has other gaps when it is read again

Zhang, Zhao, Saleh, Liu. PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive
Summarization. ICML 2020, arXiv:1912.08777, section 3.1. Guo, Ainslie, Uthus, Ontañón, Ni, Sung,
Yang. LongT5: Efficient Text-To-Text Transformer for Long Sequences. Findings of NAACL 2022,
arXiv:2112.07916.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.batches import Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens, lengths, lowest, real_tokens, uniform
from attnlab.objectives.rouge import principal, rouge_1, word_counts
from attnlab.objectives.sources import from_source, packed, padded, with_end

# ---- options


@dataclass(frozen=True, kw_only=True)
class GapSentencesOptions(Options):
    """Which sentences are taken out.

    rate: the share of the sentences of each row, at least one; one is kept.
    choose: "principal", those with most words in common with the rest, "random" or the first,
        "lead".
    sequential: principal sentences are chosen one after the other, not each by itself.
    unique: of principal sentences each word counts once.
    ends: the tokens that end a sentence, such as those with a full stop.
    length: not given ends, the tokens of a sentence; 5 if neither is given.
    """

    rate: float = 0.3
    choose: Literal["principal", "random", "lead"] = "principal"
    sequential: bool = False
    unique: bool = False
    ends: Sequence[int] = ()
    length: Size | None = None

    def check(self) -> None:
        check_share("rate", self.rate)
        if self.ends and self.length is not None:
            raise ValueError(
                f"give ends={self.ends} or length={self.length}: a sentence ends with one of these "
                "tokens, or after so many of them"
            )
        for name in ("sequential", "unique"):
            if getattr(self, name) and self.choose != "principal":
                raise ValueError(
                    f"{name}=True says how principal sentences are chosen, and these are "
                    f"choose={self.choose!r}; leave it out"
                )

    def begins(self, tokens: Int[Tensor, "b n"]) -> Bool[Tensor, "b n"]:
        """Where a sentence begins."""
        place = torch.arange(tokens.shape[1]).expand_as(tokens)
        if not self.ends:
            return place % (self.length or 5) == 0
        ended = torch.isin(tokens, torch.tensor(self.ends)).roll(1, dims=1)
        return ended | (place == 0)

    def gaps(self, sentences: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """How many of so many sentences are taken out."""
        most = (sentences - 1).clamp(min=0)
        return (sentences * self.rate).round().long().clamp(min=1).minimum(most)


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: GapSentencesOptions = GapSentencesOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p over the missing sentences, written row by row."""
    ids, real = Ids.of(vocab), real_tokens(batch)
    begins, noise = options.begins(batch.inputs), uniform(batch.inputs.shape, generator)
    sources, targets = list[list[int]](), list[list[int]]()
    for row in range(len(batch)):
        sentences = list[list[int]]()
        for i in range(int(real[row].sum())):
            sentences += [[]] if begins[row, i] else []
            sentences[-1].append(int(batch.inputs[row, i]))
        count = int(options.gaps(torch.tensor(len(sentences))))
        gone = _chosen(sentences, count, noise[row].tolist(), options)
        kept = [[ids.mask] if i in gone else sentence for i, sentence in enumerate(sentences)]
        missing = [x for i in sorted(gone) for x in sentences[i]]
        sources.append([x for part in kept for x in part] + [ids.end] * bool(gone))
        targets.append(missing + [ids.end] * bool(gone))
    asked = from_source(batch, *padded(sources), *padded(targets), ids.start)
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: GapSentencesOptions = GapSentencesOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return GapSentences(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


class Ids(NamedTuple):
    """The tokens after those of the text."""

    mask: int
    end: int
    start: int

    @classmethod
    def of(cls, vocab: int) -> "Ids":
        return cls(vocab, vocab + 1, vocab + 2)


def _chosen(
    sentences: list[list[int]], count: int, noise: list[float], options: GapSentencesOptions
) -> set[int]:
    """Which sentences are taken out, by the equation."""
    words, whole = [Counter(x) for x in sentences], Counter(x for part in sentences for x in part)
    every = range(len(sentences))
    if options.choose == "lead":
        return {*every[:count]}
    if options.choose == "random":
        return {*sorted(every, key=noise.__getitem__)[:count]}
    gone, taken = list[int](), Counter[int]()
    for _ in range(count):
        scores = {
            i: rouge_1(taken + words[i], whole - taken - words[i], options.unique)
            for i in every
            if i not in gone
        }
        gone.append(max(scores, key=scores.__getitem__))
        taken = taken + words[gone[-1]] if options.sequential else taken
    return {*gone}


# ---- module


class GapSentences(CrossEntropy):
    """Takes sentences out of each row, for an encoder-decoder that writes them.

    vocab: how many tokens the text has; the model needs three more, the mask, the end and the
        beginning of what is written.
    """

    models, specials = ("encoder_decoder",), 3

    def __init__(self, vocab: Size, options: GapSentencesOptions = GapSentencesOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        """The longest source or target of texts of that length: all but one token, and the end."""
        return length + 1

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Source and target; notes ``hidden``, the tokens of the missing sentences (b, n)."""
        check_tokens("gap_sentences", batch, self.vocab)
        lengths(batch)
        tokens, real, ids = batch.inputs, real_tokens(batch), Ids.of(self.vocab)
        begins = self.options.begins(tokens)
        sentence = begins.long().cumsum(-1) - 1
        count = self.options.gaps((begins & real).sum(-1))
        gone = self._gone(tokens, real, sentence, count, uniform(tokens.shape, generator))
        hidden = note("hidden", gone.gather(1, sentence) & real)
        any_gap = hidden.any(-1, keepdim=True)
        read = packed(tokens.masked_fill(hidden & begins, ids.mask), real & (~hidden | begins))
        source = with_end(*read, any_gap, ids.end)
        target = with_end(*packed(tokens, hidden), any_gap, ids.end)
        return from_source(batch, *source, *target, ids.start)

    def _gone(
        self, tokens: Tensor, real: Tensor, sentence: Tensor, count: Tensor, noise: Tensor
    ) -> Bool[Tensor, "b s"]:
        """Which sentences are taken out."""
        o = self.options
        if o.choose == "principal":
            counts = word_counts(tokens, real, sentence)
            return principal(counts, count, sequential=o.sequential, unique=o.unique)
        place = torch.arange(int(sentence.amax()) + 1)
        if o.choose == "lead":
            return place < count[:, None]
        there = place <= sentence.masked_fill(~real, -1).amax(-1, keepdim=True)
        return lowest(noise[:, : len(place)], there, count)


# ---- card

n, b = letters("n b")

CARD = Card(
    __doc__,
    name="gap_sentences",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.3 * n + b,
        hidden="30 % of the sentences, those with most in common with the rest",
        models=GapSentences.models,
    ),
    options=GapSentencesOptions,
    build=GapSentences,
    variants=(
        {"sequential": True},
        {"unique": True},
        {"sequential": True, "unique": True, "rate": 0.6},
        {"choose": "random", "length": 3},
        {"choose": "lead"},
        {"ends": (1, 2)},
    ),
    aliases=("pegasus", "gsg"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.tensor([[1, 2, 0, 3, 4, 0, 1, 4, 0, 5, 6, 0]])  # four sentences, 0 ends them
    >>> objective = attnlab.build("gap_sentences", vocab=7, ends=(0,))
    >>> asked = objective.prepare(Batch(tokens, tokens))
    >>> asked.targets.tolist()  # 1 and 4 stand in others, too; then the end
    [[1, 4, 0, 8]]
    >>> asked.source.tolist()  # 7 is the mask
    [[1, 2, 0, 3, 4, 0, 7, 5, 6, 0, 8]]
    """,
)
