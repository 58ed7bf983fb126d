"""One text as each objective hands it to a model: what is read, what must be answered, what pays.

    example("masked_lm", "the old cat saw the dog".split(), rate=0.3, seed=1)
    found = answered(model, objective, drawn)      # guesses and losses of a trained model
    watch = LossByPlace(objective, drawn)          # fit(…, callbacks=[watch]): losses as it learns

Nothing here knows an objective by its name. Each is asked for its batch (``prepare``), and its
notes and targets say what became of every token, so a new page joins by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.options import parameters_of
from attnlab.core.probe import record
from attnlab.core.suggest import choose
from attnlab.objectives.asked import Asked
from attnlab.objectives.batches import UNSCORED

SHOWN, HIDDEN, REPLACED, KEPT, OPEN, SIGN = "shown", "hidden", "replaced", "kept", "open", "sign"
RATES, SPANS, SEEDS = (0.15, 0.3, 0.5), (1, 3, 6), 3
TOP = 4  # guesses of a place
_APART = 7  # by which the second text of a batch is turned


@dataclass(frozen=True)
class Place:
    """A token as a model reads it, and what it has to answer there; "" for a mask and for nothing.

    ``at`` is the token of the text that stands here, or that is asked for; -1 for a sign that the
    objective adds.
    """

    word: str
    answer: str
    kind: str
    at: int


class Guess(NamedTuple):
    """A possible answer, and how probable it is to the model."""

    answer: str
    probability: float


@dataclass(frozen=True)
class Example:
    """A text as one objective hands it to a model.

    ``kinds``   for every token of the text what became of it: "shown", "hidden", "replaced",
                "kept" (asked for, though the model sees it) or "open" (read from both sides)
    ``pays``    for every token of the text whether its answer is scored
    ``source``  what an encoder reads, of objectives for an encoder-decoder
    ``asked``   what stands where answers are asked
    ``whole``   the answer, where there is one for the whole text
    """

    name: str
    kinds: list[str]
    pays: list[bool]
    source: list[Place]
    asked: list[Place]
    whole: str
    batch: Any = field(repr=False, default=None)
    words: Sequence[str] = field(repr=False, default=())

    @property
    def scored(self) -> list[int]:
        """The places of ``asked`` that are scored."""
        return [i for i, place in enumerate(self.asked) if place.answer]


def knobs(name: str) -> tuple[bool, bool]:
    """Whether an objective has a rate that can be chosen, and a length of spans."""
    known = choose("objective", name, catalog.with_role("objective")).option_names()
    return "rate" in known or "one_in" in known, "span" in known


def options_of(name: str, rate: float | None, span: int | None) -> dict[str, Any]:
    """The options of an objective for such a rate and span, of those that it has."""
    known = choose("objective", name, catalog.with_role("objective")).option_names()
    found: dict[str, Any] = {}
    if rate is not None and "rate" in known:
        found["rate"] = rate
    elif rate is not None and "one_in" in known:
        found["one_in"] = max(1, round(1 / rate))
    if span is not None and "span" in known:
        found["span"] = span
    return found


def example(
    name: str, words: Sequence[str], *, rate: float | None = None, span: int | None = None,
    seed: int = 0,
) -> Example:  # fmt: skip
    """The objective's draw for a text of these words; the seed alone decides what is hidden.

    Raises ValueError where the objective cannot take a plain text, with its own reason.
    """
    card = choose("objective", name, catalog.with_role("objective"))
    vocabulary = sorted({*words})
    given = options_of(name, rate, span)
    if "vocab" in parameters_of(card.build):
        given["vocab"] = len(vocabulary)
    objective = catalog.build(name, **given)
    tokens = torch.tensor([vocabulary.index(word) for word in words])
    return draw(name, objective, tokens, vocabulary, seed)


def draw(
    name: str, objective: Any, tokens: Int[Tensor, "n"], vocabulary: Sequence[str], seed: int = 0
) -> Example:
    """What this module makes of a text of tokens, whose names are given."""
    check_integer("seed", seed, at_least=0)
    card = choose("objective", name, catalog.with_role("objective"))
    claims: Any = card.claims
    n = len(tokens) - (len(tokens) - 1) % claims.texts  # as many as its texts divide
    rows = torch.stack([tokens[:n], tokens[:n].roll(_APART)])
    given = Asked(rows[:, :-1], rows[:, 1:], torch.ones(2, n - 1, dtype=torch.bool))
    try:
        with record() as notes:
            asked = objective.prepare(given, torch.Generator().manual_seed(seed))
    except (TypeError, IndexError, RuntimeError) as error:
        raise ValueError(str(error)) from error
    own = given.inputs[0].tolist()
    if asked.inputs.dim() != 2 or asked.inputs.is_floating_point():
        raise ValueError(f"{name} does not read its texts as rows of tokens")
    text = _Text(vocabulary, own, objective)
    by_token = asked.targets.shape == asked.inputs.shape
    source = [] if asked.source is None else text.places(asked.source, asked.source_padding)
    moved = not by_token and int(asked.inputs[0].max()) >= len(vocabulary)  # by a separator
    places = text.places(
        asked.inputs, asked.padding, asked.targets if by_token else None,
        in_place=not (source or moved),
    )  # fmt: skip
    kinds, pays = _of_text(notes, asked, own, len(vocabulary), bool(source), by_token)
    whole = "" if by_token else _whole(objective, asked.targets[0])
    return Example(name, kinds, pays, source, places, whole, asked, vocabulary)


class _Text:
    """The words of a text, and the signs that an objective adds to them, in their order."""

    def __init__(self, words: Sequence[str], own: list[int], objective: Any) -> None:
        self.words, self.own = words, own
        self.signs: list[int] = []
        self.classes = getattr(objective, "classes", None) or 1  # of an answer that is no token
        self.verdicts = getattr(objective, "verdicts", ())  # what answers beyond the words say

    def places(
        self, inputs: Tensor, padding: Tensor | None, targets: Tensor | None = None, *,
        in_place: bool = False,
    ) -> list[Place]:  # fmt: skip
        """The real tokens of the first row; ``in_place`` if they may stand where the text's do."""
        row, n = inputs[0].tolist(), len(self.own)
        real = [True] * len(row) if padding is None else padding[0].tolist()
        asked = [UNSCORED] * len(row) if targets is None else targets[0].tolist()
        told = in_place and sum(map(int.__eq__, row, self.own)) > min(len(row), n) / 3
        found = list[Place]()
        for at, (token, target) in enumerate(zip(row, asked, strict=True)):
            if not real[at]:
                continue
            own = self.own[at] if told and at < n else None
            kind = self._kind(token, own, target)
            word = "" if kind == HIDDEN else self.name(token)
            answer = "" if target == UNSCORED else self._answer(target)
            found.append(Place(word, answer, kind, at if own is not None else -1))
        return found

    def _answer(self, target: int) -> str:
        """A class, a word, or what is said of the token, such as "replaced"."""
        if self.classes > 1:
            return f"class {target}"
        beyond = target - len(self.words)
        return self.verdicts[beyond] if 0 <= beyond < len(self.verdicts) else self.name(target)

    def _kind(self, token: int, own: int | None, target: int) -> str:
        """A token beyond the vocabulary hides the text's own at its place, if there is one; another
        word replaces it."""
        if token >= len(self.words):
            return SIGN if own is None else HIDDEN
        return SHOWN if own in (None, token) else REPLACED

    def name(self, token: int) -> str:
        if token < len(self.words):
            return self.words[token] or "∅"
        if token not in self.signs:
            self.signs.append(token)
        return f"⟨{self.signs.index(token) + 1}⟩"


