"""Writing all words of a target at once, or in a few passes, instead of one after the other.

``mask_predict`` asks a model at masks that stand in the place of the target. One pass is the
decoding of a plain non-autoregressive model (``attnlab.objectives.nat``); more passes mask again
what the model was least sure of, and need a model that has learned to read shown words
(``attnlab.objectives.cmlm``). ``ctc_decode`` reads what a model of ``attnlab.objectives.ctc`` says
at more places than there are words. ``predicted_lengths`` asks the head of an objective how long a
target is; ``mask_predict`` tries several lengths, if it is given them, and keeps the best.

Ghazvininejad, Levy, Liu, Zettlemoyer, Mask-Predict: Parallel Decoding of Conditional Masked
Language Models, EMNLP 2019, arXiv:1904.09324. Libovický, Helcl, End-to-End Non-Autoregressive
Neural Machine Translation with Connectionist Temporal Classification, EMNLP 2018, arXiv:1811.04719.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.probe import note
from attnlab.models.generate import sample
from attnlab.models.inputs import check_tensor
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.objectives.parallel import open_to_all


class Written(NamedTuple):
    """Targets, which of their places are real, and the mean log probability of their words."""

    tokens: Int[Tensor, "b n"]
    real: Bool[Tensor, "b n"]
    score: Float[Tensor, "b"]


@torch.no_grad()
def mask_predict(
    model: TinyTransformer,
    source: Int[Tensor, "b m"],
    lengths: Int[Tensor, "b"] | Int[Tensor, "b c"],
    *,
    passes: int = 1,
    source_padding: Bool[Tensor, "b m"] | None = None,
    mask: int | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Written:
    """The targets that the model writes in so many passes.

    At first all words are masks, and the model answers at each. In pass t = 1, …, passes - 1 the
    floor(N (passes - t) / passes) words of the N of a target, but at least one, that were written
    with the lowest probability are masked again, and the model answers there with the others in
    view. Words that stay keep the probability with which they were written.

    lengths: of each target, at least 1; or c candidates for each, of which the one is kept whose
        words have the highest mean log probability.
    mask: the token that stands for a word to be written; not given, the last of the vocabulary. It
        is never written.
    temperature: 0 takes the likeliest word, 1 draws each word from its probabilities, alone.

    Notes ``pass``, the words after each pass (b, n). Raises ValueError for a model without
    cross-attention, lengths beyond its ``max_len`` and a mask that is no token.
    """
    _check_writer(model, source, source_padding)
    mask = _checked_mask(model, mask)
    passes = check_integer("passes", passes, at_least=1)
    candidates = _checked_lengths(model, source, lengths)
    with mode(model, training=False):
        memory = model.encode(source, source_padding)
        found = [
            _written(model, memory, source_padding, each, passes, mask, temperature, generator)
            for each in candidates.unbind(1)
        ]
    return _best(found, int(candidates.max()))


def _written(
    model: TinyTransformer, memory: Tensor, source_padding: Tensor | None, lengths: Tensor,
    passes: int, mask: int, temperature: float, generator: torch.Generator | None,
) -> Written:  # fmt: skip
    width = int(lengths.max())
    real = torch.arange(width, device=lengths.device) < lengths[:, None]
    tokens = torch.full(real.shape, mask, device=lengths.device)
    logp = torch.zeros(real.shape, device=lengths.device, dtype=torch.float64)
    asked = real
    for t in range(passes):
        if t:
            asked = least_sure(logp, real, again(lengths, t, passes))
            tokens = tokens.masked_fill(asked, mask)
        seen = open_to_all(tokens)
        x = model.decode(tokens, real, memory, source_padding, structure=seen)
        logits = model.logits(x)
        logits[..., mask] = -torch.inf
        said = sample(logits.flatten(0, 1), temperature, None, generator).view_as(tokens)
        sure = logits.double().log_softmax(-1).gather(-1, said[..., None])[..., 0]
        tokens, logp = torch.where(asked, said, tokens), torch.where(asked, sure, logp)
        note("pass", tokens)
    score = logp.masked_fill(~real, 0).sum(-1) / lengths
    return Written(tokens.masked_fill(~real, 0), real, score)


def again(lengths: Int[Tensor, "b"], t: int, passes: int) -> Int[Tensor, "b"]:
    """How many words of each target are masked in pass t = 1, …, passes - 1: floor(N (passes - t) /
    passes), at least one."""
    return (lengths * (passes - t) // passes).clamp(min=1)


def least_sure(
    logp: Float[Tensor, "b n"], real: Bool[Tensor, "b n"], count: Int[Tensor, "b"]
) -> Bool[Tensor, "b n"]:
    """True at the ``count`` real places of each row with the lowest log probabilities."""
    order = logp.masked_fill(~real, torch.inf).argsort(dim=-1, stable=True)
    ranks = order.argsort(-1)
    return (ranks < count[:, None]) & real


def _best(found: list[Written], width: int) -> Written:
    """The candidate of each row with the highest score, filled up to the same width."""
    wide = [
        torch.stack([F.pad(each[part], (0, width - each[part].shape[1])) for each in found], 1)
        for part in (0, 1)
    ]
    scores = torch.stack([each.score for each in found], 1)
    best = scores.argmax(1)
    rows = torch.arange(len(best), device=best.device)
    return Written(wide[0][rows, best], wide[1][rows, best], scores[rows, best])


@torch.no_grad()
def predicted_lengths(
    objective: Any,
    model: TinyTransformer,
    source: Int[Tensor, "b m"],
    *,
    source_padding: Bool[Tensor, "b m"] | None = None,
    best: int = 1,
) -> Int[Tensor, "b c"]:
    """The ``best`` likeliest lengths of each target, none of them 0, the likeliest first.

    objective: one that was trained with ``length`` above 0, such as
        ``build("cmlm", vocab=…, length=0.1)``; a ValueError for one that has learned no lengths.
    """
    _check_writer(model, source, source_padding)
    head = getattr(objective, "head", None)
    if head is None:
        raise ValueError(
            f"{type(objective).__name__} has learned no lengths: train by build('nat', …, "
            "length=0.1) or build('cmlm', …, length=0.1), and give that objective"
        )
    best = check_integer("best", best, at_least=1)
    if best > head.longest:
        raise ValueError(f"there are {head.longest} lengths to choose from, got best={best}")
    with mode(model, training=False):
        logits = head(model.encode(source, source_padding), source_padding)
    logits[:, 0] = -torch.inf
    return logits.topk(best, -1).indices


@torch.no_grad()
def ctc_decode(
    model: TinyTransformer,
    source: Int[Tensor, "b m"],
    *,
    factor: int = 2,
    source_padding: Bool[Tensor, "b m"] | None = None,
    blank: int | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Written:
    """What the model says at ``factor`` places for each word of the source, collapsed.

    blank: the symbol for no word, which is the mask that the decoder reads; not given, the last
        token of the vocabulary. ``temperature`` as in ``mask_predict``. The score of a target is
        that of its alignment, for each place. Notes ``symbols``, the alignments (b, T).
    """
    _check_writer(model, source, source_padding)
    blank = _checked_mask(model, blank)
    factor = check_integer("factor", factor, at_least=1)
    real = torch.ones_like(source, dtype=torch.bool) if source_padding is None else source_padding
    lengths = _checked_lengths(model, source, factor * real.sum(-1))[:, 0]
    with mode(model, training=False):
        there = torch.arange(int(lengths.max()), device=source.device) < lengths[:, None]
        tokens = torch.full(there.shape, blank, device=source.device)
        logits = model(
            tokens, there, source=source, source_padding=source_padding,
            structure=open_to_all(tokens),
        )  # fmt: skip
    symbols = sample(logits.flatten(0, 1), temperature, None, generator).view_as(tokens)
    note("symbols", symbols)
    logp = logits.double().log_softmax(-1).gather(-1, symbols[..., None])[..., 0]
    score = logp.masked_fill(~there, 0).sum(-1) / lengths
    return Written(*ctc_collapse(symbols, there, blank), score)


def ctc_collapse(
    symbols: Int[Tensor, "b T"], real: Bool[Tensor, "b T"], blank: int
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """The words of alignments, and where they are: equal neighbours are one, blanks are left out.
    Rows without words have one place, which is not real."""
    first = torch.ones_like(real)
    first[:, 1:] = symbols[:, 1:] != symbols[:, :-1]
    kept = real & first & (symbols != blank)
    count = kept.sum(-1)
    width = max(1, int(count.max()))
    to = torch.where(kept, kept.long().cumsum(-1) - 1, width)
    words = symbols.new_zeros(len(symbols), width + 1).scatter_(1, to, symbols)[:, :width]
    return words, torch.arange(width, device=symbols.device) < count[:, None]


# ---- checks


def _check_writer(model: TinyTransformer, source: Tensor, padding: Tensor | None) -> None:
    check_model(model)
    if model.kind != "encoder_decoder":
        raise ValueError(
            f"a model of kind={model.kind!r} reads no source, and writes no target for one; take "
            "kind='encoder_decoder'"
        )
    check_tensor("source", source)


def _checked_mask(model: TinyTransformer, mask: int | None) -> int:
    assert model.vocab is not None
    if mask is None:
        return model.vocab - 1
    mask = check_integer("the mask", mask, at_least=0)
    if mask >= model.vocab:
        raise ValueError(
            f"the mask should be a token from 0 to {model.vocab - 1}, got {mask}; a model for an "
            "objective with masks has one token more than the task "
            "(attnlab.train.model_options(task, objective))"
        )
    return mask


def _checked_lengths(model: TinyTransformer, source: Tensor, lengths: Any) -> Tensor:
    """Candidates (b, c) for the lengths of targets."""
    check_tensor("lengths", lengths)
    if lengths.is_floating_point() or lengths.dtype == torch.bool or lengths.dim() not in (1, 2):
        raise ValueError(
            "lengths should be whole numbers (b,), or c candidates for each (b, c), got "
            f"{lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if len(lengths) != len(source) or not lengths.numel():
        raise ValueError(
            f"{len(source)} sources need as many lengths, got shape {tuple(lengths.shape)}"
        )
    if int(lengths.min()) < 1 or int(lengths.max()) > model.max_len:
        wrong = int(lengths.min() if lengths.min() < 1 else lengths.max())
        raise ValueError(
            f"a target should have 1 to {model.max_len} words or places (max_len of the model), "
            f"got {wrong}"
        )
    return lengths.to(source.device).reshape(len(lengths), -1)
