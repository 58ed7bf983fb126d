r"""Text to text: tasks and pretraining are texts to read and texts to write.

A task names itself at the beginning of its question, and its answer is written, whatever it is: a
sentence, a number, the name of a class. A text without a question has spans cut out, as in
``span_corruption``. Both are rows of the same batch, for the same encoder-decoder and the same
loss:

$$\begin{aligned}
  \text{answered}&: \; \text{sorting: c a b} \mid \text{end} \;\to\; \text{a b c end} \\
  \text{restored}&: \; \text{the farmer } \langle 0 \rangle \text{ the dog end} \;\to\;
      \langle 0 \rangle \text{ sees end}
\end{aligned}$$

$$\ell = -\sum_{\text{rows}} \sum_t \log p(y_t \mid y_1 \dots y_{t-1}, \text{source})$$

T5 first restores texts and then learns the tasks. ExT5 mixes them from the beginning, R rows of
text for each row of a task: ``attnlab.tasks.mixture`` draws such rows, ``ratio`` is R.

What is a question follows from what the task scores. Where its first token is not answered, all up
to the first scored place is the question, and the scored targets are the answer. Where the task
scores everything, the row is a text. A classifier of T5 writes the name of a class, so an answer
may be no name at all: that counts as wrong.

``naive``       row by row, token by token.
``vectorised``  all rows at once.

Common mistakes: a question without the name of its task, where two tasks ask the same; answers
compared as classes, which forgets those that are no class; the mean of each row's loss, which makes
a token of a short answer count more.

Departures.
- a row counts as much as it has tokens of answer, as in T5's code

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu. Exploring the Limits of Transfer
Learning with a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683, section 2.4.
Aribandi, Tay, Schuster, Rao, Zheng, Mehta, Zhuang, Tran, Bahri, Ni, Gupta, Hui, Ruder, Metzler.
ExT5: Towards Extreme Multi-Task Scaling for Transfer Learning. ICLR 2022, arXiv:2111.10952.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_targets, check_text, check_tokens, lengths, real_tokens
from attnlab.objectives.sources import from_source, packed, padded, with_end
from attnlab.objectives.spans import Ids, SpanOptions, corrupted, noise_places

# ---- options


@dataclass(frozen=True, kw_only=True)
class TextToTextOptions(SpanOptions):
    """How much is cut out of texts without a question, see ``attnlab.objectives.spans``."""


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: TextToTextOptions = TextToTextOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p over the answers and the spans, written row by row."""
    ids = Ids.of(vocab, options)
    cuts = noise_places(whole_texts(batch)[1], options, generator).tolist()
    sources, targets = list[list[int]](), list[list[int]]()
    for row, (tokens, asked, real) in enumerate(
        zip(batch.inputs.tolist(), batch.targets.tolist(), real_tokens(batch).tolist(), strict=True)
    ):
        answer = [x for x in asked if x != UNSCORED]
        read, said, gaps = list[int](), list[int](), 0
        if asked[0] != UNSCORED:
            text = [tokens[0], *answer]
            for i, token in enumerate(text):
                if cuts[row][i] and not cuts[row][i - 1]:
                    read.append(ids.sentinel + gaps)
                    said.append(ids.sentinel + gaps)
                    gaps += 1
                (said if cuts[row][i] else read).append(token)
        else:
            last = next((i for i, x in enumerate(asked) if x != UNSCORED), len(tokens))
            read = [x for i, x in enumerate(tokens) if real[i] and i <= last]
            said = answer
        sources.append(read + [ids.end] * bool(said))
        targets.append(said + [ids.end] * bool(said))
    found = from_source(batch, *padded(sources), *padded(targets), ids.start)
    return one_by_one(logits_of(model, found), found.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: TextToTextOptions = TextToTextOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return TextToText(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def whole_texts(batch: Batch) -> tuple[Int[Tensor, "b n1"], Bool[Tensor, "b n1"]]:
    """The first token of each row and its targets, and where this is a text without a question:
    no place of a row whose first token is not answered."""
    scored = batch.targets != UNSCORED
    is_text = scored[:, :1]
    text = torch.cat([batch.inputs[:, :1], batch.targets.masked_fill(~scored, 0)], dim=1)
    return text, torch.cat([is_text, scored & is_text], dim=1)


# ---- module


class TextToText(CrossEntropy):
    """Answers the questions of each row, and restores texts that have none.

    vocab: how many tokens the texts have; the model needs ``sentinels`` + 2 more.
    """

    models = ("encoder_decoder",)

    def __init__(self, vocab: Size, options: TextToTextOptions = TextToTextOptions()) -> None:
        super().__init__()
        self.vocab, self.options, self.specials = vocab, options, options.sentinels + 2

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        """The longest source or target of rows of that length: question or answer and its end."""
        return length + 2

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Source and target; notes ``hidden`` (b, n + 1), where texts are cut out, and
        ``answered`` (b,), the rows that have a question."""
        check_text("text_to_text", batch)
        check_tokens("text_to_text", batch, self.vocab)
        check_targets("text_to_text", batch, self.vocab)
        lengths(batch)
        ids, real = Ids.of(self.vocab, self.options), real_tokens(batch)
        text, of_text = whole_texts(batch)
        scored = batch.targets != UNSCORED
        check_answers(scored)
        asks = note("answered", scored.any(-1) & ~of_text[:, 0])[:, None]
        cut = note("hidden", noise_places(of_text, self.options, generator))
        restored = corrupted(text, of_text, cut, ids)
        question = real & (scored.long().cumsum(-1) - scored.long() == 0)
        read = with_end(*packed(batch.inputs, question), asks, ids.end)
        said = with_end(*packed(batch.targets, scored & asks), asks, ids.end)
        both = zip(restored, (*read, *said), strict=True)
        source, source_real, target, written = (_either(~of_text[:, :1], *two) for two in both)
        return from_source(batch, source, source_real, target, written, ids.start)


def check_answers(scored: Bool[Tensor, "b n"]) -> None:
    """A ValueError for a row that asks again after its answer."""
    begins = scored & ~nn.functional.pad(scored[:, :-1], (1, 0))
    if (begins.sum(-1) > 1).any():
        raise ValueError(
            "text_to_text reads one question in each row and writes one answer, and this task has "
            "scored places that are apart; take another objective"
        )


def _either(answered_rows: Bool[Tensor, "b 1"], restored: Tensor, answered: Tensor) -> Tensor:
    """The rows of one or the other, both widened to the same width."""
    width = max(restored.shape[1], answered.shape[1])
    one, other = (nn.functional.pad(x, (0, width - x.shape[1])) for x in (restored, answered))
    return torch.where(answered_rows, other, one)


# ---- card

n, b = letters("n b")

CARD = Card(
    __doc__,
    name="text_to_text",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.2 * n + b,
        hidden="the answer; of a text without a question 15 %, in spans",
        models=TextToText.models,
    ),
    options=TextToTextOptions,
    build=TextToText,
    variants=({"rate": 0.5, "span": 2},),
    aliases=("ext5", "multi_task"),
    demo="""
    >>> from attnlab.tasks.mixture import Mixture
    >>> problem = Mixture((attnlab.tasks.task("sorting", items=4), attnlab.tasks.task("addition")))
    >>> objective = attnlab.build("text_to_text", vocab=problem.vocab)
    >>> asked = objective.prepare(problem.batch("train", 2, 3))
    >>> def words(row, real):
    ...     return " ".join(problem.tokens([x for x in row[real].tolist() if x < problem.vocab]))
    >>> for i in (0, 1):
    ...     print(words(asked.source[i], asked.source_padding[i]))
    ...     print("→", words(asked.targets[i], asked.padding[i]))
    sorting: n m o e |
    → e m n o
    addition: 8 8 2 5 + 6 5 8 1 = |
    → 1 5 4 0 6
    """,
)