def _of_text(
    notes: Any, asked: Any, own: list[int], vocab: int, from_source: bool, by_token: bool
) -> tuple[list[str], list[bool]]:
    """What became of every token of the text, and whether it is asked for."""
    n = len(own)

    def noted(name: str) -> list[bool]:
        known = name in notes and notes.last(name).dim() == 2 and notes.last(name).shape[1] >= n
        return notes.last(name)[0, :n].bool().tolist() if known else [False] * n

    hidden, replaced, opened = noted("hidden"), noted("replaced"), noted("open")
    aligned = by_token and not from_source and asked.targets.shape[1] == n
    in_place = not from_source and asked.inputs.shape[1] >= n
    visible = asked.inputs[0].tolist() if in_place else own
    scored = (asked.targets[0] != UNSCORED).tolist() if aligned else hidden
    pays = scored if by_token else [False] * n
    kinds = list[str]()
    for i in range(n):
        same = visible[i] == own[i]
        told = aligned and same and pays[i] and int(asked.targets[0, i]) == own[i]
        if told:  # it is asked what it sees
            kinds.append(KEPT)
        elif aligned and not same:
            kinds.append(HIDDEN if visible[i] >= vocab else REPLACED)
        elif hidden[i]:
            kinds.append(HIDDEN)
        else:
            kinds.append(REPLACED if replaced[i] else OPEN if opened[i] else SHOWN)
    return kinds, pays


def _whole(objective: Any, targets: Tensor) -> str:
    """The answer for the text, or how many there are."""
    found = [_class(objective, int(target)) for target in targets.flatten()]
    return found[0] if len(found) == 1 else f"{len(found)} answers"


def _class(objective: Any, target: int) -> str:
    """The name of an answer, if the objective's options have names for them."""
    names = getattr(getattr(objective, "options", None), "answers", None)
    if isinstance(names, tuple) and 0 <= target < len(names):
        return str(names[target])
    return "none" if target == UNSCORED else f"class {target}"


# ---- a trained model


@torch.no_grad()
def answered(model: nn.Module, objective: Any, drawn: Example) -> list[list[Guess]]:
    """The likeliest answers of a model at every place that is asked; for a text with one answer,
    once; nothing where several answers belong to the whole text. Of several exits the last one
    answers.

    Of an objective that asks yes or no at a place, such as ELECTRA, the guess is "replaced" with
    its probability.
    """
    with mode(model, training=False), mode(objective, training=False):
        answers = objective.answers(model, drawn.batch)
    scores, targets = getattr(answers, "scores", answers), drawn.batch.targets
    if not isinstance(scores, Tensor) or (drawn.whole and targets.dim() > 1):
        return []
    words = drawn.words

    def named(token: int) -> str:
        return words[token] if token < len(words) else "a sign"

    if drawn.whole:
        return _likeliest(scores[:1], lambda target: _class(objective, target))
    if scores.dim() > 2:
        return _likeliest(scores.reshape(-1, *targets.shape, scores.shape[-1])[-1, 0], named)
    judged = _judged(scores[0], getattr(objective, "verdicts", ("the text's own", "replaced")))
    if not hasattr(answers, "words"):
        return judged
    guessed = _likeliest(answers.words[0], named)  # where a word is asked, and no verdict
    word_asked = (targets[0] < len(words)).tolist()
    both = zip(word_asked, guessed, judged, strict=True)
    return [of_words if asked else verdicts for asked, of_words, verdicts in both]


def _likeliest(logits: Float[Tensor, "n classes"], name: Callable[[int], str]) -> list[list[Guess]]:
    best = logits.float().softmax(-1).topk(min(TOP, logits.shape[-1]), -1)
    return [
        [Guess(name(int(i)), float(p)) for p, i in zip(values, places, strict=True)]
        for values, places in zip(*best, strict=True)
    ]


def _judged(scores: Float[Tensor, "n"], verdicts: Sequence[str]) -> list[list[Guess]]:
    """Two verdicts with their probabilities; a score above 0 stands for the second."""
    no, yes = verdicts
    both = [[Guess(yes, p), Guess(no, 1 - p)] for p in torch.sigmoid(scores).tolist()]
    return [sorted(each, key=lambda guess: -guess.probability) for each in both]


@torch.no_grad()
def loss_by_place(model: nn.Module, objective: Any, drawn: Example) -> tuple[list[float], float]:
    """The loss of the example at every place that is asked, and what belongs to no place.

    Each is the loss if nothing else is scored, less that if nothing is. At the places where
    ELECTRA's generator answers, its loss is part of it.

    Raises ValueError for an example whose answers belong to the whole text.
    """
    _check_places(drawn)
    with mode(model, training=False), mode(objective, training=False):
        batch = drawn.batch[0:1]
        answers = objective.answers(model, batch)
        nothing = _loss(objective, answers, batch, None)
        wanted = (batch.targets[0] != UNSCORED).nonzero()[:, 0].tolist()
        found = [0.0] * len(drawn.asked)
        for i in wanted:
            if i < len(found):
                found[i] = _loss(objective, answers, batch, i) - nothing
    return found, nothing


def _loss(objective: Any, answers: Any, batch: Any, place: int | None) -> float:
    targets = torch.full_like(batch.targets, UNSCORED)
    if place is not None:
        targets[0, place] = batch.targets[0, place]
    return float(objective.loss(answers, replace(batch, targets=targets)))


def _check_places(drawn: Example) -> None:
    if drawn.whole:
        raise ValueError(
            f"{drawn.name} asks the text as a whole, so no place of it has a loss of its own"
        )


class LossByPlace:
    """A callback of ``attnlab.train.fit``: what each place of an example loses at some steps.

    steps: at which it looks.
    """

    def __init__(self, objective: Any, drawn: Example, steps: Sequence[int]) -> None:
        _check_places(drawn)
        self.objective, self.drawn, self.wanted = objective, drawn, {*steps}
        self.steps: list[int] = []
        self.losses: list[list[float]] = []
        self.beside: list[float] = []

    def __call__(self, state: Any) -> None:
        if state.step in self.wanted:
            found, beside = loss_by_place(state.model, self.objective, self.drawn)
            self.steps.append(state.step)
            self.losses.append(found)
            self.beside.append(beside)

    def as_dict(self) -> Mapping[str, Any]:
        """Steps, and the losses (steps, places), as a widget takes them."""
        return {"steps": self.steps, "losses": self.losses, "beside": self.beside}
